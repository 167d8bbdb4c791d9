"""The fixes before one, as it is told of them: from commits and artifacts, bounded, the newest ones first to stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.adapters.worker.turn.documents import TRIES_BYTES
from perdure.adapters.worker.turn.materials import material_texts
from perdure.models.base import PublishedModel, UserInputModel
from perdure.models.checks.report import CommandResult, Review, ReviewIssue, Severity, TestCase, TestReport
from perdure.models.delivery.turn import FixAttempt
from perdure.models.phases import Step
from perdure.models.rules.gates import TRIES_KEPT, fix_attempts_material, with_fix_attempt
from tests.repositories import git, make_target


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    return make_target(tmp_path / "calc.git")


@pytest.fixture
def vault(tmp_path: Path, origin: Path) -> Vault:
    return Vault.open_or_create(Home(tmp_path / "home"), str(origin))


def commits(vault: Vault, origin: Path, *contents: str) -> list[str]:
    """The base's commit, and one more for each content of `calc.py`."""
    work = origin.with_name("calc.git-work")
    made = [git(work, "rev-parse", "HEAD")]
    for content in contents:
        (work / "calc.py").write_text(content)
        git(work, "commit", "-qam", "fix")
        made.append(git(work, "rev-parse", "HEAD"))
    git(work, "push", "-q", str(origin), "HEAD:main")
    vault.fetch()
    return made


def kept(vault: Vault, model: PublishedModel | UserInputModel) -> str:
    return vault.put_artifact("d", model.model_dump_json().encode())


def red(vault: Vault, **failed: str) -> str:
    cases = tuple(TestCase(name=name, outcome="failed", message=why) for name, why in failed.items())
    command = CommandResult(name="unit", command="pytest", verdict="failed", cases=(*cases,))
    return kept(vault, TestReport(commit="c", tree="t", commands=(command,)))


def told(vault: Vault, tries: tuple[FixAttempt, ...], **now: str) -> str:
    return material_texts(vault, "d", {**fix_attempts_material(tries), **now})["tries"]


def test_each_try_says_what_it_changed_and_what_failed_before_and_after_it(vault: Vault, origin: Path) -> None:
    _, base, first = commits(vault, origin, "x = 1\n", "x = 1\ny = 2\n")
    one = red(vault, test_a="assert 1 == 2", test_b="")
    two = red(vault, test_b="", test_c="NameError")
    tries = with_fix_attempt((), Step.FIX_TESTS, 1, (base, first), {"report": one})
    tries = with_fix_attempt(
        tries, Step.FIX_TESTS, 2, (first, first), {"report": two, "words": "a person's, told otherwise"}
    )
    text = told(vault, tries, report=red(vault, test_c="NameError"))
    assert text.splitlines() == [
        "fix_tests 1, to mend: test_a (assert 1 == 2), test_b",
        "  changed: calc.py (+1 -0)",
        "  after it, still there: test_b",
        "  after it, new: test_c (NameError)",
        "  after it, mended: test_a",
        "fix_tests 2, to mend: test_b, test_c (NameError)",
        "  changed: nothing",
        "  after it, still there: test_c (NameError)",
        "  after it, mended: test_b",
    ]


def test_a_fix_of_a_review_that_broke_a_test_says_so_and_a_round_that_ended_green_does(
    vault: Vault, origin: Path
) -> None:
    base, first = commits(vault, origin, "def add(a, b):\n    return b\n")
    issue = ReviewIssue(
        title="no docstring",
        description="",
        severity=Severity.BLOCKER,
        file="calc.py",
        line=5,
        suggestion="",
    )
    review = kept(vault, Review(summary="", issues=[issue, issue.model_copy(update={"severity": Severity.SKIPPABLE})]))
    tries = with_fix_attempt((), Step.FIX_REVIEW, 1, (base, first), {"review": review})
    report = red(vault, test_a="")
    assert told(vault, tries, report=report).splitlines()[-1] == "  after it these failed: test_a"
    tries = with_fix_attempt(tries, Step.FIX_TESTS, 1, (first, base), {"report": report})
    lines = told(vault, tries, review=review).splitlines()
    assert lines[0] == "fix_review 1, to mend: no docstring (calc.py:5)"
    assert lines[-1] == "  after it: no test failed any more"


def test_tries_are_bounded_in_number_and_in_bytes_and_the_newest_ones_stay(vault: Vault, origin: Path) -> None:
    [base] = commits(vault, origin)
    tries: tuple[FixAttempt, ...] = ()
    for number in range(1, TRIES_KEPT + 4):
        failed = {f"test_{number}_{n}_{'x' * 300}": "why" * 300 for n in range(40)}
        tries = with_fix_attempt(tries, Step.FIX_TESTS, number, (base, base), {"report": red(vault, **failed)})
    assert len(tries) == TRIES_KEPT
    text = told(vault, tries, report=red(vault, test_z=""))
    assert len(text.encode()) <= TRIES_BYTES + 100
    assert "fixes before these are not shown)" in text.splitlines()[0]
    assert f"fix_tests {TRIES_KEPT + 3}, to mend" in text


def test_the_first_fix_is_told_of_none(vault: Vault) -> None:
    assert fix_attempts_material(()) == {}
    assert "tries" not in material_texts(vault, "d", {"report": red(vault, test_a="")})
