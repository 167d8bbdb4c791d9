"""Examples of every shape of a delivery, as it really travels."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from perdure.models.budget.ledger import Spend, Usage
from perdure.models.checks.report import (
    BaseComparison,
    CommandResult,
    Finding,
    FindingRule,
    Findings,
    Review,
    ReviewIssue,
    Severity,
    TestCase,
    TestReport,
)
from perdure.models.delivery.decisions import Gate, PendingDecision
from perdure.models.delivery.result import (
    DeliveryResult,
    PullRequest,
    Reason,
    ReviewResult,
    ReviewStatus,
    Status,
    StepRecord,
    TestsResult,
    TestsStatus,
    UsageResult,
)
from perdure.models.delivery.state import Progress
from perdure.models.delivery.steps import Plan, Task
from perdure.models.events import Event, EventType
from perdure.models.notice import WebhookMessage, decision_options
from perdure.models.rules.inbox import DeliveryAttached

BASE, HEAD = "9f1c2d3e4b5a69788796a5b4c3d2e1f009182736", "4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f70"
PLAN_SHA = "b2c1d0e9f8a7968574635241302f1e0db2c1d0e9f8a7968574635241302f1e0d"
REPOSITORY = "https://github.com/me/durations"
DELIVERY = "durations-issue-12"
RUN = "0199c0de-0000-7000-8000-000000000001"
STEPS = (
    StepRecord(
        step="prepare",
        status="done",
        started_at="2026-01-05T09:00:00Z",
        duration_s=4.2,
        summary="setup 17 s · 12 green",
    ),
    StepRecord(
        step="plan",
        status="done",
        started_at="2026-01-05T09:00:05Z",
        duration_s=31.0,
        turns=4,
        summary="feature · 2 tasks, 2 files",
        cost_usd=0.08,
    ),
)

Examples = list[dict[str, Any]]


def request_examples() -> Examples:
    """Return examples of a delivery's request: from text, from an issue, and one that only tests a branch."""
    return [
        {"repository": REPOSITORY, "request": "Make parse_duration accept '1h30m'"},
        {"repository": REPOSITORY, "issue": "12", "gates": ["plan"], "budget_usd": 5.0},
        {"repository": "/srv/git/durations.git", "branch": "topic", "phases": ["test"], "fix": False},
    ]


def approval_examples() -> Examples:
    return [{}, {"of": PLAN_SHA[:12], "gate": "plan", "note": "start with the parser", "by": "me"}]


def rejection_examples() -> Examples:
    return [{"of": PLAN_SHA[:12], "note": "keep the old format working"}]


def plan_edit_examples() -> Examples:
    return [{"of": PLAN_SHA[:12], "plan": PLAN_SHA[::-1], "title": "Accept compound durations"}]


def answer_examples() -> Examples:
    return [{"answer": "yes"}, {"of": "implement-1-7", "answer": "seconds"}]


def budget_examples() -> Examples:
    return [{"usd": 5}, {"id": "raise-1", "tokens": 500_000, "time": "1h30m"}]


def user_message_examples() -> Examples:
    return [{"text": "The parser also has to accept upper case."}, {"id": "note-1", "text": "Leave the README alone."}]


def hold_examples() -> Examples:
    return [{}, {"note": "release day"}]


def rewind_examples() -> Examples:
    return [{"from_run": RUN, "to": "implement:4", "text": "keep the old name", "id": "rewind-1"}]


def resume_examples() -> Examples:
    return [{}]


def signalled_decision_examples() -> Examples:
    return [{"update": "approve", "said": {"of": PLAN_SHA[:12]}}]


def result_examples() -> Examples:
    """Return examples of a result: one of a delivery that was delivered, one of a delivery whose tests were red."""
    delivered = DeliveryResult(
        delivery_id=DELIVERY,
        run_id=RUN,
        status=Status.DELIVERED,
        repository=REPOSITORY,
        base="main",
        base_sha=BASE,
        branch=f"perdure/{DELIVERY}",
        head_sha=HEAD,
        pull_request=PullRequest(number=13, url=f"{REPOSITORY}/pull/13", title="Accept compound durations (#12)"),
        plan=f"artifact:sha256:{PLAN_SHA}",
        tests=TestsResult(status=TestsStatus.GREEN, passed=14, failed=0, new_failures=0, known_failures=0, fixed=0),
        review=ReviewResult(status=ReviewStatus.CLEAN, skippable=1),
        steps=STEPS,
        usage=UsageResult(input_tokens=41_000, output_tokens=3_900, cost_usd=0.21),
    )
    red = TestsResult(status=TestsStatus.RED, passed=11, failed=3, new_failures=3, known_failures=0, fixed=0)
    not_delivered = delivered.model_copy(
        update={
            "status": Status.NOT_DELIVERED,
            "reason": Reason.TESTS_RED,
            "message": "not converging: two fixes in a row left the same failures",
            "pull_request": None,
            "tests": red,
            "next": (f"perdure retry {DELIVERY}",),
        }
    )
    return [delivered.model_dump(mode="json"), not_delivered.model_dump(mode="json")]


