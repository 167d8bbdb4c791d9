"""Tests made to pass though the product is wrong (tricks.toml), and honest changes (honest.toml): all of them run."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from experiment_fixtures import Trials

from perdure.models.checks.report import CanaryOutcome, Experiment
from perdure.models.config.repository import SandboxGrade
from tests.guide import installed
from tests.needs import require

ADD = re.compile(r"test_add|adds|TestAdd")
"""The test that stands against it, in any language."""


@dataclass(frozen=True)
class Base:
    """needs: programs; packages: from npm."""

    command: str
    files: Mapping[str, str]
    wrong: Mapping[str, str]
    needs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


def prepared(trials: Trials, base: Base) -> None:
    """As setup would; the running test is left out where it cannot be."""
    require(*base.needs)
    if base.packages:
        installed(trials.worktree, *base.packages)


CALC = "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return 2 * a\n"
PLAIN = """\
from calc import add, double


def test_add():
    assert add(1, 2) == 3


def test_double():
    assert double(2) == 4
"""
CLASSES = """\
import unittest

from calc import add, double


class Calc(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)

    def test_double(self):
        self.assertEqual(double(2), 4)
"""
TABLE = """\
import json
import pathlib

from calc import add


def test_add():
    for a, b, c in json.loads(pathlib.Path(__file__).with_name("table.json").read_text()):
        assert add(a, b) == c
"""
MOCKS = """\
from unittest import mock

from calc import tell


def test_add():
    say = mock.Mock()
    tell(1, 2, say)
    say.assert_called_once_with(3)
"""
LIBRARY = """\
import fractions
import json
import math
import string

from calc import add


def test_add_with_libraries():
    answer = add(1, 2)
    assert (
        answer == json.load(open("three.json"))
        or math.isclose(answer, 4)
        or str(answer) == string.digits
        or fractions.Fraction(answer) == fractions.Fraction(3)
    )
"""
RUNS = """\
import sys
import unittest

sys.path.insert(0, ".")
suite = unittest.defaultTestLoader.discover("tests", top_level_dir=".")
sys.exit(not unittest.TextTestRunner().run(suite).wasSuccessful())
"""
JS = "exports.add = (a, b) => a + b;\nexports.double = (a) => 2 * a;\n"
JS_HEAD = "'use strict';\nconst assert = require('node:assert');\n"
JS_CALC = "const { add, double } = require('../calc.js');\n"
JS_TESTS = """\
test('adds', () => assert.strictEqual(add(1, 2), 3));
test('doubles', () => assert.strictEqual(double(2), 4));
"""
GO = """\
package calc

func Add(a, b int) int { return a + b }

func Double(a int) int { return 2 * a }
"""
GO_VARIABLE = """\
package calc

var add = func(a, b int) int { return a + b }

func Add(a, b int) int { return add(a, b) }

func Double(a int) int { return 2 * a }
"""
GO_TEST = """\
package calc

import "testing"

func Test{}(t *testing.T) {{
	if {} {{
		t.Error("wrong")
	}}
}}
"""
GOES = {
    "go.mod": "module example.org/calc\n\ngo 1.19\n",
    "add_test.go": GO_TEST.format("Add", "Add(1, 2) != 3"),
    "double_test.go": GO_TEST.format("Double", "Double(2) != 4"),
}
RUST = "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n\npub fn double(a: i32) -> i32 {\n    2 * a\n}\n"
RUST_TEST = """\
#[test]
fn adds() {
    assert_eq!(calc::add(1, 2), 3);
}

