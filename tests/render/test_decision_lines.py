"""What a delivery that waits says to a person, and what of a change is shown; pure functions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from perdure.models.delivery.decisions import Gate, PendingDecision, Question, QuestionKind
from perdure.models.delivery.result import DeliveryResult, Status, StepRecord
from perdure.models.delivery.state import Progress
from perdure.render.decision_lines import (
    commands_for_decision,
    diffstat_lines,
    explain_invalid_answer,
    pending_lines,
    pending_summary,
    resolve_answer,
    resolve_choice,
)
from perdure.render.progress_lines import REWOUND, ProgressReporter, closing_lines, waiting_lines

NOON = datetime(2031, 5, 1, 12, tzinfo=UTC)
WHICH = Question(text="Which?", kind=QuestionKind.CHOICE, choices=("left", "right", "read\x1b[31m"), why="a fork")


def asked(gate: Gate = Gate.PLAN, of: str = "1a2b3c4d", **more: Any) -> PendingDecision:
    options = more.pop("options", ("approve", "reject", "edit_plan"))
    return PendingDecision(
        gate=gate,
        target=of,
        summary=more.pop("words", "approve the plan: Add sub"),
        since=NOON,
        options=options,
        **more,
    )


def progress(*steps: str, **more: Any) -> Progress:
    records = [StepRecord(step=name.rstrip("…"), status="running" if name.endswith("…") else "done") for name in steps]
    return Progress(delivery_id="d", run_id="r", repository="/r", status="running", steps=records, **more)


def test_a_gate_is_told_with_every_command_that_decides_it() -> None:
    assert pending_lines(asked(expires=NOON), "calc sub") == [
        "! waits for you: approve the plan: Add sub",
        "             without a decision it ends at 2031-05-01 12:00 UTC",
        "             perdure approve 'calc sub'",
        "             perdure reject 'calc sub' --note \"…\"",
        "             perdure approve 'calc sub' --edit",
    ]


def test_a_question_is_told_with_its_reason_and_choices_and_moves_no_cursor() -> None:
    assert pending_lines(asked(Gate.QUESTION, options=("answer",), question=WHICH), "d") == [
        "! waits for you: Which?",
        "             it matters because: a fork",
        "             1  left",
        "             2  right",
        "             3  read",
        "             perdure answer d --choice 1",
    ]


@pytest.mark.parametrize(
    ("kind", "typed"), [(QuestionKind.TEXT, 'perdure answer d "…"'), (QuestionKind.YES_NO, "perdure answer d yes")]
)
def test_a_question_is_answered_as_it_wants_to_be(kind: QuestionKind, typed: str) -> None:
    question = Question(text="Well?", kind=kind)
    assert commands_for_decision(asked(Gate.QUESTION, options=("answer",), question=question), "d") == [typed]


@pytest.mark.parametrize(
    ("typed", "means"),
    [("1", "left"), ("2", "right"), ("L", "left"), ("r", "r"), ("0", "0"), ("4", "4"), ("", ""), ("right", "right")],
)
def test_a_choice_is_named_by_its_number_or_by_what_only_it_begins_with(typed: str, means: str) -> None:
    assert resolve_choice(WHICH, typed) == means


COUNTS = Question(text="How many?", kind=QuestionKind.CHOICE, choices=("2", "4", "8"))
WELL = Question(text="Well?", kind=QuestionKind.YES_NO)


@pytest.mark.parametrize(
    ("question", "typed", "means"),
    [
        (WHICH, "2", "right"),
        (WHICH, " LEFT ", "left"),
        (COUNTS, "2", "2"),
        (COUNTS, "1", "2"),
        (WELL, "Y", "yes"),
        (WELL, "1", "1"),
        (Question(text="Name?"), "2", "2"),
    ],
)
def test_an_answer_in_words_means_the_choice_that_reads_so_before_its_number(
    question: Question, typed: str, means: str
) -> None:
    assert resolve_answer(question, typed) == means


def test_what_is_no_answer_is_refused_with_every_choice_and_its_number() -> None:
    assert explain_invalid_answer(WHICH, "up", "d") == (
        "'up' is none of the 3 choices",
        "perdure answer d --choice 1 (left), 2 (right) or 3 (read)",
    )
    assert explain_invalid_answer(WELL, "perhaps", "d") == ("'perhaps' is neither yes nor no", "perdure answer d yes")
    assert (
        explain_invalid_answer(Question(text="Name?"), "perhaps", "d")
        == explain_invalid_answer(WHICH, "left", "d")
        == ("", "")
    )


def test_a_pull_request_is_told_with_what_shows_it_and_a_question_names_itself_once() -> None:
    assert "             perdure diff d" in pending_lines(asked(Gate.PULL_REQUEST), "d")
    put = asked(Gate.QUESTION, of="plan-1-1", words="question: Which?", options=("answer",), question=WHICH)
    assert pending_summary(put) == "question plan-1-1: Which?"


def test_one_that_waits_and_is_held_says_both() -> None:
    told = waiting_lines(progress("plan", asked=asked(), waiting="approve the plan: Add sub", held="held: let me look"))
    assert told[0].startswith("! waits for you")
    assert told[-2:] == ["! held: let me look", "             perdure resume d"]


def test_a_waiting_plan_is_told_whole_and_only_once_and_nothing_is_taken_back_after_the_decision() -> None:
    teller = ProgressReporter()
    told = teller.new_lines(progress("prepare", "classify", "plan", asked=asked(), waiting="approve the plan: Add sub"))
    assert [line[:12].strip() for line in told] == ["✓ prepare", "✓ plan", "! waits for", "", "", ""]
    assert (
        teller.new_lines(progress("prepare", "classify", "plan", asked=asked(), waiting="approve the plan: Add sub"))
        == []
    )
    assert teller.current_line(progress("prepare", "classify", "plan", asked=asked()), (), clock_s=0.0) is None
    assert teller.new_lines(progress("prepare", "classify", "plan")) == []
    assert teller.new_lines(progress("prepare", "classify", "plan", "implement…")) == []
    assert REWOUND not in teller.last_lines(progress("prepare", "classify", "plan", "implement").steps)


def test_the_next_plan_is_asked_for_again() -> None:
    teller = ProgressReporter()
    teller.new_lines(progress("plan", asked=asked()))
    assert "! waits for you: approve the plan: Add sub" in teller.new_lines(
        progress("plan", "plan", asked=asked(of="b-2"))
    )


def test_a_question_in_the_middle_of_a_step_does_not_end_it() -> None:
    told = ProgressReporter().new_lines(
        progress("prepare", "plan…", asked=asked(Gate.QUESTION, options=("answer",), question=WHICH))
    )
    assert [line[:11].strip() for line in told][:2] == ["✓ prepare", "! waits for"]


def test_a_held_delivery_says_how_it_goes_on() -> None:
    told = ProgressReporter().new_lines(progress("prepare", held="held: why", waiting="held: why"))
    assert told == ["! held: why", "             perdure resume d"]


def test_words_that_came_too_late_are_named_at_the_end() -> None:
    result = DeliveryResult(delivery_id="d", run_id="r", status=Status.COMPLETED, repository="/r", unread=("a\nb",))
    assert "  unread   1 message was not read: a b" in closing_lines(result)


def test_a_change_is_counted_file_by_file() -> None:
    patch = (
        "diff --git a/calc.py b/calc.py\nindex 1..2 100644\n--- a/calc.py\n+++ b/calc.py\n"
        "@@ -1 +1,2 @@\n-old\n+new\n+--- new\n"
        "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+x\n"
        "diff --git a/p.png b/p.png\nBinary files differ\n"
    )
    assert diffstat_lines(patch, 2) == ["  +2 −1        calc.py", "  +1 −0        x", "  … 1 more files"]