def attached_examples() -> Examples:
    """Return an example of the answer to update `attach`."""
    attached = DeliveryAttached(
        delivery_id=DELIVERY, run_id=RUN, repository=REPOSITORY, request="#12 Accept compound durations", issue=12
    )
    return [attached.model_dump(mode="json")]


PLAN_GATE = PendingDecision(
    gate=Gate.PLAN,
    target=PLAN_SHA[:12],
    summary="approve the plan: Accept compound durations",
    since=datetime(2026, 1, 5, 9, 0, 36, tzinfo=UTC),
    options=("approve", "reject", "edit_plan"),
)


def notice_examples() -> Examples:
    """Return an example of a webhook's body: a delivery that waits for its plan's approval."""
    waiting = WebhookMessage(
        text=f"*{DELIVERY}* waits for you: approve the plan: Accept compound durations",
        event="waiting",
        id="0199c0de-0000-7000-8000-000000000002",
        at=PLAN_GATE.since,
        delivery_id=DELIVERY,
        run_id=RUN,
        repository=REPOSITORY,
        request="#12 Accept compound durations",
        phase="plan",
        summary=PLAN_GATE.summary,
        gate=PLAN_GATE.gate,
        target=PLAN_GATE.target,
        since=PLAN_GATE.since,
        decisions=decision_options(PLAN_GATE, DELIVERY),
        cost_usd=0.08,
    )
    return [waiting.model_dump(mode="json")]


def event_examples() -> Examples:
    """Return examples of events: a turn, test results, and the start of a backlog."""
    turn = {"summary": "turn 2 · edit src/export.py", "checkpoint": HEAD, "cost_usd": 0.021, "spent_usd": 0.094}
    tests = {"status": "green", "passed": 12, "failed": 0, "failures": [], "summary": "12 green"}
    about = {"delivery": DELIVERY, "backlog": "night", "item": "export"}
    samples = [
        Event(
            offset=8,
            time="2026-11-23T08:00:00.123Z",
            type=EventType.ACTIVITY,
            step="implement",
            attempt=1,
            turn=2,
            data=turn,
            **about,
        ),
        Event(
            offset=41,
            time="2026-11-23T08:00:00.123Z",
            type=EventType.TEST_RESULT,
            step="run_tests",
            attempt=2,
            data=tests,
            **about,
        ),
        Event(
            offset=0,
            time="2026-11-23T08:00:00.123Z",
            delivery=None,
            backlog="night",
            type=EventType.STARTED,
            data={"repository": REPOSITORY},
        ),
    ]
    return [event.model_dump(mode="json") for event in samples]


def delivery_progress_examples() -> Examples:
    """Return an example of a delivery's progress: it waits for its plan's approval."""
    return [
        Progress(
            delivery_id=DELIVERY,
            run_id=RUN,
            repository=REPOSITORY,
            status="waiting",
            phase="plan",
            base="main",
            base_sha=BASE,
            branch=f"perdure/{DELIVERY}",
            budget_usd=5.0,
            steps=list(STEPS),
            usage=Usage(input_tokens=9_000, output_tokens=800, cost_usd=0.08),
            spend=Spend(usd=0.08),
            waiting=PLAN_GATE.summary,
            pending_decision=PLAN_GATE,
        ).model_dump(mode="json")
    ]


def plan_examples() -> Examples:
    """Return an example of a plan."""
    task = Task(title="Parse several units", details="Sum number and unit pairs.", files=["durations.py"])
    plan = Plan(
        title="Accept compound durations",
        problem="'1h30m' is refused.",
        solution="Read pairs of number and unit until the text ends.",
        relevant_files=["durations.py"],
        tasks=[task],
        validation=["parse_duration('1h30m') is 5400"],
    )
    return [plan.model_dump(mode="json")]


def test_report_examples() -> Examples:
    """Return an example of a test report: one command with a failed and a passed case."""
    case = TestCase(name="test_parses_hours", file="tests/test_durations.py", outcome="failed", message="assert 1 == 2")
    command = CommandResult(
        name="unit",
        command="python -m pytest",
        verdict="failed",
        since=BaseComparison.NEW,
        exit_code=1,
        duration_s=1.3,
        cases=(case, TestCase(name="test_parses_seconds", file="tests/test_durations.py", outcome="passed")),
    )
    report = TestReport(commit=HEAD, tree=BASE[::-1], base="main", note="1 new failure", commands=(command,))
    return [report.model_dump(mode="json")]


def review_examples() -> Examples:
    """Return an example of a review with one blocker."""
    issue = ReviewIssue(
        title="Negative numbers are accepted",
        description="'-1h' becomes minus an hour.",
        severity=Severity.BLOCKER,
        file="durations.py",
        line=14,
        suggestion="refuse a sign",
    )
    return [Review(summary="One blocker.", issues=[issue]).model_dump(mode="json")]


def finding_examples() -> Examples:
    """Return an example of the findings about a change: one protected path was changed."""
    finding = Finding(
        rule=FindingRule.PROTECTED_PATH,
        severity=Severity.TECH_DEBT,
        title="a workflow of the build server was changed",
        file=".ci/run",
    )
    return [Findings(base=BASE, head=HEAD, findings=(finding,), files=2, added=48, deleted=7).model_dump(mode="json")]
