"""Pending decisions, findings of a phase, lists and amounts, as a terminal shows them; pure functions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.cli.session import only_waiting_id
from perdure.client import ListEntry
from perdure.models.checks.report import (
    BaseComparison,
    ChangedTest,
    CommandResult,
    Finding,
    FindingRule,
    Findings,
    Review,
    ReviewIssue,
    Severity,
    Tampering,
    TamperingHit,
    TestCase,
    TestReport,
)
from perdure.models.delivery.decisions import Gate, PendingDecision, Question, QuestionKind
from perdure.models.delivery.result import DeliveryResult, Status, StepRecord
from perdure.models.delivery.state import Progress
from perdure.models.delivery.steps import Plan, Task
from perdure.models.errors import BadInput
from perdure.render.decision_lines import (
    commands_for_decision,
    diffstat_lines,
    explain_invalid_answer,
    pending_lines,
    pending_summary,
    resolve_answer,
    resolve_choice,
)
from perdure.render.findings_text import plan_text, report_lines, review_lines
from perdure.render.lists import delivery_rows, entry_json, waiting_delivery_rows
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


ESCAPES = "\x1b[2J\x1b]0;owned\x07\u202e"

PLAN = Plan(
    title="Add sub",
    problem="There is no sub.",
    solution="Write it.",
    relevant_files=["calc.py"],
    tasks=[Task(title="Write sub", details="Beside add.", files=["calc.py"])],
    validation=["sub(3, 2) is 1"],
)


def report(*commands: CommandResult, **more: object) -> TestReport:
    return TestReport.model_validate({"commit": "c" * 40, "tree": "t" * 40, "base": "main", **more}).model_copy(
        update={"commands": commands}
    )


def command(name: str = "unit", verdict: str = "failed", **more: object) -> CommandResult:
    told = {"name": name, "command": "pytest -q", "verdict": verdict, "exit_code": 0 if verdict == "passed" else 1}
    return CommandResult.model_validate(told | more)


def issue(severity: Severity, title: str, **more: object) -> ReviewIssue:
    told = {"title": title, "description": "", "severity": severity, "file": "", "line": None, "suggestion": ""}
    return ReviewIssue.model_validate(told | more)


def test_a_plan_is_markdown_and_one_in_somebodys_own_words_stays_as_it_is() -> None:
    text = plan_text(PLAN.model_dump_json())
    assert text.startswith("# Add sub\n\n## Problem\n\nThere is no sub.\n\n## Solution\n")
    assert "### 1. Write sub\n\nBeside add.\n\n- `calc.py`\n" in text
    assert text.endswith("## How to check\n\n- sub(3, 2) is 1\n")
    assert plan_text(text) == text, "what was printed can be given back"
    assert "\n\n\n" not in plan_text(PLAN.model_copy(update={"tasks": [], "validation": []}).model_dump_json())


def test_a_failing_test_is_told_with_its_message_and_the_command_to_repeat_it() -> None:
    failed = TestCase(
        name="test_adds", file="tests/test_calc.py", outcome="failed", message="assert 6 == 5", command="pytest -k adds"
    )
    fine = TestCase(name="test_subs", outcome="passed")
    assert report_lines(report(command(since=BaseComparison.NEW, cases=(failed, fine)))) == [
        "tests of ccccccc, compared with main",
        "✗ unit: failed, exit code 1, new, 1 passed, 1 failed, 0.0 s",
        "  ✗ tests/test_calc.py: test_adds",
        "      assert 6 == 5",
        "      again: pytest -k adds",
        "    again: pytest -q",
    ]


def test_what_failed_before_too_is_named_without_its_message() -> None:
    known = TestCase(name="test_old", outcome="failed", message="secret of old", known=True)
    told = report_lines(report(command(since=BaseComparison.KNOWN, cases=(known,))))
    assert told[1:3] == [
        "! unit: failed, exit code 1, as on the base, 1 failed, 0.0 s",
        "  – test_old (as on the base)",
    ]
    assert "secret of old" not in "\n".join(told)


def test_a_command_without_a_report_shows_its_last_lines_and_one_that_decides_nothing_says_so() -> None:
    tail = "\n".join(f"line {number}" for number in range(30))
    told = report_lines(report(command("lint", tail=tail, required=False, reason="exit code 1")))
    assert told[1] == "! lint: failed, exit code 1, does not decide, 0.0 s"
    assert told[2:4] == ["    … 18 more lines", "    line 18"]
    assert told[-2:] == ["    line 29", "    again: pytest -q"]


def test_what_passed_takes_one_line_and_what_was_fixed_is_named() -> None:
    cases = (TestCase(name="a", outcome="passed"), TestCase(name="b", outcome="skipped"))
    told = report_lines(report(command(verdict="passed", tail="noise", cases=cases), fixed=("test_old",)))
    assert told[1:] == ["✓ unit: passed, 1 passed, 1 skipped, 0.0 s", "✓ failed on main and pass now: test_old"]


def test_tampering_comes_first_unless_it_was_asked_for() -> None:
    hit = TamperingHit(rule=Tampering.SKIPPED, title="test_adds is skipped", file="t.py", line=3, evidence="@skip")
    told = report_lines(report(command(verdict="passed"), tampering=(hit,)))
    assert told[1:3] == ["✗ skipped: test_adds is skipped  t.py:3", "    @skip"]
    assert report_lines(report(tampering=(hit,), allowed=True))[1].startswith("–")


def test_a_thousand_failures_are_counted_and_not_all_told() -> None:
    cases = tuple(TestCase(name=f"test_{number}", outcome="failed") for number in range(1000))
    told = report_lines(report(command(cases=cases)))
    assert "    … 980 more fail" in told
    assert len(told) < 40


def test_issues_are_told_by_severity_with_their_place_and_the_engines_own_among_them() -> None:
    review = Review(
        summary="Nearly.",
        issues=[
            issue(Severity.SKIPPABLE, "a name"),
            issue(Severity.BLOCKER, "no docstring", file="calc.py", line=5, suggestion="Write one."),
        ],
    )
    secret = Finding(rule=FindingRule.SECRET, severity=Severity.BLOCKER, title="a key", file="k.env", line=1)
    changed = ChangedTest(name="test_adds", file="t.py", line=7)
    found = Findings(base="b", head="h", findings=(secret,), changed_tests=(changed,))
    assert review_lines(review, found) == [
        "review: 2 blockers, 1 skippable",
        "  Nearly.",
        "✗ blocker, engine: a key  k.env:1",
        "✗ blocker, reviewer: no docstring  calc.py:5",
        "    suggestion: Write one.",
        "– skippable, reviewer: a name",
        "– tests that check something else now",
        "    t.py:7  test_adds",
    ]
    assert review_lines(None, None) == ["review: 0 blockers"]


def test_nothing_that_others_wrote_moves_the_cursor() -> None:
    case = TestCase(name=ESCAPES, file=ESCAPES, outcome="failed", message=ESCAPES, command=ESCAPES)
    dirty = command(name=ESCAPES, tail=ESCAPES, cases=(case,), command=ESCAPES, reason=ESCAPES)
    hit = TamperingHit(rule=Tampering.GONE, title=ESCAPES, file=ESCAPES, evidence=ESCAPES)
    lines = report_lines(report(dirty, command(tail=ESCAPES), tampering=(hit,), fixed=(ESCAPES,), base=ESCAPES))
    one = issue(Severity.BLOCKER, ESCAPES, description=ESCAPES, file=ESCAPES, suggestion=ESCAPES)
    test = ChangedTest(name=ESCAPES, file=ESCAPES)
    lines += review_lines(Review(summary=ESCAPES, issues=[one]), Findings(base="", head="", changed_tests=(test,)))
    task = Task(title=ESCAPES, details=ESCAPES, files=[ESCAPES])
    written = Plan(
        title=ESCAPES, problem=ESCAPES, solution=ESCAPES, relevant_files=[ESCAPES], tasks=[task], validation=[ESCAPES]
    )
    text = "\n".join(lines) + plan_text(written.model_dump_json()) + plan_text(ESCAPES)
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


PLAN_OF_LISTS = PendingDecision(gate=Gate.PLAN, target="1a", summary="approve the plan: Add sub", since=NOON)
QUESTION = PendingDecision(
    gate=Gate.QUESTION,
    target="plan-1-1",
    summary="question: Which?",
    since=NOON - timedelta(days=2),
    question=Question(text="Which?"),
    options=("answer",),
)


def one(
    id: str, status: str = "waiting", asked: PendingDecision | None = None, closed: datetime | None = None
) -> ListEntry:
    return ListEntry(id, "r", status, NOON - timedelta(days=3), closed, "/r", "build", "", 0.25, asked)


def test_the_list_says_what_each_delivery_waits_for() -> None:
    rows = delivery_rows([one("a", asked=PLAN_OF_LISTS), one("b"), one("c", "delivered", closed=NOON)], None, NOON)
    assert [row.partition("  3 d ago")[0].split(maxsplit=1)[1].strip() for row in rows[1:]] == [
        "waiting (plan)",
        "waiting ▰▰▱▱▱ build",
        "delivered",
    ]
    rows = waiting_delivery_rows([one("a", asked=QUESTION), one("b", asked=PLAN_OF_LISTS), one("c")], None, NOON)
    assert [row.split() for row in rows[1:]] == [
        ["a", "question", "2", "d", "ago", "Which?"],
        ["b", "plan", "just", "now", "approve", "the", "plan:", "Add", "sub"],
        ["c", "held,", "or", "a", "host", "3", "d", "ago", "/r"],
    ]


@pytest.mark.parametrize("width", [60, 80, 140, None])
def test_a_list_has_titles_with_whole_ids_behind_them(width: int | None) -> None:
    alike = [
        replace(one("calc-add-subtraction-of-fractions-" + end), title="Add\x1b[2J subtraction " * 9)
        for end in ("3f09", "3f10")
    ]
    for rows in (delivery_rows(alike, width, NOON), waiting_delivery_rows(alike, width, NOON)):
        assert rows[0].startswith("title  ")
        assert [row.split("…")[1].split()[0] for row in rows[1:]] == [entry.delivery_id for entry in alike]
        assert all(row.startswith("Add subtraction") for row in rows[1:])
        assert width != 140 or max(map(len, rows)) <= width


def test_one_that_has_ended_waits_for_nobody() -> None:
    assert not one("a", closed=NOON).waiting
    assert one("a").waiting
    assert one("a", "running", asked=PLAN_OF_LISTS).waiting, "where the server knows no status of ours"


def test_a_program_reads_the_same_and_what_is_asked() -> None:
    told: dict[str, Any] = entry_json(one("a", asked=PLAN_OF_LISTS))
    assert (told["delivery_id"], told["started"], told["closed"]) == ("a", "2031-04-28T12:00:00+00:00", None)
    assert told["asked"]["of"] == "1a"
    assert entry_json(one("a"))["asked"] is None


def test_waiting_means_the_only_one_that_a_decision_can_be_meant_for() -> None:
    both = [one("a", asked=PLAN_OF_LISTS), one("b", asked=QUESTION), one("c")]
    assert only_waiting_id(both, "approve") == "a"
    assert only_waiting_id(both, "answer") == "b"
    with pytest.raises(BadInput, match="no delivery waits for that"):
        only_waiting_id(both, "add_budget")
    with pytest.raises(BadInput, match="2 deliveries wait: name one") as caught:
        only_waiting_id([one("a", asked=PLAN_OF_LISTS), one("d", asked=PLAN_OF_LISTS)], "approve")
    assert caught.value.where == "a (plan), d (plan)"


@pytest.mark.parametrize(
    ("limit", "option"), [("time", "--time 1h"), ("tokens", "--tokens 500000"), ("usd", "--add 5"), ("", "--add 5")]
)
def test_more_is_offered_of_the_limit_that_is_reached(limit: str, option: str) -> None:
    waiting = asked(Gate.BUDGET, options=("add_budget", "reject"), limit=limit)
    assert commands_for_decision(waiting, "d")[0] == f"perdure budget d {option}"
