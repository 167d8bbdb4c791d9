"""The report of a backlog: the table of its items, its graph and its receipt, as text and as one HTML page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from perdure.cli.backlog.drawing import draw_graph
from perdure.cli.backlog.receipt import BacklogReceipt, read_receipt
from perdure.cli.backlog.text import phase_reason, status_lines
from perdure.cli.formatting import money, short_sha
from perdure.cli.table import align_columns
from perdure.models.backlog_messages import BacklogProgress, ItemView
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.client import Backlog

MARKS = {"landed": "✓", "failed": "✗", "blocked": "✗", "waits": "!", "building": "▸", "landing": "▸"}


@dataclass(frozen=True)
class BacklogReport:
    """The facts of the report. `wanted`: by item, what was asked for, in one line."""

    progress: BacklogProgress
    wanted: dict[str, str]
    receipt: BacklogReceipt

    def as_data(self) -> dict[str, Any]:
        """Return the object that `--json` prints; each list of the receipt is empty where nothing is wrong."""
        return {
            "backlog": self.progress.model_dump(mode="json"),
            "wanted": self.wanted,
            "receipt": asdict(self.receipt) | {"clean": self.receipt.clean},
        }


async def gather_backlog_report(backlog: Backlog) -> BacklogReport:
    """Read the backlog's progress, its history and its remote, and return the report.

    Raises what reading the first two raises; what the remote does not say is noted in the receipt.
    """
    progress = await backlog.progress()
    items = (await backlog.past()).items
    wanted = {id: _item_summary(item) for id, item in items.items()}
    return BacklogReport(progress, wanted, await read_receipt(backlog, progress))


def backlog_report_lines(report: BacklogReport) -> list[str]:
    """Return the whole report as lines for a terminal; the table is as wide as it needs to be."""
    rows = [("", "item", "state", "commit", "cost", "wanted")]
    rows += [
        (
            MARKS.get(view.phase, "–"),
            view.id,
            item_state(view),
            short_sha(view.commit),
            money(view.usd) if view.usd else "",
            report.wanted.get(view.id, ""),
        )
        for view in report.progress.items
    ]
    status = status_lines(report.progress)
    head = status[: status.index("")] if "" in status else status
    return [
        *head,
        "",
        *align_columns(rows, None),
        "",
        *draw_graph(report.progress, "text").splitlines(),
        "",
        "Receipt, counted from history and git",
        *(f"  {line}" for line in report.receipt.lines()),
    ]


def item_state(view: ItemView) -> str:
    """Return an item's phase and the reason for it: `blocked by export (tests red)`, `failed: tests red`."""
    reason_text = one_line(phase_reason(view), 80) if view.phase != "landed" else ""
    phase_text = "waits for you" if view.phase == "waits" else view.phase
    return f"{phase_text}{' ' if view.phase == 'blocked' else ': '}{reason_text}" if reason_text else phase_text


def render_backlog_page(report: BacklogReport) -> str:
    """Render the report as one HTML page that needs nothing else: no network, no script, no file beside it."""
    from markupsafe import Markup

    from perdure import __version__
    from perdure.adapters.forges.neutral import is_web_address
    from perdure.cli.look.report.page import report_environment

    drawing = draw_graph(report.progress, "svg")
    return (
        report_environment()
        .get_template("backlog.html.j2")
        .render(
            report=report,
            progress=report.progress,
            svg=Markup(drawing),  # noqa: S704  # drawn here, with its texts escaped
            pull=is_web_address(report.progress.pull_request) if report.progress.pull_request else "",
            state=item_state,
            marks=MARKS,
            short=short_sha,
            version=__version__,
        )
    )


def _item_summary(item: dict[str, Any]) -> str:
    issue = f"#{str(item['issue']).lstrip('#')}" if item.get("issue") is not None else ""
    return " ".join(part for part in (issue, one_line(str(item.get("request") or ""), 120)) if part)
