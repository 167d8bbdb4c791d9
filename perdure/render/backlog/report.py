"""The report of a backlog, as text and as one HTML page: the table of its items, its graph, and its receipt.

Used by the command line, the page and the demo. The receipt is only shown here; `perdure.cli.backlog.receipt` counts
it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup

from perdure import __version__
from perdure.models.backlog.state import BacklogProgress, ItemView
from perdure.render.backlog.drawing import draw_graph
from perdure.render.backlog.text import PHASE_MARKS, phase_reason, status_lines
from perdure.render.formatting import align_columns
from perdure.render.report.page import report_environment
from perdure.text import format_money, is_web_address, one_line, short_sha


@dataclass(frozen=True)
class BacklogReceipt:
    """Items given and landed, and lists of what went wrong, one text for each case.

    lost       items that are missing, or not where the backlog says
    twice      items that landed more than once
    ownerless  branches that nobody works on and no open pull request proposes
    bent       commits of the branch with more than one parent: its history is not linear
    unread     why some of this is not known
    """

    items: int
    landed: int
    lost: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    ownerless: tuple[str, ...] = ()
    bent: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Return whether nothing went wrong and everything could be read."""
        return not (self.lost or self.twice or self.ownerless or self.bent or self.unread)

    def lines(self) -> list[str]:
        """Return the receipt as lines for a person: how many items landed and how many cases of each kind went wrong,
        then one line for each such case; items that are in order get none."""
        counts = (
            f"items lost {len(self.lost)} · landed twice {len(self.twice)} · "
            f"branches without an owner {len(self.ownerless)}"
        )
        lines = [f"{'✓' if self.clean else '!'} {self.landed} of {self.items} landed · {counts}"]
        for name, cases in (
            ("lost", self.lost),
            ("landed twice", self.twice),
            ("without an owner", self.ownerless),
            ("not linear", self.bent),
            ("not known", self.unread),
        ):
            lines += [f"  {name}: {one_line(case, 300)}" for case in cases]
        return lines


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


def backlog_report_lines(report: BacklogReport) -> list[str]:
    """Return the whole report as lines for a terminal: status (without its list of items), table of the items, graph,
    receipt.

    The table is as wide as it needs to be.
    """
    rows = [("", "item", "state", "commit", "cost", "wanted")]
    rows += [
        (
            PHASE_MARKS.get(view.phase, "–"),
            view.id,
            item_state(view),
            short_sha(view.commit),
            format_money(view.usd) if view.usd else "",
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
    """Return an item's phase and the reason for it, if any: `blocked by export (tests red)`, `failed: tests red`.

    A landed item has no reason; phase `waits` is written `waits for you`.
    """
    reason_text = phase_reason(view) if view.phase != "landed" else ""
    phase_text = "waits for you" if view.phase == "waits" else view.phase
    return f"{phase_text}{' ' if view.phase == 'blocked' else ': '}{reason_text}" if reason_text else phase_text


def render_backlog_page(report: BacklogReport) -> str:
    """Render the report as one HTML page that needs nothing else: no network, no script, no file beside it."""
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
            marks=PHASE_MARKS,
            short=short_sha,
            version=__version__,
        )
    )
