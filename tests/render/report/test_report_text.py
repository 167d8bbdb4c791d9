"""The report as text: complete, bounded, and without anything that moves a cursor."""

from __future__ import annotations

from typing import Any

import pytest
from report_samples import at, sample

from perdure.cli.look.report import target_of, write_page
from perdure.models.checks.report import CommandResult, TestCase, TestReport
from perdure.models.checks.verdict_text import review_points
from perdure.models.delivery import result_text
from perdure.models.delivery.result import (
    AttemptResult,
    ReviewResult,
    ReviewStatus,
    StepRecord,
    TestsStatus,
    UsageResult,
)
from perdure.models.delivery.result import TestsResult as ResultOfTests
from perdure.models.errors import BadInput
from perdure.render.formatting import visible_line, visible_text
from perdure.render.report import view
from perdure.render.report.text import lines_of


def told(**changes: Any) -> str:
    return "\n".join(lines_of(sample(**changes)))


def test_the_text_has_every_part_in_its_order() -> None:
    text = told(unread=("the plan: the host is down",))
    sections = ["Timeline", "Request", "Plan", "Tests", "Review", "Screenshots", "Cost by step", "Not read"]
    places = [text.index(f"\n{name}\n") for name in sections]
    assert places == sorted(places)
    for words in (
        "durations-parse-3f9c  delivered  Accept compound durations",
        "#12 https://github.com/me/durations/pull/12",
        "$0.53 of $5.00 · 129k tokens, 87 % from cache",
        "1 worker death · 1 turn redone · 0 replies paid twice · green on tree c0ffee1",
        "↻ a worker died in implement, 1m 06s after the start; done again",
        "– waited 55 s, 3m 40s after the start: GitHub does not answer",
        "– skipped: test_zero is skipped now  tests/test_parse.py:14, allowed by the request",
        "✗ tests/test_parse.py: test_negative",
        "again: python -m pytest tests/test_parse.py::test_negative",
        "test_locale (as on the base)",
        "test_clock: flaky, passed when it was run once more",
        "44 passed, 2 failed, 1 skipped",
        "✗ blocker, engine: What looks like a key was added  src/settings.py:3",
        "! tech debt, reviewer: The regular expression",
        "/slow · it did not answer within 15 s",
        "! the plan: the host is down",
    ):
        assert words in text, words


def test_every_attempt_has_its_line_with_verdict_size_cost_and_branch() -> None:
    clean = ReviewResult(status=ReviewStatus.CLEAN, tech_debt=1)
    red = AttemptResult(number=1, branch="p/1", head="a", failure="tests are red", tests=TestsStatus.RED, cost_usd=None)
    green = AttemptResult(
        number=2, branch="p/2", head="b", tests=TestsStatus.GREEN, review=clean, lines=12, cost_usd=0.5, chosen=True
    )
    text = told(attempts=(red, green, green.model_copy(update={"number": 3, "chosen": False})))
    assert "1 tests are red · tests red · review: not done · 0 lines · cost unknown · p/1" in text
    assert "2 chosen · tests green · review: 0 blockers, 1 tech debt · 12 lines · $0.50 · p/2" in text
    assert "3 not chosen · tests green" in text
    assert "\nAttempts\n" not in told()


def test_the_worst_is_said_first_and_of_the_same_weight_what_is_certain() -> None:
    assert [(point.severity, point.source) for point in review_points(sample().reviewed, sample().findings)] == [
        ("blocker", "engine"),
        ("tech_debt", "reviewer"),
        ("skippable", "reviewer"),
    ]


def test_a_delivery_that_has_just_begun_or_failed_at_once_is_told_in_a_few_lines() -> None:
    nothing: dict[str, Any] = {
        "steps": (), "began": (), "turns": (), "deaths": (), "waits": (), "plan": None, "test_report": None,
        "reviewed": None, "findings": None, "screenshots": None, "tests": ResultOfTests(), "usage": UsageResult(),
        "pull_request": None, "branch": "", "title": "", "budget_usd": None,
    }  # fmt: skip
    text = told(**nothing, status="running", ended=None, taken=at(3))
    assert "durations-parse-3f9c  running" in text
    assert "3.0 s so far" in text
    assert "redone" not in text, "a receipt is written at the end"
    failed = told(**nothing, status="failed", reason="", message="reqest: unknown field\n  fix: request?")
    assert "message       reqest: unknown field\n                fix: request?" in failed


