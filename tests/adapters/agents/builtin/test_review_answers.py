"""What becomes of a review: places are checked against the diff, and no mistake turns a blocker into a pass."""

from __future__ import annotations

from typing import Any

import pytest
from replies import OPENING, finished, issue, reply, review, text

from perdure.adapters.agents.builtin.conversation import Continue, StepFinished, decide_next
from perdure.adapters.agents.builtin.review import ReviewedChange
from perdure.models.checks.report import Review
from perdure.models.delivery.turn import Ending
from perdure.models.phases import Step


def again(said: str, change: ReviewedChange | None = None, first: str | None = None) -> tuple[str, StepFinished]:
    """What a review is told about its first answer, and what becomes of its second one."""
    asked = decide_next(Step.REVIEW, reply(text(said if first is None else first)), [OPENING], change)
    assert isinstance(asked, Continue)
    transcript = [OPENING, reply(text(said)).message, asked.user_message]
    done = decide_next(Step.REVIEW, reply(text(said)), transcript, change)
    assert isinstance(done, StepFinished)
    return asked.user_message["content"][0]["text"], done


def issues(done: StepFinished) -> list[Any]:
    assert done.document is not None
    return Review.model_validate_json(done.document).issues


def test_an_issue_that_is_said_twice_with_two_severities_is_asked_about_and_then_counts_as_the_worse() -> None:
    told, done = again(review(issue("skippable"), issue("blocker", title="T "), issue("tech_debt", title="other")))
    assert "more than once" in told
    assert done.outcome.data == {"blocker": 1, "tech_debt": 1, "skippable": 0}
    assert len(issues(done)) == 2


CHANGE = ReviewedChange({"a.py": ((1, 10), (30, 40)), "gone.py": (), "huge.txt": None})


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("a.py", 1),
        ("a.py", 40),
        ("./a.py", 30),
        ("b/a.py", None),
        ("a.py", 0),
        ("", 99),
        ("gone.py", None),
        ("huge.txt", 7),
    ],
)
def test_a_place_in_the_diff_is_taken(file: str, line: int | None) -> None:
    done = decide_next(Step.REVIEW, reply(text(review(issue("blocker", file=file, line=line)))), [OPENING], CHANGE)
    assert isinstance(done, StepFinished)
    [kept] = issues(done)
    assert kept.description == "d"
    assert kept.file in ("", "a.py", "gone.py", "huge.txt")
    assert kept.line == ((line or None) if file else None)


@pytest.mark.parametrize(
    ("file", "line", "why"),
    [
        ("a.py", 20, "a.py:20 has no such line in the diff, which shows 1-10, 30-40"),
        ("a.py", -3, "has no such line"),
        ("b.py", 1, "b.py:1 is not in the diff"),
        ("gone.py", 3, "has no lines after the change"),
        ("../etc/passwd", None, "is not in the diff"),
    ],
)
def test_a_wrong_place_is_asked_about_once_and_then_dropped_and_never_the_issue(
    file: str, line: int | None, why: str
) -> None:
    right = issue("tech_debt", title="right", line=2)
    told, done = again(review(issue("blocker", file=file, line=line), right), CHANGE)
    assert why in told
    assert "Files in the diff: a.py, gone.py, huge.txt." in told
    assert "right" not in told
    assert (done.outcome.ending, done.outcome.data["blocker"]) == (Ending.DONE, 1)
    wrong, other = issues(done)
    assert (wrong.file, wrong.line, wrong.severity) == ("", None, "blocker")
    assert wrong.description.startswith("d\n")
    assert "is not in the diff" in wrong.description
    assert (other.file, other.line, other.description) == ("a.py", 2, "d")


def test_one_re_ask_is_all_there_is_whatever_was_wrong() -> None:
    _, done = again(review(issue("blocker", file="b.py")), CHANGE, first="LGTM")
    assert (done.outcome.ending, done.outcome.data["blocker"]) == (Ending.DONE, 1)
    _, done = again("LGTM", CHANGE, first=review(issue("blocker", file="b.py")))
    assert done.outcome.ending is Ending.INVALID


def test_a_hundred_wrong_places_are_told_in_few_words() -> None:
    many = [issue("skippable", title=f"t{n} " + "x" * 500, file="y" * 5000, line=n) for n in range(100)]
    told, _ = again(review(*many), ReviewedChange({f"f{n}.py": ((1, 2),) for n in range(500)}))
    assert len(told) < 10_000
    assert "and 80 more" in told
    assert "and 470 more" in told


def test_a_review_of_an_unknown_change_is_taken_at_its_word() -> None:
    [kept] = issues(finished(Step.REVIEW, reply(text(review(issue("blocker", file="b.py", line=7))))))
    assert (kept.file, kept.line) == ("b.py", 7)


def test_an_answer_of_an_older_screenplay_has_no_screenshots_and_is_valid() -> None:
    [kept] = issues(finished(Step.REVIEW, reply(text(review(issue("blocker"))))))
    assert kept.screenshots == []
