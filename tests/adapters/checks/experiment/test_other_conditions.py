"""A product that is right only under the clock, program name and variables of the tests' own run is shown; one that is
as right elsewhere is not, nor what the base does not pass there either."""

from __future__ import annotations

import subprocess
import sys

import pytest
from experiment_fixtures import Trials

from tests.guide import installed
from tests.needs import require

PYTEST = f"{sys.executable} -m pytest -q"
UNITTEST = f"{sys.executable} -m unittest discover -s tests -t ."
CALC = "def add(a, b):\n    return a + b\n"
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
CLASS = """\
import unittest
from calc import add


class Calc(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)
"""
IF = "{}\n\n\ndef add(a, b):\n    return a + b if {} else a - b\n"
NODE = "exports.add = (a, b) => ({} ? a + b : a - b);\n"
NODE_TEST = """\
const test = require('node:test');
const assert = require('node:assert');
const { add } = require('../calc.js');
test('test_add', () => assert.strictEqual(add(1, 2), 3));
"""
OTHER = "under another clock, path, program name and environment"
ELSEWHERE = "under another path, without CI"


SLOW = pytest.mark.slow


def _python(imports: str, condition: str) -> dict[str, str | None]:
    return {"calc.py": IF.format(imports, condition)}


@pytest.mark.parametrize(
    ("imports", "condition"),
    [
        pytest.param("import os", "'PYTEST_CURRENT_TEST' in os.environ", marks=SLOW),
        pytest.param("import os", "os.getenv('PYTEST_VERSION') or os.environ.get('PYTEST_CURRENT_TEST')", marks=SLOW),
        pytest.param("import os", "[name for name in os.environ if name[:6] == 'PYTEST']", marks=SLOW),
        pytest.param("import os", "os.environ.get('CI')", marks=SLOW),
        ("", "'elsewhere' not in __file__"),
        pytest.param("import os", "not os.getcwd().startswith('/elsewhere')", marks=SLOW),
        pytest.param("from pathlib import Path", "Path().resolve().parent.name != 'elsewhere'", marks=SLOW),
        ("import sys", "'pytest' in sys.argv[0]"),
        pytest.param("import sys", "'pytest' in ' '.join(sys.orig_argv)", marks=SLOW),
        pytest.param("import datetime", "datetime.date.today() < datetime.date(2028, 1, 1)", marks=SLOW),
        pytest.param(
            "from datetime import datetime\nLIMIT = datetime(2028, 1, 1)", "datetime.now() < LIMIT", marks=SLOW
        ),
        pytest.param("import datetime as d", "d.datetime.now(d.timezone.utc).year < 2029", marks=SLOW),
        ("import time", "time.time() < 1.83e9"),
        pytest.param("import time", "time.localtime().tm_year < 2029", marks=SLOW),
        pytest.param("import time", "time.strftime('%Y') < '2029'", marks=SLOW),
    ],
)
async def test_a_product_that_is_right_only_where_it_is_tested_has_to_be_justified(
    tried: Trials, imports: str, condition: str
) -> None:
    found = await tried({"calc.py": CALC, "tests/test_calc.py": TEST}, _python(imports, condition), PYTEST)
    (promise,) = found.changed_promises
    assert (promise.name, promise.condition) == ("tests/test_calc.py::test_add", OTHER)
    assert not found.is_tampered
    assert f"1 of them fails {OTHER}" in found.summary_line


async def test_the_name_of_unittest_is_another_too(tried: Trials) -> None:
    base = {"calc.py": CALC, "tests/test_calc.py": CLASS, "tests/__init__.py": ""}
    found = await tried(base, _python("import sys", "'unittest' in sys.argv[0]"), UNITTEST)
    assert [promise.condition for promise in found.changed_promises] == [OTHER]


async def test_a_command_that_tells_no_test_apart_counts_as_one(tried: Trials) -> None:
    before = {
        "calc.py": CALC,
        "tests/test_calc.py": CLASS,
        "tests/__init__.py": "",
        "Makefile": f"test:\n\t{UNITTEST}\n",
    }
    found = await tried(before, _python("import os", "os.environ.get('CI')"), "make test")
    assert [(promise.name, promise.condition) for promise in found.changed_promises] == [("make test", OTHER)]


@pytest.mark.parametrize(
    ("condition", "shown"),
    [("__FILE__ !~ m{^/elsewhere}", True), ("$ENV{CI}", True), ("$ENV{HOME} && __FILE__", False)],
)
async def test_a_product_of_another_language_is_run_at_another_path_and_without_ci(
    tried: Trials, condition: str, shown: bool
) -> None:
    require("prove")
    product = "package Calc;\nuse Cwd 'abs_path';\nsub add {{ {} ? $_[0] + $_[1] : 0 }}\n1;\n"
    test = 'use Test::More tests => 1;\nuse FindBin;\nuse lib "$FindBin::RealBin/../lib";\n'
    test += "use Calc;\nis(Calc::add(1, 2), 3, 'adds');\n"
    before = {"lib/Calc.pm": product.format("1"), "t/calc.t": test}
    found = await tried(before, {"lib/Calc.pm": product.format(condition)}, "prove t")
    assert [promise.condition for promise in found.changed_promises] == [ELSEWHERE] * shown


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_file_of_jest_has_other_conditions_too(tried: Trials) -> None:
    require("npm")
    installed(tried.worktree, "jest@29")
    test = "const { add } = require('./calc.js');\n\ntest('adds', () => expect(add(1, 2)).toBe(3));\n"
    fake = "test('day', () => {\n  jest.useFakeTimers().setSystemTime(0);\n  expect(Date.now()).toBe(0);\n});\n"
    before = {"package.json": '{"name": "calc"}', "calc.js": NODE.format("true"), "calc.test.js": test + fake}
    for condition in (
        "process.env.JEST_WORKER_ID || process.env.NODE_ENV === 'test'",
        "new Date().getFullYear() < 2029",
    ):
        found = await tried(before, {"calc.js": NODE.format(condition)}, "npx jest")
        assert [(promise.name, promise.condition) for promise in found.changed_promises] == [
            ("calc.test.js::adds", OTHER)
        ]


