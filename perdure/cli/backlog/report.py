"""The report of a backlog: the table of its items, its graph, and the night's receipt; as text and as one page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from perdure.cli.backlog.drawing import draw
from perdure.cli.backlog.receipt import BacklogReceipt, read_receipt
from perdure.cli.backlog.text import reason, status_lines
from perdure.cli.table import columns
from perdure.cli.words import money, short
from perdure.models.backlog_messages import BacklogProgress, ItemView
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.client import Backlog

MARKS = {"landed": "✓", "failed": "✗", "blocked": "✗", "waits": "!", "building": "▸", "landing": "▸"}


@dataclass(frozen=True)
class BacklogReport:
    """`wanted`: by item, what was asked for, in one line."""

    progress: BacklogProgress
    wanted: dict[str, str]
    receipt: BacklogReceipt

    def as_data(self) -> dict[str, Any]:
        """The object that `--json` prints; each list of the receipt is empty where nothing is wrong."""
        return {
            "backlog": self.progress.model_dump(mode="json"),
            "wanted": self.wanted,
            "receipt": asdict(self.receipt) | {"clean": self.receipt.clean},
        }


async def gather(backlog: Backlog) -> BacklogReport:
    """Read it all: the workflow, its history, the remote. Raises what reading the first two raises."""
    progress = await backlog.progress()
    given = (await backlog.past()).given
    wanted = {id: _wanted(item) for id, item in given.items()}
    return BacklogReport(progress, wanted, await read_receipt(backlog, progress))


def report_lines(report: BacklogReport) -> list[str]:
    """The whole report for a terminal, which tables are wider than when they need to be."""
    rows = [("", "item", "state", "commit", "cost", "wanted")]
    rows += [
        (
            MARKS.get(view.phase, "–"),
            view.id,
            state(view),
            short(view.commit),
            money(view.usd) if view.usd else "",
            report.wanted.get(view.id, ""),
        )
        for view in report.progress.items
    ]
    told = status_lines(report.progress)
    head = told[: told.index("")] if "" in told else told
    return [
        *head,
        "",
        *columns(rows, None),
        "",
        *draw(report.progress, "text").splitlines(),
        "",
        "Receipt, counted from history and git",
        *(f"  {line}" for line in report.receipt.lines()),
    ]


def state(view: ItemView) -> str:
    """`blocked by export (tests red)`, `failed: tests red`."""
    said = one_line(reason(view), 80) if view.phase != "landed" else ""
    shown = "waits for you" if view.phase == "waits" else view.phase
    return f"{shown}{' ' if view.phase == 'blocked' else ': '}{said}" if said else shown


def page_of(report: BacklogReport) -> str:
    """One HTML page that needs nothing else: no network, no script, no file beside it."""
    from markupsafe import Markup

    from perdure import __version__
    from perdure.adapters.forges.neutral import web_address
    from perdure.cli.look.report.page import environment

    drawn = draw(report.progress, "svg")
    return (
        environment()
        .get_template("backlog.html.j2")
        .render(
            report=report,
            progress=report.progress,
            svg=Markup(drawn),  # noqa: S704  # drawn by us, its words escaped there
            pull=web_address(report.progress.pull_request) if report.progress.pull_request else "",
            state=state,
            marks=MARKS,
            short=short,
            version=__version__,
        )
    )


def _wanted(item: dict[str, Any]) -> str:
    issue = f"#{str(item['issue']).lstrip('#')}" if item.get("issue") is not None else ""
    return " ".join(part for part in (issue, one_line(str(item.get("request") or ""), 120)) if part)