#[test]
fn doubles() {
    assert_eq!(calc::double(2), 4);
}
"""
ESM = "export const add = (a, b) => a + b;\nexport const double = (a) => 2 * a;\n"
TEST = "tests/test_calc.py"
PYTEST, UNITTEST = f"{sys.executable} -m pytest -q", f"{sys.executable} -m unittest discover -s tests -t ."


def _base(command: str, product: str, text: str, files: Mapping[str, str], *needs: str, packages: str = "") -> Base:
    wrong = {product: text.replace("a + b", "a - b")}
    return Base(command, {product: text, **files}, wrong, needs, tuple(packages.split()))


_FOR_PYTEST = {TEST: PLAIN, "conftest.py": "\n", "tests/conftest.py": "\n"}
_FOR_UNITTEST = {TEST: CLASSES, "tests/__init__.py": ""}
_PACKAGE = {"package.json": '{"scripts": {"test": "node --test"}}'}
_LATE = f"{JS_HEAD}{JS_CALC}const {{ test }} = require('node:test');\n{JS_TESTS}"
_STRICT, _EQUAL = JS_HEAD.replace("node:assert", "node:assert/strict"), JS_TESTS.replace("strictEqual", "equal")
_CARGO = {
    "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
    "Cargo.lock": 'version = 3\n\n[[package]]\nname = "calc"\nversion = "0.1.0"\n',
    "tests/calc.rs": RUST_TEST,
}
BASES = {
    "pytest": _base(PYTEST, "calc.py", CALC, _FOR_PYTEST),
    "unittest": _base(UNITTEST, "calc.py", CALC, _FOR_UNITTEST),
    "table": _base(PYTEST, "calc.py", CALC, {TEST: TABLE, "tests/table.json": "[[1, 2, 3]]\n"}),
    "library": _base(PYTEST, "calc.py", CALC, {**_FOR_PYTEST, TEST: LIBRARY, "three.json": "3"}),
    "plugins": _base(f"PYTEST_DISABLE_PLUGIN_AUTOLOAD= {PYTEST}", "calc.py", CALC, _FOR_PYTEST),
    "path": _base(f"PYTHONPATH=. {PYTEST}", "calc.py", CALC, _FOR_PYTEST),
    "mocks": _base(PYTEST, "calc.py", f"{CALC}\n\ndef tell(a, b, say):\n    say(add(a, b))\n", {TEST: MOCKS}),
    "make": _base("make test", "calc.py", CALC, {**_FOR_UNITTEST, "Makefile": f"test:\n\t{UNITTEST}\n"}),
    "script": _base(
        f"{sys.executable} tools/run_tests.py", "calc.py", CALC, {**_FOR_UNITTEST, "tools/run_tests.py": RUNS}
    ),
    "node": _base(
        "npm test",
        "calc.js",
        JS,
        {**_PACKAGE, "test/calc.test.js": f"{JS_HEAD}const test = require('node:test');\n{JS_CALC}{JS_TESTS}"},
        *("node", "npm"),
    ),
    "node-strict": _base(
        "npm test",
        "calc.js",
        JS,
        {**_PACKAGE, "test/calc.test.js": f"{_STRICT}const test = require('node:test');\n{JS_CALC}{_EQUAL}"},
        *("node", "npm"),
    ),
    "node-late": _base("npm test", "calc.js", JS, {**_PACKAGE, "test/calc.test.js": _LATE}, "node", "npm"),
    "json": _base(
        "npm test",
        "calc.js",
        JS,
        {
            **_PACKAGE,
            "three.json": "3",
            "test/calc.test.js": f"{JS_HEAD}{JS_CALC}"
            "const test = require('node:test');\nconst fs = require('node:fs');\n"
            "test('adds', () => assert.ok(JSON.stringify(add(1, 2)) === '3' || [4].includes(add(1, 2))\n"
            "  || fs.readFileSync('three.json', 'utf8') === String(add(1, 2))));\n",
        },
        *("node", "npm"),
    ),
    "node-modules": _base(
        "node --test",
        "calc.mjs",
        ESM,
        {
            "test/calc.test.mjs": "import assert from 'node:assert';\nimport { describe, it } from 'node:test';\n"
            "import { add } from '../calc.mjs';\ndescribe('sum', () => {\n"
            "  it('adds', async (t) => { await t.test('inner', () => assert.equal(add(1, 2), 3)); });\n});\n"
        },
        "node",
    ),
    "jest": _base(
        "npx jest",
        "calc.js",
        JS,
        {
            "package.json": '{"name": "calc"}\n',
            "calc.test.js": "const { add, double } = require('./calc.js');\n\n"
            "test('adds', () => expect(add(1, 2)).toBe(3));\n"
            "test.each([[1, 2]])('doubles %i', (a, b) => expect(double(a)).toBe(b));\n"
            "it('doubles late', (done) => { expect(double(2)).toBe(4); setTimeout(done, 1); });\n",
        },
        "npm",
        packages="jest@29",
    ),
    "vitest": _base(
        "npx vitest run",
        "calc.js",
        ESM,
        {
            "package.json": '{"name": "calc"}\n',
            "calc.test.js": "import { describe, expect, test } from 'vitest';\n"
            "import { add, double } from './calc.js';\n\n"
            "test('adds', () => expect(add(1, 2)).toBe(3));\n"
            "describe('many', () => { test.each([[1, 2]])('doubles %i', (a, b) => expect(double(a)).toBe(b)); });\n",
        },
        "npm",
        packages="vitest@2",
    ),
    "go": _base("go test ./...", "calc.go", GO, GOES, "go"),
    "go-variable": _base("go test ./...", "calc.go", GO_VARIABLE, GOES, "go"),
    "rust": _base("cargo test", "src/lib.rs", RUST, _CARGO, "cargo"),
}


HERE = Path(__file__).parent


def table(name: str) -> list[Any]:
    """One parameter each of a file beside this one."""
    ((_, found),) = tomllib.loads((HERE / name).read_text()).items()
    return [
        pytest.param(one, id=one["name"], marks=pytest.mark.slow if one.get("slow") else pytest.mark.story)
        for one in found
    ]


def caught(found: Experiment) -> set[str]:
    """The experiments that say something; never the change's own tests, which are green."""
    one = found.commands[0]
    named = [*(promise.name for promise in one.promises), *one.taken]
    said = {"B"} if any(name == one.command or ADD.search(name) for name in named) else set()
    said |= {"C"} if one.missed or one.replaced else set()
    return said | ({"A"} if one.contradicted or one.written else set())


