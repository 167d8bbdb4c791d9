"""The page of a backlog's report: whole in itself, and words of others stay words."""

from __future__ import annotations

from perdure.models.backlog.state import BacklogProgress, ItemView
from perdure.render.backlog.report import BacklogReceipt, BacklogReport, backlog_report_lines, render_backlog_page

EVIL = "<script>alert(1)</script>\x1b[2J"


def report() -> BacklogReport:
    items = (
        ItemView(id="api", phase="landed", commit="9c1d2ab4" * 5, usd=0.2),
        ItemView(id="page", phase="failed", because=EVIL, caption=EVIL, depends_on=("api",)),
    )
    progress = BacklogProgress(
        backlog_id="night",
        run_id="r",
        repository=EVIL,
        status="ended",
        branch="perdure/night",
        message=EVIL,
        pull_request="https://forge.example/1",
        items=items,
    )
    receipt = BacklogReceipt(items=2, landed=1, lost=(EVIL,))
    return BacklogReport(progress, {"api": "Add it", "page": EVIL}, receipt)


def test_the_page_needs_nothing_else_and_carries_out_nothing() -> None:
    page = render_backlog_page(report())
    assert "<script" not in page
    assert "\x1b" not in page
    assert page.count("&lt;script&gt;") >= 4
    assert 'href="https://forge.example/1"' in page
    assert "<svg" in page
    assert "items lost 1" in page
    assert "src=" not in page


def test_the_text_has_the_table_the_graph_and_the_receipt() -> None:
    lines = backlog_report_lines(report())
    text = "\n".join(lines)
    assert "\x1b" not in text
    assert any(line.startswith("✓  api") and "9c1d2ab" in line and line.endswith("Add it") for line in lines)
    assert "! 1 of 2 landed · items lost 1 · landed twice 0 · branches without an owner 0" in text
