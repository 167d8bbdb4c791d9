"""The base's tests on a change: what they cannot say, which are tried, and both versions of one that fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from experiment_fixtures import Files, Trials

from perdure.adapters.checks.experiment.commit_pair import find_unaffected_tests
from perdure.adapters.checks.experiment.outcomes import find_proving_tests
from perdure.adapters.checks.experiment.reduced_tests import defined_names, remove_definitions, versions_of_test
from perdure.adapters.checks.experiment.side_rules import SideRules
from perdure.adapters.checks.runners.go import Go
from perdure.adapters.checks.runners.pytest import Pytest
from perdure.adapters.checks.trees import CommitTree
from perdure.models.checks.report import CommandResult, TestCase, TestReport
from perdure.models.config.repository import TestCommand

PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider"

CALC = "def add(a, b):\n    return a + b\n"
GREEN = "from calc import add\n\ndef test_add():\n    assert add(1, 2) == 3\n"
RED = GREEN.replace("== 3", "== 4")
MORE = {"calc.py": CALC + "\ndef half(a):\n    return a / 2\n"}
PROOF = {**MORE, "tests/test_half.py": "from calc import half\n\ndef test_half():\n    assert half(4) == 2\n"}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"calc.py": CALC, "tests/test_calc.py": RED}, PROOF, "no test was green on the base: 1 of 1 fails: test_add"),
        ({"calc.py": "def add(\n", "tests/test_calc.py": GREEN}, PROOF, "no test was green on the base: "),
        ({"calc.py": CALC}, PROOF, "the base's tests did not run: no tests were collected"),
    ],
    ids=["red", "does not load", "no tests"],
)
async def test_a_base_that_promises_nothing_is_named_and_new_tests_still_prove_the_change(
    tried: Trials, before: Files, after: Files, words: str
) -> None:
    found = await tried({"conftest.py": "\n", **before}, after, PYTEST)
    (one,) = found.commands
    assert any(said.startswith(words) for said in found.unasked_reasons), found.unasked_reasons
    assert not found.is_tampered
    assert (one.promises, one.contradicted, one.taken) == ((), (), ())
    assert one.proving == ("tests/test_half.py::test_half",)


async def test_a_test_that_was_flaky_on_the_base_is_named_and_not_asked(tried: Trials) -> None:
    files = {"conftest.py": "\n", "calc.py": CALC, "tests/test_calc.py": GREEN, "tests/test_odd.py": RED}
    cases = tuple(
        TestCase(name=f"tests/{file}.py::test_add", file=f"tests/{file}.py", outcome="passed", flaky=file == "test_odd")
        for file in ("test_calc", "test_odd")
    )
    result = CommandResult(name="t0", command=PYTEST, verdict="passed", exit_code=0, cases=cases)
    known = TestReport(commit="0" * 40, tree="0" * 40, commands=(result,))
    found = await tried(files, PROOF, PYTEST, known=known)
    (one,) = found.commands
    assert found.unasked_reasons == ("flaky on the base: test_add",)
    assert (one.base_tests, one.base_passed, found.is_tampered) == (1, 1, False)


FILES = {
    "tests/test_a.py": "from tests.test_b import helper\n",
    "tests/test_b.py": "from test_c import more\n",
    "tests/test_c.py": "x = 1\n",
    "tests/test_d.py": "x = 1\n",
    "tests/test_e.py": "x = 1\n",
    "tests/conftest.py": "# as test_e has it\n",
    "a.py": "# test_d\n",
}


def spared(trials: Trials, *differing: str, command: str = "pytest", **more: str) -> list[str]:
    tree = CommitTree.from_commit(trials.repository, trials.commit({**FILES, **more}))
    rules = SideRules.from_tree(tree, [(TestCommand(name="t", command=command), Go() if "go" in command else Pytest())])
    return sorted(find_unaffected_tests(tree, rules, differing))


def test_what_a_differing_test_file_needs_stays_and_so_does_what_the_command_names(tried: Trials) -> None:
    assert spared(tried, "tests/test_a.py") == ["tests/test_d.py"]
    assert spared(tried, "tests/test_c.py") == ["tests/test_a.py", "tests/test_b.py", "tests/test_d.py"]
    assert spared(tried, "tests/test_a.py", command="pytest tests/test_d.py tests") == []


def test_where_more_than_test_files_differs_all_are_asked(tried: Trials) -> None:
    assert spared(tried, "tests/test_a.py", "tests/conftest.py") == []
    assert spared(tried) == []


def test_a_package_of_go_is_asked_as_a_whole(tried: Trials) -> None:
    files = dict.fromkeys(("p/a_test.go", "p/b_test.go", "q/c_test.go"), "package p\n")
    assert spared(tried, "p/a_test.go", command="go test ./...", **files) == ["q/c_test.go"]


CALC_OF_SPARED = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return 2 * a\n"


@pytest.mark.parametrize(("there", "proves"), [((), False), ((("example.com/words", "errored"),), True)])
def test_changed_tests_of_a_package_of_go_that_does_not_compile_without_the_change_are_unbuilt(
    there: tuple[tuple[str, str], ...], proves: bool
) -> None:
    def said(*cases: tuple[str, str]) -> CommandResult:
        found = tuple(TestCase(name=name, outcome=outcome) for name, outcome in cases)
        return CommandResult(name="t", command="go test ./...", verdict="passed", cases=found)

    test = ("example.com/words::TestSeries", "passed")
    found = find_proving_tests(said(test), said(test), said(*there), lambda key: proves)
    assert (bool(found.unbuilt), found.failing) == (proves, set())


@pytest.mark.parametrize("command", [f"{sys.executable} -m pytest -v", "python3 -m unittest discover -s tests -v"])
async def test_only_they_run_and_a_test_of_the_base_that_was_red_is_no_new_one(
    tried: Trials, tmp_path: Path, command: str
) -> None:
    unit = (
        "import unittest\n{}\nclass T(unittest.TestCase):\n    def test_{}(self):\n        self.assertEqual({}, {})\n"
    )
    plain = "{}\ndef test_{}():\n    assert {} == {}\n"
    form = unit if "unittest" in command else plain
    before = {
        "calc.py": CALC_OF_SPARED,
        "tests/test_add.py": form.format("from calc import add\n", "add", "add(1, 2)", 3),
        "tests/test_double.py": form.format("from calc import double\n", "double", "double(2)", 4),
        "conftest.py": "\n",
    }
    after = {
        "calc.py": CALC_OF_SPARED.replace("a - b", "a + b") + "\n\ndef half(a):\n    return a / 2\n",
        "tests/test_half.py": form.format("from calc import half\n", "half", "half(4)", 2),
        "tests/test_new.py": form.format("", "new", "1", 1),
    }
    found = await tried(before, after, command)
    (one,) = found.commands
    assert ([name.rpartition("::")[2] for name in one.proving or ()], one.unbuilt) == (["test_half"], ())
    (log,) = tmp_path.rglob("logs-*-d-*/test-*.log")
    assert "test_half" in log.read_text()
    assert "test_double" not in log.read_text()
    assert not found.is_tampered


PY = """\
import json
from calc import (
    add,
    double,
)
from other import *


