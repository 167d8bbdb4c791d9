"""Replaced parts of libraries are named, and nothing else, whatever loads them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.adapters.checks.runners.base import Invocation
from perdure.adapters.checks.runners.javascript import throw_replaced
from perdure.adapters.checks.runners.node import Node
from perdure.adapters.checks.runners.python import library_snapshot
from tests.needs import require

LIBRARIES = "import decimal, fractions, json, math, string, unittest.mock\nmark = 1\n"
REPORT = "import sys\nprint(*sys.library_snapshot.find_replaced('mark'), sep='|')\n"


def replaced_in_python(directory: Path, program: str, **files: str) -> str:
    """Return the names that a program with the libraries above is given; `files`: beside it, `__` for `/`."""
    call = library_snapshot().add_to(Invocation(""), directory, {"PYTHONPATH": str(directory / "lib")})
    for file, text in call.files.items():
        file.write_text(text)
    for name, text in files.items():
        path = directory / f"lib/{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (directory / "program.py").write_text(f"{LIBRARIES}{program}\n{REPORT}")
    argv = [sys.executable, "program.py"]
    env = {**os.environ, **call.env}
    done = subprocess.run(argv, cwd=directory, env=env, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().rpartition("\n")[2]


@pytest.mark.parametrize(
    ("program", "replaced"),
    [
        ("", ""),
        ("math.isclose = max", "math.isclose"),
        ("math.pi = 3", "math.pi"),
        ("json.dumps = json.loads", "json.dumps"),
        ("del json.dumps", "json.dumps"),
        ("import builtins; builtins.vars = builtins.getattr = lambda *a: {}; math.pi = 3", None),
        ("import builtins; builtins.sorted = lambda *a, **k: []", "builtins.sorted"),
        ("json.len = lambda value: 1", "json.len"),
        ("fractions.Fraction.__eq__ = lambda self, other: True", "fractions.Fraction.__eq__"),
        ("unittest.TestCase.assertEqual = print", "unittest.case.TestCase.assertEqual"),
        ("import builtins; builtins.sorted = list", "builtins.sorted"),
        ("import os; os.chdir('/')", "the working directory"),
        ("import sys; sys.modules['json'] = math", "sys.modules['json']"),
        ("import sys; sys.meta_path.insert(0, type('F', (), {'find_spec': lambda *a: None}))", "sys.meta_path"),
        ("import importlib; importlib.reload(json); importlib.reload(json.decoder)", ""),
        ("with unittest.mock.patch('json.dumps'): pass", ""),
        ("__import__('html').escape = str", ""),  # tests do not use it
        ("import builtins; builtins._ = str; math.other = 1", ""),
        ("import logging; logging.raiseExceptions = False", ""),
    ],
)
def test_what_is_not_as_it_was_loaded_is_named(tmp_path: Path, program: str, replaced: str | None) -> None:
    names = replaced_in_python(tmp_path, program)
    assert names == replaced if replaced is not None else "math.pi" in names


def test_a_file_of_a_library_s_name_that_is_no_module_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("")
    (tmp_path / "pytest").mkdir()
    assert replaced_in_python(tmp_path, "import pytest; pytest.approx = lambda value: value") == "pytest.approx"


def test_any_loader_and_a_sitecustomize_of_ones_own_work_as_without_it(tmp_path: Path) -> None:
    loader = (
        "import importlib.util, sys, types\n\n\nclass Loader:\n    def find_spec(self, name, path, target=None):\n"
        "        return importlib.util.spec_from_loader(name, self, origin=string_file) if name in names else None\n\n"
        "    def create_module(self, spec):\n        return types.ModuleType(spec.name)\n\n"
        "    def exec_module(self, module):\n        if module.__name__ == 'one':\n            import two\n"
        "        module.value = module.__name__\n\n\n"
        "import string\nnames, string_file = ('one', 'two'), string.__file__\n"
        "sys.meta_path.append(Loader())\n"
    )
    program = "import named.inner, loaders, one, sitecustomize\nprint(named.inner.x, one.value, sitecustomize.x)"
    files = {"named__inner": "x = 1\n", "loaders": loader, "sitecustomize": "x = 2\n"}
    assert replaced_in_python(tmp_path, program, **files) == "sys.meta_path"


@pytest.mark.parametrize(
    ("program", "replaced"),
    [
        ("", ""),
        ("JSON.stringify = String", "JSON.stringify"),
        ("globalThis.Map = class {}", "Map"),
        ("Array.prototype.includes = () => true", "Array.prototype.includes"),
        ("Array.prototype.join = () => ''", "Array.prototype.join"),
        ("Array.prototype.sort = Array.prototype.slice = () => []", "Array.prototype.slice, Array.prototype.sort"),
        ("Set.prototype.has = () => true; Array.prototype[Symbol.iterator] = function* () {}", None),
        ("Object.prototype.toJSON = () => 1", None),
        ("require('fs').readFileSync = () => ''", "fs.readFileSync"),
        ("require('path').join = () => ''", ""),  # tests do not use it
        (
            "require('assert').AssertionError.prototype.toString = () => ''",
            "assert.AssertionError.prototype.toString, assert/strict.AssertionError.prototype.toString",
        ),
        ("process.chdir('/')", "the working directory"),
        ("Array.prototype.last = () => 1; globalThis.fetch = 1; process.exitCode = 0", ""),
    ],
)
def test_what_is_not_as_node_had_it_is_named(tmp_path: Path, program: str, replaced: str | None) -> None:
    require("node")
    canaries = Node().make_canaries({"a.test.js": "const fs = require('node:fs');\n"}, "token")
    assert canaries.startup is not None
    call = canaries.startup.add_to(Invocation(""), tmp_path, {})
    for file, text in call.files.items():
        file.write_text(text)
    canary = throw_replaced("require('node:fs')")
    (tmp_path / "program.js").write_text(
        f"{program};\ntry {{ {canary} }} catch (error) {{ process._rawDebug(error.message) }}\n"
    )
    env = {**os.environ, **call.env}
    done = subprocess.run(
        ["node", "program.js"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=50, check=True
    )
    names = done.stderr.strip().removeprefix("libraries:").strip()
    assert names == replaced if replaced is not None else re.search(r"toJSON|Set\.prototype\.has", names), names


def test_a_realm_has_a_record_of_its_own(tmp_path: Path) -> None:
    require("node")
    startup = Node().make_canaries({"a.test.js": "const fs = require('node:fs');\n"}, "token").startup
    assert startup is not None
    ((file, text),) = startup.add_to(Invocation(""), tmp_path, {}).files.items()
    file.write_text(text)
    find = "globalThis[Symbol.for('library snapshot')](['fs'])"
    program = (
        f"const vm = require('vm'), realms = [vm.createContext({{}}), vm.createContext({{}})];"
        "vm.runInContext('JSON.stringify = String', realms[0]); require('fs').readFileSync = () => '';"
        f'console.log(realms.map((realm) => vm.runInContext("{find}", realm)).join("; "), {find});'
    )
    argv = ["node", f"--require={file}", "-e", program]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout == "JSON.stringify, fs.readFileSync; fs.readFileSync fs.readFileSync\n"
