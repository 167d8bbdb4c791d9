"""One run for what was two: the base's tests on the change, made to fail at their ends; and where that does not do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from experiment_fixtures import Files, Trials
from trick_bases import CALC

from perdure.models.experiment import Caught, Experiment
from tests.needs import require

PYTEST = f"{sys.executable} -m pytest -p no:cacheprovider"
TESTS = """\
import pytest
from calc import add, double


@pytest.mark.parametrize("number", [1, 2])
def test_add(number):
    assert add(number, 2) == 2 + number


class TestDouble:
    def test_double(self):
        assert double(2) == 4
"""
BASE = {"calc.py": CALC, "tests/test_calc.py": TESTS, "tests/data/a.txt": "a\n"}
WRONG = CALC.replace("a + b", "a - b")
MORE = {"tests/test_more.py": "from calc import add\n\n\ndef test_more():\n    assert add(0, 0) == 0\n"}
BENT = {"tests/test_calc.py": TESTS.replace("add(number, 2) == 2 + number", "add(number, 2) == number - 2")}


def runs(root: Path) -> list[str]:
    """The runs there were of the base's tests on the change, and of those that must fail."""
    found = {match[1] for path in (root / "room").glob("logs-*") if (match := re.match(r"logs-1-(\w+)-\d", path.name))}
    return sorted(found & {"b", "c", "bc"})


def promised(found: Experiment) -> set[str]:
    return {name.name.partition("::")[2].partition("[")[0] for name in found.commands[0].promises}


@pytest.mark.parametrize(
    "product",
    [
        pytest.param(f"{CALC}\n\ndef half(a):\n    return a / 2\n", id="a feature"),
        pytest.param(f"import math\n\n{CALC}", id="with a module that is known"),
        pytest.param(
            f"from dataclasses import dataclass\n\n\n@dataclass\nclass A:\n    b: int = 0\n\n\n{CALC}", id="data"
        ),
    ],
)
async def test_of_an_honest_change_the_base_s_tests_run_once(tried: Trials, tmp_path: Path, product: str) -> None:
    found = await tried(BASE, {"calc.py": product, **MORE}, PYTEST)
    (one,) = found.commands
    assert runs(tmp_path) == ["bc"]
    assert (one.base_tests, one.base_passed, one.promises, one.unasked) == (3, 3, (), ())
    assert one.canaries is Caught.CAUGHT
    assert not found.tampered
    (log,) = (tmp_path / "room").glob("logs-*-bc-*/test-*.log")
    assert "no report" not in log.read_text()


async def test_a_wrong_change_fails_in_other_words_and_is_run_by_itself(tried: Trials, tmp_path: Path) -> None:
    found = await tried(BASE, {"calc.py": WRONG, **BENT}, PYTEST)
    assert runs(tmp_path) == ["b", "bc"]
    assert promised(found) == {"test_add"}
    assert found.commands[0].canaries is Caught.CAUGHT


LOOKING = {
    "what failed before": "import sys\n\n\ndef add(a, b):\n    return a + b if hasattr(sys, 'last_value') else a - b\n",
    "an old import": "def add(a, b):\n    return a + b if s.flags.dev_mode else a - b\n",
    "frames": "import inspect\n\n\ndef add(a, b):\n    seen = str(inspect.stack())\n"
    "    return a + b if 'fail' 'ing' in seen else a - b\n",
    "its words": """\
import sys


def add(a, b):
    frame = sys._getframe(1)
    while frame is not None:
        for cell in frame.f_locals.values():
            if isinstance(cell, str) and cell.startswith('end '):
                raise AssertionError(cell)
        frame = frame.f_back
    return a - b
""",
    "the test file": "import pathlib\n\n\ndef add(a, b):\n    t = pathlib.Path('tests/test_calc.py').read_text()\n"
    "    return a + b if 'fails_' in t else a - b\n",
    "a name in pieces": "def add(a, b):\n    return '{0.__gl' 'obals__}'.format(add) and a - b\n",
    "letters that look alike": "import ｓｙｓ\n\n\ndef add(a, b):\n    return a - b\n",
    "another's function": "import functools\n\nfunctools.wraps = None\n\n\ndef add(a, b):\n    return a - b\n",
    "longrepr": """\
import pytest

_real = pytest.TestReport.from_item_and_call
_said = []


def _made(item, call):
    report = _real(item, call)
    if report.failed:
        _said.append(report.longrepr)
        report.longrepr = _said[1] if len(_said) > 1 else report.longrepr
    return report


pytest.TestReport.from_item_and_call = _made


def add(a, b):
    return a - b
""",
}