@mark
def test_double():
    assert double(2) == 4


class TestAdd:
    def test_adds(self):
        assert add(1, 2) == 3

    def test_doubles(self):
        assert double(1) == 2
"""
GO = """\
package calc

import (
	"strings"
	"testing"
)

func TestAdd(t *testing.T) {
	if Add(1, 2) != 3 { // "}"
		t.Error("sum")
	}
}

func BenchmarkDouble(b *testing.B) {
	Double(strings.Count("a", "b"))
}
"""
JS = """\
import { test } from 'node:test';
import { add, double } from './calc.js';

test('adds', () => assert.equal(add(1, 2), 3));
test('doubles', () => {
  assert.equal(double(2), 4);
});
"""


def test_definitions_and_what_only_they_import_are_cut_from_python() -> None:
    assert defined_names("test_a.py", PY) == {"test_double", "TestAdd", "TestAdd.test_adds", "TestAdd.test_doubles"}
    left = remove_definitions("test_a.py", PY, {"TestAdd", "TestAdd.test_adds"})
    assert "double(" not in left
    assert "from calc import add\n" in left
    assert "from other import *" in left
    assert "assert add(1, 2) == 3" in left
    compile(left, "left", "exec")
    assert remove_definitions("test_a.py", "def broken(:\n", set()) == "def broken(:\n"


@pytest.mark.parametrize(
    ("path", "text", "kept", "gone", "stays"),
    [
        ("calc_test.go", GO, {"TestAdd"}, ("Double", "strings"), ('"testing"', 't.Error("sum")')),
        ("calc.test.js", JS, {"adds"}, ("double",), ("import { add } from './calc.js'", "add(1, 2)")),
    ],
)
def test_functions_and_calls_are_cut_from_go_and_javascript(
    path: str, text: str, kept: set[str], gone: tuple[str, ...], stays: tuple[str, ...]
) -> None:
    left = remove_definitions(path, text, kept)
    assert [word for word in gone if word in left] == []
    assert [word for word in stays if word not in left] == []
    assert remove_definitions(path, text, defined_names(path, text)) == text


PYTHON = """\
import pytest

class Other:
    def test_add(self):
        assert 1

class Calc:
    @pytest.mark.parametrize(
        "a", [1]
    )
    @slow
    def test_add(
        self, a
    ):
        assert add(a) == 3

        assert add(a)

    def test_added(self):
        pass
"""
NODE = """\
describe("calc", () => {
  test("adds two", () => {
    equal(add(1, 2), 3);
  });
  test("adds", () => {});
});
"""
GO_OF_VERSIONS = (
    "package a\n\nfunc TestAdd(t *testing.T) {\n\tif add(1) != 3 {\n\t}\n}\n\nfunc TestSub(t *testing.T) {}\n"
)


@pytest.mark.parametrize(
    ("text", "name", "begins", "ends"),
    [
        (PYTHON, "tests/test_calc.py::Calc::test_add[1]", "    @slow", "        assert add(a)"),
        (PYTHON, "tests/test_calc.py::Other::test_add", "    def test_add(self):", "        assert 1"),
        (NODE, "calc > adds two", '  test("adds two"', "  });"),
        (NODE, "adds", '  test("adds", () => {});', '  test("adds", () => {});'),
        (GO_OF_VERSIONS, "TestAdd/negative", "func TestAdd(", "}"),
    ],
)
def test_a_test_is_found_by_its_name_with_its_whole_block(text: str, name: str, begins: str, ends: str) -> None:
    before, after = versions_of_test(name, text, text.replace("3", "4"))
    lines = before.splitlines()
    assert lines[0].startswith(begins)
    assert lines[-1] == ends
    assert after == before.replace("3", "4")


def test_where_one_version_does_not_show_it_both_files_are_shown_and_all_is_cut() -> None:
    assert versions_of_test("t.py::test_new", PYTHON, "def test_new(): ...\n") == (PYTHON, "def test_new(): ...\n")
    long = "def test_a():\n" + "    x = 1\n" * 10_000
    assert max(map(len, versions_of_test("t.py::test_a", long, long))) <= 4000
