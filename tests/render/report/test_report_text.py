"""The report as text, its change and its experiment: complete, bounded, nobody's markup."""

from __future__ import annotations

from typing import Any

import pytest
from report_samples import at, sample

from perdure.cli.look.report import target_of, write_page
from perdure.models.checks.report import CommandResult, TestCase, TestReport
from perdure.models.checks.verdict_text import review_points
from perdure.models.delivery import result_text
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import (
    AttemptResult,
    DecisionMade,
    ReviewResult,
    ReviewStatus,
    StepRecord,
    TestsStatus,
    UsageResult,
)
from perdure.models.delivery.result import TestsResult as ResultOfTests
from perdure.models.delivery.state import BuildingState, DeliveryState, TestingState
from perdure.models.delivery.summary import result_of
from perdure.models.errors import BadInput
from perdure.render.findings_text import experiment_lines
from perdure.render.formatting import visible_line, visible_text
from perdure.render.progress_lines import closing_lines
from perdure.render.report import view
from perdure.render.report.page import page_of
from perdure.render.report.text import lines_of
from perdure.render.step_lines import format_rows
from tests.tried import ADD, LINE, QUOTE, REVIEW, VERDICT, ZERO, report


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


PATCH = """diff --git a/calc.py b/calc.py
index 1..2 100644
--- a/calc.py
+++ b/calc.py
@@ -1 +1,2 @@
-def add(a, b): ...
+def add(a, b):
+    return "<script>alert(1)</script>\u202e"
"""
MADE = (
    DecisionMade(gate="plan", target="1a2b3c4d", verdict="rejected", by="ada", note="with <b>types</b>"),
    DecisionMade(gate="pull_request", target="9f8e", verdict="approved", by="bob"),
)


def test_the_page_has_the_whole_change_and_who_decided_what() -> None:
    page = page_of(sample(diff=PATCH, decisions=MADE))
    assert '<span class="added">+    return &#34;&lt;script&gt;alert(1)&lt;/script&gt;&#34;\n</span>' in page
    assert '<span class="gone">-def add(a, b): ...\n</span>' in page
    assert "2 lines added, 1 removed" in page
    assert "<script" not in page
    assert "plan 1a2b3c4d rejected by ada: with &lt;b&gt;types&lt;/b&gt;" in page
    assert "pull request 9f8e approved by bob" in page
    without = page_of(sample())
    assert 'id="change"' not in without
    assert 'id="decisions"' not in without


def test_the_text_has_decisions_and_the_files_that_are_changed() -> None:
    lines = lines_of(sample(diff=PATCH, decisions=MADE))
    at = lines.index("Decisions")
    assert lines[at + 1 : at + 3] == [
        "  plan 1a2b3c4d rejected by ada: with <b>types</b>",
        "  pull request 9f8e approved by bob",
    ]
    assert lines[lines.index("Change") + 1].split() == ["+2", "−1", "calc.py"]


def test_each_line_of_a_patch_is_known_for_what_it_is() -> None:
    kinds = [kind for kind, _ in view.diff_lines(PATCH)]
    assert kinds == ["file", "file", "file", "file", "place", "gone", "added", "added"]


SHOWN = [
    f"– changed promise: {ADD}",
    f"    the request says “{QUOTE}” (that is the wish)",
    "      def test_add():",
    "    -     assert add(1, 2) == 3",
    "    +     assert add(1, 2) == -1",
    f"✗ changed promise: {ZERO}",
    "    nothing in the request asks for it (nobody asked)",
    "      the test is the same: what it uses has changed",
]


def test_a_verdict_its_faults_and_its_promises_are_lines() -> None:
    assert experiment_lines(report(), REVIEW) == [f"✓ {LINE}", "– fail without the change: a, b, c, d", *SHOWN]
    bent = experiment_lines(report(written=("tests/\x1b[2Jt.json",)), REVIEW)
    assert bent[0] == f"✗ {LINE}"
    assert bent[1].startswith("✗ tampered: files of the test side are written while the tests run: ")
    assert "\x1b" not in "".join(bent)


def test_the_whole_line_stands_in_watch_and_at_the_end_with_where_to_read_of_the_promises() -> None:
    steps = [StepRecord(step="run_tests", status="done", summary=VERDICT.summary, duration_s=4.1)]
    assert format_rows(steps) == [f"✓ test           46 green · {LINE}  4.1 s"]
    fixed = [StepRecord(step="fix_review", status="done", commit="c" * 40), *steps]
    assert f"46 green again · {LINE}" in format_rows(fixed)[0]
    request = DeliveryRequest(repository="r", request="Add sub")
    end = closing_lines(
        result_of(
            DeliveryState(building=BuildingState(head="a" * 40), testing=TestingState(verdict=VERDICT), steps=steps),
            request,
            "d",
            "r",
        )
    )
    assert f"           {LINE}" in end
    assert "           2 changed promises, see the review: perdure report d" in end


def test_report_and_page_have_the_line_the_promises_and_their_versions() -> None:
    told = sample(test_report=report(), reviewed=REVIEW)
    told = told.model_copy(update={"tests": told.tests.model_copy(update={"experiment": LINE, "promises": 2})})
    lines = lines_of(told)
    assert f"  {'':<13} {LINE}" in lines
    assert "\n".join(f"  {line}" for line in SHOWN) in "\n".join(lines)
    page = page_of(told)
    assert LINE in page.replace("&#39;", "'")
    assert '<span class="added">+     assert add(1, 2) == -1' in page
    assert QUOTE in page
    hostile = told.model_copy(update={"test_report": report(written=("</pre><script>x",))})
    assert "<script>" not in page_of(hostile)