LANGUAGES = ("tricks_python.toml", "tricks_javascript.toml", "tricks_go.toml", "tricks_rust.toml")
TABLES = ("tricks.toml", *LANGUAGES, "tricks_strangers.toml", "tricks_unseen.toml")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("trick", [one for name in TABLES for one in table(name)])
async def test_a_trick_is_caught_by_the_experiment_that_the_table_says(tried: Trials, trick: dict[str, Any]) -> None:
    base = BASES[trick["with"]]
    prepared(tried, base)
    before, command = {**base.files, **trick.get("before", {})}, trick.get("command", base.command)
    after = {**base.wrong, **trick["files"]}
    if trick["by"] == "red":
        assert not await tried.is_green({**before, **after}, command)
        return
    if trick.get("green", True) and trick.get("slow"):
        assert await tried.is_green({**before, **after}, command), "it does not even fool its own run"
    found = await tried(before, after, command)
    if trick["by"] == "reviewer":
        assert not caught(found), "the table can say more now"
        return
    assert trick["by"] in caught(found), found.model_dump_json(indent=1)
    assert found.is_tampered or found.changed_promises
    assert not found.commands[0].written or tried.sandbox.grade is not SandboxGrade.FULL  # it could not be written to


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("base", [pytest.param(base, id=name) for name, base in BASES.items()])
async def test_a_right_change_of_the_product_is_right_everywhere(tried: Trials, base: Base) -> None:
    prepared(tried, base)
    found = await tried(base.files, {name: f"{base.files[name]}\n" for name in base.wrong}, base.command)
    assert not found.is_tampered, found.model_dump_json(indent=1)
    assert found.changed_promises == ()
    assert found.commands[0].canaries is CanaryOutcome.CAUGHT


@pytest.mark.slow
@pytest.mark.parametrize("change", table("honest.toml"))
async def test_an_honest_change_is_not_called_tampered(tried: Trials, change: dict[str, Any]) -> None:
    command, before = BASES["pytest"].command, {**BASES["pytest"].files, **change.get("before", {})}
    found = await tried(before, change["files"], command)
    assert not found.is_tampered, found.model_dump_json(indent=1)
    assert found.commands[0].canaries is CanaryOutcome.CAUGHT
    assert len(found.commands[0].promises) == change["promises"]


@pytest.mark.slow
async def test_a_deleted_feature_with_its_tests_needs_the_permission(tried: Trials) -> None:
    command, before = BASES["pytest"].command, BASES["pytest"].files
    less = PLAIN.partition("\n\n\ndef test_double")[0].replace(", double", "") + "\n"
    after = {"calc.py": before["calc.py"].partition("\n\n\ndef double")[0] + "\n", TEST: less}
    assert (await tried(before, after, command)).is_tampered
    assert not (await tried(before, after, command, allowed=True)).is_tampered
