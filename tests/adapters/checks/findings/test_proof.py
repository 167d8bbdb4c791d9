"""A change whose new tests prove nothing is a finding, as bad as the repository says."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.adapters.checks.findings.engine_findings import find_unproven_change
from perdure.models.checks.report import CommandExperiment, Experiment, Severity, TestReport
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.turn import Contract


def contract(**tests: Any) -> Contract:
    config = RepositoryConfig.model_validate({"version": 1, "tests": tests})
    return Contract(
        delivery="d", repository="r", request="x", base="main", base_sha="0" * 40, branch="perdure/d", config=config
    )


def report(touched: tuple[str, ...] = ("tests/test_x.py",), **of: Any) -> TestReport:
    one = CommandExperiment(name="unit", command="pytest", **{"base_tests": 2, "base_passed": 2, **of})
    tried = Experiment(base="0" * 40, change="1" * 40, branch="main", touched=touched, commands=(one,))
    return TestReport(commit="1" * 40, tree="2" * 40, experiment=tried)


@pytest.mark.parametrize("kind", ["bug", "feature"])
def test_tests_that_pass_without_the_change_too_prove_nothing(kind: str) -> None:
    (one,) = find_unproven_change(contract(), report(proving=()), kind)
    assert (one.severity, one.title) == (Severity.TECH_DEBT, "the new tests prove nothing")
    assert "passes on main as well" in one.description


def test_a_change_without_any_test_has_nothing_that_would_tell_if_it_were_undone() -> None:
    (one,) = find_unproven_change(contract(), report(touched=(), proving=None), "feature")
    assert one.title == "no test comes with the change"


def test_the_repository_says_how_bad_it_is() -> None:
    (one,) = find_unproven_change(contract(new_tests_must_fail_before="blocker"), report(proving=()), "bug")
    assert one.severity is Severity.BLOCKER
    assert find_unproven_change(contract(new_tests_must_fail_before="off"), report(proving=()), "bug") == []


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (report(proving=("tests/test_x.py::test_new",)), "bug"),
        (report(proving=()), "chore"),
        (report(proving=()), ""),
        (report(proving=None), "bug"),
        (report(touched=(), proving=None, base_tests=None), "feature"),
        (None, "bug"),
    ],
    ids=["proved", "a chore", "of no kind", "not asked", "no test is known by name", "no report"],
)
def test_nothing_is_found_where_something_proves_it_or_nobody_could_be_asked(
    given: TestReport | None, kind: str
) -> None:
    assert find_unproven_change(contract(), given, kind) == []
