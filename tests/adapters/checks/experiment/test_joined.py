"""One run for what was two: the base's tests on the change, made to fail at their ends; and where that does not do."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from experiment_fixtures import Files, Trials
from trick_bases import CALC

from perdure.models.checks.report import CanaryOutcome, Experiment

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
GREEN = ("tests/test_calc.py::test_add[1]", "tests/test_calc.py::TestDouble::test_double")
"""Tests of the base by the names in its report."""
WRONG = CALC.replace("a + b", "a - b")
MORE = {"tests/test_more.py": "from calc import add\n\n\ndef test_more():\n    assert add(0, 0) == 0\n"}
BENT = {"tests/test_calc.py": TESTS.replace("add(number, 2) == 2 + number", "add(number, 2) == number - 2")}


def runs(root: Path) -> list[str]:
    """The runs there were of the base's tests on the change, and of those that must fail."""
    found = {match[1] for path in (root / "room").glob("logs-*") if (match := re.match(r"logs-1-(\w+)-\d", path.name))}
    return sorted(found & {"b", "c", "bc"})


def promised(found: Experiment) -> set[str]:
    return {name.name.partition("::")[2].partition("[")[0] for name in found.commands[0].promises}


async def test_of_an_honest_change_the_base_s_tests_run_once(tried: Trials, tmp_path: Path) -> None:
    found = await tried(BASE, {"calc.py": f"{CALC}\n\ndef half(a):\n    return a / 2\n", **MORE}, PYTEST)
    (one,) = found.commands
    assert runs(tmp_path) == ["bc"]
    assert (one.base_tests, one.base_passed, one.promises, one.unasked) == (3, 3, (), ())
    assert one.canaries is CanaryOutcome.CAUGHT
    assert not found.is_tampered
    (log,) = (tmp_path / "room").glob("logs-*-bc-*/test-*.log")
    assert "no report" not in log.read_text()


@pytest.mark.parametrize(
    "product",
    [
        pytest.param(f"import math\n\n{CALC}", id="with a module that is known"),
        pytest.param(
            f"from dataclasses import dataclass\n\n\n@dataclass\nclass A:\n    b: int = 0\n\n\n{CALC}", id="data"
        ),
    ],
)
def test_one_run_may_do_for_an_honest_change(tried: Trials, product: str) -> None:
    assert tried.may_be_one(BASE, {"calc.py": product, **MORE}, PYTEST, *GREEN)


async def test_a_wrong_change_fails_in_other_words_and_is_run_by_itself(tried: Trials, tmp_path: Path) -> None:
    found = await tried(BASE, {"calc.py": WRONG, **BENT}, PYTEST)
    assert runs(tmp_path) == ["b", "bc"]
    assert promised(found) == {"test_add"}
    assert found.commands[0].canaries is CanaryOutcome.CAUGHT


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
def test_a_product_that_could_look_at_what_tests_it_has_two_runs(tried: Trials, product: str) -> None:
    before, change = looking(product)
    assert not tried.may_be_one(before, change, PYTEST, *GREEN)


@pytest.mark.parametrize("name", ["its words", "longrepr"])
async def test_one_that_does_look_gains_nothing_by_it(tried: Trials, tmp_path: Path, name: str) -> None:
    found = await tried(*looking(LOOKING[name]), PYTEST)
    assert runs(tmp_path) == ["b", "c"]
    assert found.is_tampered or promised(found) == {"test_add"}


def looking(product: str) -> tuple[Files, Files]:
    """The base, and the change that brings this product."""
    start = "import sys as s\n\n\n" if "s.flags" in product else ""
    double = CALC.partition("\n\n\n")[2]
    return {**BASE, "calc.py": f"{start}{CALC}"}, {"calc.py": f"{start}{product}\n\n{double}", **BENT}


HOOK = "import pytest\n\n\n@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_call(item):\n    return (yield)\n"
OUTCOME = (
    "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef one(request):\n    yield\n    request.session.testsfailed\n"
)
KNOWN_APART: dict[str, Files] = {
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
}
APART: dict[str, Files] = {
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


@pytest.mark.parametrize("more", [pytest.param(files, id=name) for name, files in KNOWN_APART.items()])
def test_a_test_side_that_says_too_little_of_ends_is_known_before(tried: Trials, more: Files) -> None:
    change = {"calc.py": f"{CALC}\n", **MORE}
    for green in ("tests/test_b.py::test_b", "tests/test_b.py::TestB::test_b"):
        assert not tried.may_be_one({**BASE, **more}, change, PYTEST, *GREEN, green)


@pytest.mark.parametrize(
    "more",
    [pytest.param(files, id=name, marks=[pytest.mark.slow] * (n > 1)) for n, (name, files) in enumerate(APART.items())],
)
async def test_where_an_end_says_too_little_there_is_a_run_without(tried: Trials, tmp_path: Path, more: Files) -> None:
    found = await tried({**BASE, **more}, {"calc.py": f"{CALC}\n", **MORE}, PYTEST)
    (one,) = found.commands
    assert "b" in runs(tmp_path)
    assert one.base_tests == one.base_passed
    assert not found.is_tampered, found.model_dump_json(indent=1)


def test_what_a_helper_of_the_base_can_tell_of_its_callers_is_no_way_to_one_run(tried: Trials) -> None:
    helper = "import sys\n\n\ndef above(n):\n    return sys._getframe(n).f_code.co_name\n"
    asks = "from helper import above\n\n\ndef add(a, b):\n    return a + b if above(3) == 'failing' else a - b\n"
    before, change = looking(asks)
    assert not tried.may_be_one({**before, "helper.py": helper}, change, PYTEST, *GREEN)


def test_an_option_that_ends_at_the_first_failure_is_seen_before(tried: Trials) -> None:
    assert not tried.may_be_one(BASE, {"calc.py": f"{CALC}\n", **MORE}, f"{PYTEST} -x", *GREEN)
