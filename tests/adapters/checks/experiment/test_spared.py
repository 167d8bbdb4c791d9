"""New and changed tests are tried on the base alone where nothing else of the test side differs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from experiment_fixtures import Trials

from perdure.adapters.checks.experiment.commit_pair import find_unaffected_tests
from perdure.adapters.checks.experiment.outcomes import find_proving_tests
from perdure.adapters.checks.experiment.side_rules import SideRules
from perdure.adapters.checks.runners.go import Go
from perdure.adapters.checks.runners.pytest import Pytest
from perdure.adapters.checks.trees import CommitTree
from perdure.models.checks.report import CommandResult, TestCase
from perdure.models.config.repository import TestCommand

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


CALC = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return 2 * a\n"


@pytest.mark.parametrize(("there", "proves"), [((), False), ((("example.com/words", "errored"),), True)])
def test_tests_of_a_package_of_go_that_does_not_compile_without_the_change_prove_it(
    there: tuple[tuple[str, str], ...], proves: bool
) -> None:
    def said(*cases: tuple[str, str]) -> CommandResult:
        found = tuple(TestCase(name=name, outcome=outcome) for name, outcome in cases)
        return CommandResult(name="t", command="go test ./...", verdict="passed", cases=found)

    test = ("example.com/words::TestSeries", "passed")
    assert bool(find_proving_tests(said(test), said(test), said(*there), {"words_test.go"})) is proves


@pytest.mark.parametrize("command", [f"{sys.executable} -m pytest -v", "python3 -m unittest discover -s tests -v"])
async def test_only_they_run_and_a_test_of_the_base_that_was_red_proves_something_too(
    tried: Trials, tmp_path: Path, command: str
) -> None:
    unit = (
        "import unittest\n{}\nclass T(unittest.TestCase):\n    def test_{}(self):\n        self.assertEqual({}, {})\n"
    )
    plain = "{}\ndef test_{}():\n    assert {} == {}\n"
    form = unit if "unittest" in command else plain
    before = {
        "calc.py": CALC,
        "tests/test_add.py": form.format("from calc import add\n", "add", "add(1, 2)", 3),
        "tests/test_double.py": form.format("from calc import double\n", "double", "double(2)", 4),
        "conftest.py": "\n",
    }
    after = {
        "calc.py": CALC.replace("a - b", "a + b") + "\n\ndef half(a):\n    return a / 2\n",
        "tests/test_half.py": form.format("from calc import half\n", "half", "half(4)", 2),
        "tests/test_new.py": form.format("", "new", "1", 1),
    }
    found = await tried(before, after, command)
    (one,) = found.commands
    assert one.proving is not None
    assert {name.rpartition("::")[2] for name in one.proving} == {"test_add", "test_half"}
    (log,) = tmp_path.rglob("logs-*-d-*/test-*.log")
    assert "test_half" in log.read_text()
    assert "test_double" not in log.read_text()
    assert not found.is_tampered
