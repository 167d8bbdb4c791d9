"""Verdicts of green tests that were tried by experiment: what makes them red, what is told, what only counts."""

from __future__ import annotations

from typing import Any

import pytest

from activities.change_experiments import asks_for_removal
from perdure.adapters.checks.verdict import verdict_of
from perdure.models.checks.report import (
    CanaryOutcome,
    CommandExperiment,
    CommandResult,
    Experiment,
    Promise,
    TestCase,
    TestReport,
)
from perdure.models.checks.verdict_text import with_experiment
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.turn import Contract
from perdure.models.issue import ForgeIssue, IssueComment

HERE = (TestCase(name="tests/test_a.py::test_kept", outcome="passed"), TestCase(name="test_off", outcome="skipped"))


def report(more: dict[str, Any] | None = None, **of: Any) -> TestReport:
    one = CommandExperiment(
        name="unit", command="pytest", **{"base_tests": 2, "base_passed": 2, "canaries": CanaryOutcome.CAUGHT, **of}
    )
    found = Experiment(base="b" * 40, change="1" * 40, branch="main", commands=(one,), **(more or {}))
    result = CommandResult(name="unit", command="pytest", verdict="passed", exit_code=0, cases=HERE)
    return with_experiment(TestReport(commit="1" * 40, tree="2" * 40, base="main", commands=(result,)), found)


def test_green_in_all_experiments_is_green_and_says_so() -> None:
    found = verdict_of(report(proving=("tests/test_a.py::test_new",)))
    line = "2/2 of main's own tests pass on the change · 1 new test fails without it · canaries caught"
    assert (found.status, found.tampered, found.fingerprint) == (TestsStatus.GREEN, 0, "")
    assert (found.experiment, found.summary) == (line, f"1 green · {line}")


def test_what_could_not_be_asked_stands_behind_it() -> None:
    found = verdict_of(report(base_tests=None, canaries=CanaryOutcome.NOT_ASKED, unasked=("no names", "no canaries")))
    assert (found.experiment, found.summary) == ("", "1 green · not asked: no names; no canaries")
    assert verdict_of(report({"skipped": "nothing differs"}, base_tests=None)).summary.endswith(
        "not asked: nothing differs"
    )


@pytest.mark.parametrize(
    ("of", "words", "failures", "undo"),
    [
        (
            {"taken": ("tests/test_a.py::test_gone",)},
            "1 test of main fails and is gone: test_gone",
            ("tests/test_a.py::test_gone",),
            "`git show bbbbbbbbbbbb:FILE`",
        ),
        ({"taken": ("test_off", "test_x")}, "2 tests of main fail and are gone or skipped", ("test_off", "test_x"), ""),
        ({"contradicted": ("test_kept",)}, "1 test of main fails where nobody can write", ("test_kept",), "read-only"),
        ({"written": ("tests/data.json",)}, "files of the test side are written", ("tests/data.json",), "Nothing may"),
        ({"missed": ("zzq",)}, "unit: a canary was not reported", ("unit: a canary was not reported",), "Find it"),
    ],
    ids=["gone", "skipped too", "contradicted", "written", "canaries"],
)
def test_tests_that_pass_without_the_product_being_right_are_red_and_the_fix_is_told_what_to_undo(
    of: dict[str, Any], words: str, failures: tuple[str, ...], undo: str
) -> None:
    given = report(**of)
    found = verdict_of(given)
    assert (found.status, found.tampered, found.failures) == (TestsStatus.RED, 1, failures)
    assert found.summary.startswith(f"tampered: {words}")
    assert found.summary.endswith("; 1 green")
    assert undo in given.note


def test_two_verdicts_with_other_canaries_are_the_same_failure() -> None:
    one, two = (verdict_of(report(missed=(name,))) for name in ("zzabc", "zzxyz"))
    assert one.same_as(two)
    assert not one.same_as(verdict_of(report(taken=("test_gone",))))


def test_tests_that_go_with_what_the_request_wants_removed_are_promises_to_be_justified() -> None:
    kept = Promise(name="test_kept")
    found = verdict_of(report({"removes": True}, taken=("test_gone",), promises=(kept,)))
    assert (found.status, found.tampered, found.promises) == (TestsStatus.GREEN, 0, 2)
    assert verdict_of(report({"allowed": True}, taken=("test_gone",), promises=(kept,))).promises == 1


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        ("Remove the old parser", True),
        ("drop support for Python 2", True),
        ("We are deprecating sub", True),
        ("Get rid of sub", True),
        ("Add a drop-down list to the removable parts", False),
        ("Make sub undeletable", False),
    ],
)
def test_a_request_asks_for_a_removal_in_its_words_or_its_issue_s(words: str, asks: bool) -> None:
    config = RepositoryConfig.model_validate({"version": 1})
    ids = {"delivery": "d", "repository": "r", "base": "main", "base_sha": "0" * 40, "branch": "b"}
    said = Contract(request=words, config=config, **ids)
    asked = Contract(request="", config=config, issue=ForgeIssue(number=1, title="x", url="u", text=words), **ids)
    below = ForgeIssue(number=1, title="x", url="u", comments=(IssueComment(author="a", text=words),))
    commented = Contract(request="", config=config, issue=below, **ids)
    assert (asks_for_removal(said), asks_for_removal(asked)) == (asks, asks)
    assert not asks_for_removal(commented)  # by anybody who may comment