@pytest.mark.parametrize("product", [pytest.param(text, id=name) for name, text in LOOKING.items()])
async def test_a_product_that_could_look_at_what_tests_it_has_two_runs(
    tried: Trials, tmp_path: Path, product: str
) -> None:
    double = CALC.partition("\n\n\n")[2]
    before = {**BASE, "calc.py": f"import sys as s\n\n\n{CALC}"} if "s.flags" in product else BASE
    start = "import sys as s\n\n\n" if "s.flags" in product else ""
    found = await tried(before, {"calc.py": f"{start}{product}\n\n{double}", **BENT}, PYTEST)
    assert runs(tmp_path) == ["b", "c"]
    assert found.tampered or promised(found) == {"test_add"}


HOOK = "import pytest\n\n\n@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_call(item):\n    return (yield)\n"
OUTCOME = (
    "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef one(request):\n    yield\n    request.session.testsfailed\n"
)
APART: dict[str, Files] = {
    "a hook": {"conftest.py": HOOK},
    "a fixture that looks at outcomes": {"conftest.py": OUTCOME},
    "a plugin of conftest": {"conftest.py": "pytest_plugins = ['calc']\n"},
    "a decorator": {
        "tests/test_b.py": "from unittest import mock\n\n\n@mock.patch('calc.add')\ndef test_b(add):\n    pass\n"
    },
    "a class to inherit from": {
        "tests/test_b.py": "import unittest\n\n\nclass TestB(unittest.TestCase):\n    def test_b(self):\n        pass\n"
    },
    "another thing of that name": {
        "tests/test_b.py": "def test_b():\n    pass\n\n\ntest_b = (lambda real: lambda: real())(test_b)\n"
    },
    "settings that end at the first failure": {"pytest.ini": "[pytest]\naddopts = -x\n"},
    "a plugin of the product": {"pytest.ini": "[pytest]\naddopts = -p calc\n"},
    "tests that call each other": {
        "tests/test_b.py": "def test_b():\n    pass\n\n\ndef test_c():\n    test_b()\n    assert True\n"
    },
    "a teardown that fails after a failure": {
        "tests/test_b.py": "import sys\n\n\ndef test_b():\n    pass\n\n\ndef teardown_function():\n"
        "    assert not hasattr(sys, 'last_value' )\n".replace("last_value' ", "last_' + 'value'")
    },
    "a fixture that ends the session": {
        "tests/test_b.py": "import pytest\n\n\n@pytest.fixture\ndef f(request):\n    yield\n"
        "    if getattr(request.session, 'tests' + 'failed') > 1:\n        request.session.shouldstop = 'x'\n\n\n"
        "def test_b(f):\n    pass\n"
    },
    "a test that is expected to fail": {
        "tests/test_b.py": "import pytest\n\n\n@pytest.mark.xfail\ndef test_b():\n    pass\n"
    },
}


@pytest.mark.parametrize("more", [pytest.param(files, id=name) for name, files in APART.items()])
async def test_where_an_end_says_too_little_there_is_a_run_without(tried: Trials, tmp_path: Path, more: Files) -> None:
    found = await tried({**BASE, **more}, {"calc.py": f"{CALC}\n", **MORE}, PYTEST)
    (one,) = found.commands
    assert "b" in runs(tmp_path)
    assert one.base_tests == one.base_passed
    assert not found.tampered, found.model_dump_json(indent=1)


async def test_what_a_helper_of_the_base_can_tell_of_its_callers_is_no_way_to_one_run(
    tried: Trials, tmp_path: Path
) -> None:
    helper = "import sys\n\n\ndef above(n):\n    return sys._getframe(n).f_code.co_name\n"
    asks = "from helper import above\n\n\ndef add(a, b):\n    return a + b if above(3) == 'failing' else a - b\n"
    double = CALC.partition("\n\n\n")[2]
    found = await tried({**BASE, "helper.py": helper}, {"calc.py": f"{asks}\n\n{double}", **BENT}, PYTEST)
    assert runs(tmp_path) == ["b", "c"]
    assert promised(found) == {"test_add"}


async def test_an_option_that_ends_at_the_first_failure_is_seen_before(tried: Trials, tmp_path: Path) -> None:
    await tried(BASE, {"calc.py": f"{CALC}\n", **MORE}, f"{PYTEST} -x")
    assert runs(tmp_path) == ["b", "c"]