def test_unknown_costs_stay_unknown() -> None:
    record = StepRecord(step="implement", status="done", turns=2, cost_usd=None)
    text = told(steps=(record,), began=(None,), usage=UsageResult(cost_usd=None))
    assert "implement            2 turns    cost unknown" in text
    assert view.total_cost((record, StepRecord(step="plan", cost_usd=0.5))) is None


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        (ResultOfTests(), "not run"),
        (ResultOfTests(status=TestsStatus.NONE), "the repository has no test command"),
        (ResultOfTests(status=TestsStatus.RED, failed=2), "red, 2 failed"),
        (ResultOfTests(status="red", passed=3, failed=1, new_failures=1), "3 passed, 1 failed, 1 new failure"),
        (ResultOfTests(status=TestsStatus.RED, passed=3, tampered=2), "3 passed, 2 places tampered with"),
    ],
)
def test_a_verdict_is_one_line(tests: ResultOfTests, words: str) -> None:
    assert result_text.tests_line(tests) == words


def test_what_strangers_wrote_cannot_move_the_cursor_or_flood_the_screen() -> None:
    noise = "\x1b[2J\x1b]0;owned\x07" + "x\u202e" * 5_000_000
    case = TestCase(name="t\u2066\n\x1b[31m", outcome="failed", message=noise, command="run\nme")
    command = CommandResult(name="unit", command="c", verdict="failed", tail=noise, cases=(case,) * 500)
    report = TestReport(commit="c" * 40, tree="t" * 40, note=noise, commands=(command,))
    text = told(test_report=report, message=noise, request=noise, title=noise, branch=noise)
    assert len(text) < 100_000
    assert not {c for c in text if c != "\n" and not c.isprintable()}
    assert "… 480 more fail" in text


def test_a_text_is_cut_at_its_limit_and_says_how_long_it_was() -> None:
    assert visible_text("a\tb\r\nc", 100) == "a\tb\nc"
    assert visible_text("x" * 50, 10) == "x" * 10 + "\n… cut here: 50 characters in all"
    assert visible_line(" a\n\n b\u00a0c ", 10) == "a b c"
    assert visible_line("x" * 50, 10) == "x" * 9 + "…"
    assert visible_text("pay\u202elegal\u2066\u200b\u061c\u3164\ufeff\x00\x1b[31m\ud800!") == "paylegal!"


def test_a_command_that_failed_without_a_report_shows_the_end_of_its_output() -> None:
    tail = "\n".join(f"line {n}" for n in range(50))
    report = TestReport(
        commit="c" * 40, tree="t" * 40,
        commands=(CommandResult(name="make", command="make test", verdict="timed_out", tail=tail, reason="after 10m"),),
    )  # fmt: skip
    text = told(test_report=report)
    assert "✗ make: took too long and was ended" in text
    assert "line 49" in text
    assert "line 1\n" not in text
    assert "… 38 more lines" in text


def test_a_page_replaces_an_older_one_whole_keeps_links_and_has_the_rights_of_any_new_file(tmp_path: Any) -> None:
    import os

    real, link = tmp_path / "real.html", tmp_path / "link.html"
    real.write_text("older")
    link.symlink_to(real)
    before = os.umask(0o022)
    try:
        write_page(link, b"newer")
    finally:
        os.umask(before)
    assert link.is_symlink()
    assert real.read_text() == "newer"
    assert real.stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.html", "real.html"]


def test_a_place_where_no_page_can_be_is_refused_before_anything_is_read(tmp_path: Any) -> None:
    assert target_of("") is None
    assert target_of("-") is None
    with pytest.raises(BadInput, match="there is no directory"):
        target_of(str(tmp_path / "none" / "x.html"))
    with pytest.raises(BadInput, match="is a directory"):
        target_of(str(tmp_path))
    with pytest.raises(BadInput, match="cannot be written"):
        write_page(tmp_path / ("x" * 300), b"")


def test_a_pipe_or_a_device_is_written_to_and_never_replaced(tmp_path: Any) -> None:
    import os

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_page(pipe, b"page")
        assert os.read(reading, 10) == b"page"
    finally:
        os.close(reading)
    assert pipe.is_fifo()
