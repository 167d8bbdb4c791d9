"""A delivery that has everything a report can show, made of the real models."""

from __future__ import annotations

import hashlib
import struct
import zlib
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from perdure.models.checks.report import (
    BaseComparison,
    ChangedTest,
    CommandResult,
    Finding,
    FindingRule,
    Findings,
    Review,
    ReviewIssue,
    Screenshot,
    Screenshots,
    Severity,
    Tampering,
    TamperingHit,
    TestCase,
    TestReport,
)
from perdure.models.delivery.result import (
    PullRequest,
    Receipt,
    ReviewResult,
    ReviewStatus,
    StepRecord,
    TestsResult,
    TestsStatus,
    UsageResult,
)
from perdure.models.delivery.steps import Plan, Task
from perdure.render.report.facts import DeliveryReport, ReportTurn, ReportWait, WorkerDeath

START = datetime(2026, 3, 2, 9, 30, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


@cache  # a quarter of a second for the two of a sample
def png(width: int = 640, height: int = 400, shade: int = 90) -> bytes:
    """A real picture: a gradient with a lighter band, as small as it can be."""
    rows = b"".join(
        b"\0" + bytes(v for x in range(width) for v in (shade + x * 100 // width, 120, 235 if 60 < y < 100 else 170))
        for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


STEPS: tuple[tuple[str, int, float, float, str, int, str, str, float], ...] = (
    # step, attempt, start, seconds, status, turns, commit, summary, cost
    ("prepare", 1, 0, 8.2, "done", 0, "", "uv sync · 41 tests green on main", 0.0),
    ("classify", 1, 8.4, 2.1, "done", 1, "", "feature", 0.01),
    ("plan", 1, 10.6, 17.4, "done", 3, "", "feature · 3 tasks, 2 files", 0.06),
    ("implement", 1, 28.2, 70.0, "done", 6, "", "Accept compound durations", 0.21),
    ("commit", 1, 98.3, 0.4, "done", 0, "91c3e0a1f2", "+48 −7 in 2 files", 0.0),
    ("run_tests", 1, 98.8, 12.0, "failed", 0, "", "2 of 44 fail: test_negative, test_zero", 0.0),
    ("fix_tests", 1, 111.0, 25.5, "done", 3, "", "Keep the sign", 0.09),
    ("commit", 1, 136.6, 0.3, "done", 0, "0d77a1e3aa", "+6 −2 in 1 file", 0.0),
    ("run_tests", 2, 137.0, 12.2, "done", 0, "", "44 green", 0.0),
    ("review", 1, 149.4, 21.0, "failed", 2, "", "1 blocker, 1 tech debt", 0.05),
    ("fix_review", 1, 170.6, 18.0, "done", 2, "", "Refuse an empty unit", 0.07),
    ("commit", 1, 188.7, 0.3, "done", 0, "5aa90f3b1c", "+4 −1 in 1 file", 0.0),
    ("run_tests", 3, 189.1, 12.4, "done", 0, "", "44 green", 0.0),
    ("review", 2, 201.7, 14.0, "done", 2, "", "1 tech debt", 0.04),
    ("open_pull_request", 1, 216.0, 64.0, "done", 0, "", "pull request #12", 0.0),
)


def steps() -> tuple[StepRecord, ...]:
    return tuple(
        StepRecord(
            step=step, attempt=attempt, status=status, started_at=stamp(start), duration_s=seconds, turns=turns,
            commit=commit or None, summary=summary, cost_usd=cost,
        )
        for step, attempt, start, seconds, status, turns, commit, summary, cost in STEPS
    )  # fmt: skip


def turns() -> tuple[ReportTurn, ...]:
    made = []
    for step, attempt, start, seconds, _, number, _, summary, cost in STEPS:
        for turn in range(1, number + 1):
            made.append(
                ReportTurn(
                    step=step, attempt=attempt, turn=turn, checkpoint=f"{len(made):040x}",
                    summary=f"turn {turn} · " + (summary if turn == number else "edit src/durations.py, pytest -q"),
                    started=at(start + (turn - 1) * seconds / number), seconds=seconds / number,
                    tries=2 if (step, turn) == ("implement", 4) else 1, died=(step, turn) == ("implement", 4),
                    prompt_tokens=9000 + 400 * turn, output_tokens=420, cost_usd=cost / number,
                    transcript='  I read the parser first.\n  ▸ bash {"command": "pytest -q"}\n    44 passed in 0.31s',
                )
            )  # fmt: skip
    return tuple(made)


def tested() -> TestReport:
    red = TestCase(
        name="test_negative", file="tests/test_parse.py", outcome="failed", duration_s=0.012,
        message="    def test_negative():\n>       assert parse('-1h') == -3600\nE       assert 3600 == -3600",
        command="python -m pytest tests/test_parse.py::test_negative",
    )  # fmt: skip
    known = TestCase(
        name="test_locale", file="tests/test_format.py", outcome="failed", message="KeyError: 'de_DE'", known=True
    )
    flaky = TestCase(name="test_clock", file="tests/test_clock.py", outcome="passed", message="1.02 > 1.0", flaky=True)
    skipped = TestCase(name="test_windows", file="tests/test_os.py", outcome="skipped", message="needs Windows")
    green = [TestCase(name=f"test_case_{n}", file="tests/test_parse.py", outcome="passed") for n in range(43)]
    return TestReport(
        commit="5aa90f3b1c" + "0" * 30,
        tree="c0ffee1" + "0" * 33,
        base="main",
        note="1 new failure, 1 failed before on main too: test_locale",
        fixed=("test_overflow",),
        tampering=(
            TamperingHit(
                rule=Tampering.SKIPPED, title="test_zero is skipped now", file="tests/test_parse.py", line=14,
                evidence="- def test_zero():\n+ @pytest.mark.skip\n+ def test_zero():",
            ),
        ),
        allowed=True,
        commands=(
            CommandResult(
                name="unit", command="uv run pytest -q", verdict="failed", since=BaseComparison.NEW, exit_code=1,
                duration_s=12.4, tail="2 failed, 43 passed", cases=(red, known, flaky, *green, skipped),
            ),
            CommandResult(name="lint", command="uv run ruff check .", verdict="passed", exit_code=0, required=False),
        ),
    )  # fmt: skip


def plan() -> Plan:
    return Plan(
        title="Accept compound durations",
        problem="parse_duration only knows one unit: '1h30m' is refused, although people write it everywhere.",
        solution="Split the words into pairs of number and unit, and add them up. A unit may appear once.",
        relevant_files=["src/durations.py", "tests/test_parse.py"],
        tasks=[
            Task(title="Read pairs", details="A regular expression for all pairs.", files=["src/durations.py"]),
            Task(title="Refuse doubles", details="'1h2h' is a mistake.", files=["src/durations.py"]),
            Task(title="Test both", details="Also signs and zero.", files=["tests/test_parse.py"]),
        ],
        validation=["parse_duration('1h30m') == 5400", "parse_duration('1h2h') is refused"],
    )


def review() -> Review:
    return Review(
        summary="The parser does what the plan says. One corner is left.",
        issues=[
            ReviewIssue(
                title="The regular expression is compiled for every call", description="Hot path in the importer.",
                severity=Severity.TECH_DEBT, file="src/durations.py", line=31, suggestion="Compile it once.",
                screenshots=["/settings"],
            ),
            ReviewIssue(
                title="A comment repeats the code", description="", severity=Severity.SKIPPABLE,
                file="src/durations.py", line=12, suggestion="",
            ),
        ],
    )  # fmt: skip


def findings() -> Findings:
    return Findings(
        base="4be1c02" + "0" * 33,
        head="5aa90f3" + "0" * 33,
        findings=(
            Finding(
                rule=FindingRule.SECRET, severity=Severity.BLOCKER, title="What looks like a key was added",
                description="A string of 40 random characters.", file="src/settings.py", line=3,
                suggestion="Read it from the environment.",
            ),
        ),
        changed_tests=(
            ChangedTest(name="test_round", file="tests/test_parse.py", line=20, before="== 59", after="== 60"),
        ),
        files=2,
        added=58,
        deleted=10,
    )  # fmt: skip


def sample(**changes: Any) -> DeliveryReport:
    """A finished delivery with everything; `changes` go over it."""
    first, second = png(), png(640, 900, 20)
    names = [hashlib.sha256(data).hexdigest() for data in (first, second)]
    shots = Screenshots(
        commit="5aa90f3b1c" + "0" * 30,
        pictures=(
            Screenshot(page="/", artifact=names[0], width=640, height=400),
            Screenshot(page="/settings", artifact=names[1], width=640, height=900),
            Screenshot(page="/slow", note="it did not answer within 15 s"),
        ),
    )
    records = steps()
    whole: dict[str, Any] = {
        "delivery_id": "durations-parse-3f9c",
        "run_id": "0198f1de-0000-7000-8000-000000000001",
        "status": "delivered",
        "repository": "https://github.com/me/durations",
        "request": "Make parse_duration accept '1h30m'.\n\nIt is refused today.",
        "base": "main",
        "base_sha": "4be1c02" + "0" * 33,
        "branch": "perdure/durations-parse-3f9c",
        "head_sha": "5aa90f3b1c" + "0" * 30,
        "pull_request": PullRequest(
            number=12, url="https://github.com/me/durations/pull/12", title="feat: accept compound durations"
        ),
        "kind": "feature",
        "title": "Accept compound durations",
        "started": START,
        "ended": at(280),
        "taken": at(400),
        "budget_usd": 5.0,
        "usage": UsageResult(
            input_tokens=9400, cache_read_tokens=108100, cache_write_tokens=6200, output_tokens=5300, cost_usd=0.53
        ),
        "receipt": Receipt(worker_deaths=1, turns_redone=1),
        "tests": TestsResult(
            status=TestsStatus.GREEN, tree_sha="c0ffee1" + "0" * 33, passed=44, failed=0, new_failures=0,
            known_failures=1, fixed=1, flaky=1,
        ),
        "review": ReviewResult(status=ReviewStatus.CLEAN, blockers=0, tech_debt=1, skippable=1),
        "steps": records,
        "began": tuple(at(step[2]) for step in STEPS),
        "turns": turns(),
        "deaths": (WorkerDeath(at=at(66), activity="implement"),),
        "waits": (ReportWait(since=at(220), until=at(275), reason="GitHub does not answer; next try at 09:34"),),
        "plan": plan(),
        "test_report": tested(),
        "reviewed": review(),
        "findings": findings(),
        "screenshots": shots,
        "pictures": dict(zip(names, (first, second), strict=True)),
    }  # fmt: skip
    return DeliveryReport(**(whole | changes))
