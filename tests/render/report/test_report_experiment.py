"""The experiment on a change, and the promises that it does not keep, as people read them on the command line."""

from __future__ import annotations

from report_samples import sample

from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import StepRecord
from perdure.models.delivery.state import BuildingState, DeliveryState, TestingState
from perdure.models.delivery.summary import result_of
from perdure.render.findings_text import experiment_lines
from perdure.render.progress_lines import closing_lines
from perdure.render.report.page import page_of
from perdure.render.report.text import lines_of
from perdure.render.step_lines import format_rows
from tests.tried import ADD, LINE, QUOTE, REVIEW, VERDICT, ZERO, report

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
    assert format_rows(steps) == [f"✓ test       46 green · {LINE}  4.1 s"]
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
