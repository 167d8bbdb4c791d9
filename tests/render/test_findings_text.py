"""What a phase alone found, as a terminal shows it: what matters first, with its place and the command to repeat it."""

from __future__ import annotations

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
from perdure.models.delivery.steps import Plan, Task
from perdure.render.findings_text import plan_text, report_lines, review_lines

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
