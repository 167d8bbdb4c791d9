"""Tests of the base that are gone though they would pass: a finding, unless they have a twin or that was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from changes import Work

from perdure.adapters.checks.findings.engine_findings import find_lost_tests
from perdure.models.checks.report import CommandExperiment, Experiment, Finding, FindingRule, Severity, TestReport

TESTS = "def test_a():\n    assert f(1) == 2\n\n\ndef test_b():\n    assert f(2) == 3\n"
LESS = "def test_a():\n    assert f(1) == 2\n"
NAME = "tests/test_x.py::test_b"


def found(tmp_path: Path, files: dict[str, str | None], allowed: bool = False) -> list[Finding]:
    work = Work(tmp_path / "work", {"app.py": "x = 1\n", "tests/test_x.py": TESTS})
    change = work.commit(files)
    tried = Experiment(
        base=work.base,
        change=change,
        branch="main",
        touched=tuple(files),
        allowed=allowed,
        commands=(CommandExperiment(name="unit", command="pytest", base_tests=2, base_passed=2, lost=(NAME,)),),
    )
    return find_lost_tests(work.repository, TestReport(commit=change, tree="0" * 40, experiment=tried))


def test_a_test_that_is_gone_though_it_would_pass_is_tech_debt(tmp_path: Path) -> None:
    (one,) = found(tmp_path, {"tests/test_x.py": LESS})
    assert (one.rule, one.severity) == (FindingRule.LOST_TEST, Severity.TECH_DEBT)
    assert one.title == "1 test of main is gone: test_b"


@pytest.mark.parametrize(
    "files",
    [
        {"tests/test_x.py": TESTS.replace("test_b", "test_two")},
        {"tests/test_x.py": LESS, "tests/test_y.py": "def test_b():\n    assert f(2) == 3\n"},
    ],
    ids=["renamed", "moved"],
)
def test_a_renamed_or_moved_test_is_not_lost(tmp_path: Path, files: dict[str, str | None]) -> None:
    assert found(tmp_path, files) == []


def test_where_the_request_is_about_tests_nothing_is_lost(tmp_path: Path) -> None:
    assert found(tmp_path, {"tests/test_x.py": LESS}, allowed=True) == []