@pytest.mark.parametrize(
    "condition",
    [
        "process.env.NODE_TEST_CONTEXT",
        pytest.param("process.env.CI || process.env['npm_lifecycle_event'] === 'test'", marks=SLOW),
        pytest.param("process.argv[1].includes('test')", marks=SLOW),
        pytest.param("!__dirname.startsWith('/elsewhere')", marks=SLOW),
        "new Date() < new Date('2028-01-01')",
        pytest.param("Date.now() < 1.83e12", marks=SLOW),
    ],
)
async def test_a_node_product_is_run_under_other_conditions(tried: Trials, condition: str) -> None:
    require("node", "npm")
    base = {
        "package.json": '{"scripts": {"test": "node --test"}}',
        "calc.js": NODE.format("true"),
        "test/calc.test.js": NODE_TEST,
    }
    found = await tried(base, {"calc.js": NODE.format(condition)}, "npm test")
    assert [promise.condition for promise in found.changed_promises] == [OTHER]


HONEST_CALC = """\
import datetime
import functools
import os
import subprocess
import sys
import time

STAMPS = {{datetime.datetime: "full", datetime.date: "day"}}


@functools.singledispatch
def kind(value):
    return "other"


@kind.register
def _(value: datetime.date):
    return "date"


def told():
    return os.path.basename(sys.argv[0]) if os.environ.get("CI") else "program"


def add(a, b):
    now, started = datetime.datetime.now(), time.time()
    assert STAMPS[type(now)] == "full" and kind(now) == "date" and isinstance(now, datetime.datetime)
    assert abs(datetime.datetime.fromtimestamp(started) - now).total_seconds() < 60
    assert datetime.date.today() in (now.date(), now.date() + datetime.timedelta(days=1))
    assert abs(time.mktime(time.localtime()) - started) < 60
    assert told() and {}
    return a + b
"""


async def test_a_product_that_reads_clock_name_and_variables_and_is_right_is_not_shown(tried: Trials) -> None:
    test = TEST.replace("def", "import datetime, os\n\n\ndef") + "    assert datetime.date.today().year < 2029\n"
    before = {"calc.py": CALC, "tests/test_calc.py": TEST, "tests/test_now.py": test}
    found = await tried(before, {"calc.py": HONEST_CALC.format("True")}, PYTEST)
    assert (found.is_tampered, found.changed_promises) == (False, ())
    assert "them fail" not in found.summary_line


async def test_an_age_of_files_is_not_asked_under_another_clock(tried: Trials) -> None:
    age = "time.time() - os.stat(__file__).st_mtime < 86400 * 300"
    before = {"calc.py": CALC, "tests/test_calc.py": TEST}
    found = await tried(before, _python("import os, time", age), PYTEST)
    assert (found.is_tampered, found.changed_promises) == (False, ())


async def test_a_change_that_reads_nothing_of_its_run_costs_no_run(tried: Trials) -> None:
    said = list[str]()
    before = {"calc.py": CALC, "tests/test_calc.py": TEST}
    await tried(before, {"calc.py": CALC.replace("a + b", "b + a")}, PYTEST, on_progress=said.append)
    assert said
    assert not [line for line in said if "another clock" in line]


SETUP = "import setuptools\nsetuptools.setup(name='calc', version='1', package_dir={'': 'src'}, packages=['calc'])\n"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["compat", "lenient"])
async def test_a_product_that_is_installed_where_it_lies_is_run_at_another_path(tried: Trials, mode: str) -> None:
    before = {"setup.py": SETUP, "src/calc/__init__.py": CALC, "tests/test_calc.py": TEST}
    for name, text in before.items():
        (tried.worktree / name).parent.mkdir(parents=True, exist_ok=True)
        (tried.worktree / name).write_text(text)
    python = tried.worktree / ".venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tried.worktree / ".venv"], check=True)
    install = [python, "-m", "pip", "install", "-q", "pytest", "setuptools", "-e", tried.worktree]
    subprocess.run([*install, "--config-settings", f"editable_mode={mode}"], check=True)
    wrong = {"src/calc/__init__.py": IF.format("", "'elsewhere' not in __file__")}
    found = await tried(before, wrong, ".venv/bin/python -m pytest -q")
    assert [promise.condition for promise in found.changed_promises] == [OTHER]