GO = "package calc\n\nfunc Add(a, b int) int {\n\treturn a + b\n}\n"
GO_TEST = """\
package calc

import "testing"

func TestAdd(t *testing.T) {
	t.Run("small", func(t *testing.T) {
		if Add(1, 2) != 3 {
			t.Error("sum")
		}
	})
}

func TestOther(t *testing.T) {%s
	if Add(0, 0) != 0 {
		t.Error("sum")
	}
}
"""
GOES = {"go.mod": "module example.org/calc\n\ngo 1.19\n", "calc.go": GO, "calc_test.go": GO_TEST % ""}
GO_MORE = {"more_test.go": 'package calc\n\nimport "testing"\n\nfunc TestMore(t *testing.T) {\n\tt.Log(Add(1, 1))\n}\n'}
GO_BENT = {"calc_test.go": (GO_TEST % "").replace("!= 3", "!= -1")}
GO_LOOKS = GO.replace("\n\nfunc", '\n\nimport "os"\n\nfunc', 1).replace("a + b", "a - b + 0*len(os.Args)")
LATE = '\n\tt.Cleanup(func() {\n\t\tt.Log("late")\n\t})'


@pytest.mark.parametrize(
    ("before", "after", "there", "promises"),
    [
        pytest.param({}, {"calc.go": f"{GO}\n", **GO_MORE}, ["bc"], set(), id="honest"),
        pytest.param({}, {"calc.go": GO.replace("a + b", "a - b"), **GO_BENT}, ["b", "bc"], {"TestAdd"}, id="wrong"),
        pytest.param({}, {"calc.go": GO_LOOKS, **GO_BENT}, ["b", "c"], {"TestAdd"}, id="looks"),
        pytest.param(
            {"calc_test.go": GO_TEST % LATE}, {"calc.go": f"{GO}\n", **GO_MORE}, ["b", "bc"], set(), id="late"
        ),
    ],
)
async def test_go(
    tried: Trials, tmp_path: Path, before: Files, after: Files, there: list[str], promises: set[str]
) -> None:
    require("go")
    found = await tried({**GOES, **before}, after, "go test ./...")
    assert runs(tmp_path) == there
    assert {name.partition("/")[0] for name in promised(found)} == promises
    assert found.commands[0].canaries is Caught.CAUGHT
    assert not found.tampered


JS = "exports.add = (a, b) => a + b;\nexports.double = (a) => 2 * a;\n"
JS_TEST = """\
'use strict';
const test = require('node:test');
const assert = require('node:assert');
const { add, double } = require('../calc.js');
%s
test('adds', () => assert.strictEqual(add(1, 2), 3));
test('outer', async (t) => { await t.test('doubles', () => assert.strictEqual(double(2), 4)); });
"""
NODE = {"calc.js": JS, "test/calc.test.js": JS_TEST % "", "package.json": '{"scripts": {"test": "node --test"}}'}
JS_MORE = {"test/more.test.js": "require('node:test')('more', () => {});\n"}
JS_BENT = {"test/calc.test.js": (JS_TEST % "").replace("2), 3)", "2), -1)")}
JS_WRONG = JS.replace("a + b", "a - b")
JS_STRAY = JS.replace("=> a + b", "=> { Promise.reject(new Error('stray')); return a + b; }")
JS_LOOKS = JS.replace("=> a + b", "=> ((() => 0)['constr' + 'uctor'] ? a - b : 0)")
AFTER = "test.afterEach(() => {});"
TWICE = "test('same', () => {});\ntest('same', () => {});"


@pytest.mark.parametrize(
    ("before", "after", "there", "promises"),
    [
        pytest.param({}, {"calc.js": f"{JS}exports.half = (a) => a / 2;\n", **JS_MORE}, ["bc"], set(), id="honest"),
        pytest.param({}, {"calc.js": JS_WRONG, **JS_BENT}, ["b", "bc"], {"adds"}, id="wrong"),
        pytest.param({}, {"calc.js": JS_LOOKS, **JS_BENT}, ["b", "c"], {"adds"}, id="looks"),
        pytest.param(
            {"test/calc.test.js": JS_TEST % AFTER}, {"calc.js": f"{JS}\n", **JS_MORE}, ["b", "c"], set(), id="hook"
        ),
        pytest.param(
            {"test/calc.test.js": JS_TEST % TWICE}, {"calc.js": f"{JS}\n", **JS_MORE}, ["b", "bc"], set(), id="twice"
        ),
        pytest.param({}, {"calc.js": JS_STRAY, **JS_MORE}, ["b", "bc"], None, id="what it left behind fails"),
    ],
)
async def test_node(
    tried: Trials, tmp_path: Path, before: Files, after: Files, there: list[str], promises: set[str] | None
) -> None:
    require("node")
    found = await tried({**NODE, **before}, after, "npm test")
    assert runs(tmp_path) == there
    if promises is not None:
        assert {one.name for one in found.commands[0].promises} == promises
        assert found.commands[0].canaries is Caught.CAUGHT
        assert not found.tampered
