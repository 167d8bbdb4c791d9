"""Tables of deliveries, and aligned columns in general; pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from perdure.cli.formatting import money
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.client import ListEntry


def delivery_rows(
    entries: Sequence[ListEntry], width: int | None, now: datetime | None = None, kind: str = "delivery"
) -> list[str]:
    """Return a table with one line for each entry: id, status, start, cost, pull request or repository.

    kind   heading of the first column, `delivery` or `backlog`
    width  at which lines are cut; None: not at all
    """
    now = now or datetime.now(UTC)
    rows = [
        (
            entry.delivery_id,
            _status_text(entry),
            time_ago((now - entry.started).total_seconds()),
            money(entry.cost_usd) if entry.cost_usd is not None else "",
            entry.pull_request or entry.repository,
        )
        for entry in entries
    ]
    return align_columns([(kind, "status", "started", "cost", "pull request or repository"), *rows], width)


def waiting_delivery_rows(entries: Sequence[ListEntry], width: int | None, now: datetime | None = None) -> list[str]:
    """Return a table with one line for each delivery that waits: for what, since when, and what it is about."""
    now = now or datetime.now(UTC)
    rows = [
        (
            entry.delivery_id,
            entry.waits_for or entry.held or "held, or a host",
            time_ago(
                (
                    now
                    - (
                        entry.pending_decision.since
                        if entry.pending_decision is not None
                        else entry.since or entry.started
                    )
                ).total_seconds()
            ),
            _question_text(entry),
        )
        for entry in entries
    ]
    return align_columns([("delivery", "waits for", "since", "about"), *rows], width)


def entry_json(entry: ListEntry, kind: str = "delivery") -> dict[str, Any]:
    """Return an entry as a JSON object: times in ISO 8601; `asked` is null where no person is asked anything.

    The id is under `delivery_id`, or `backlog_id` where `kind` is `backlog`.
    """
    fields = {name: value for name, value in vars(entry).items() if name != "pending_decision"}
    times = {
        name: time.isoformat() if time else None
        for name, time in (("started", entry.started), ("closed", entry.closed), ("since", entry.since))
    }
    fields[f"{kind}_id"] = fields.pop("delivery_id")
    return (
        fields
        | times
        | {"asked": entry.pending_decision.model_dump(mode="json") if entry.pending_decision is not None else None}
    )


def _status_text(entry: ListEntry) -> str:
    if entry.pending_decision is not None:
        return f"waiting ({entry.waits_for})"
    return entry.status.replace("_", " ") + (f" ({entry.phase})" if entry.phase and entry.closed is None else "")


def _question_text(entry: ListEntry) -> str:
    if entry.pending_decision is None:
        return entry.repository
    return (
        entry.pending_decision.question.text
        if entry.pending_decision.question is not None
        else entry.pending_decision.summary
    )


def align_columns(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return rows as lines of left-aligned columns, two spaces apart.

    Each cell is one line of at most 80 characters, the last of 400. Lines longer than `width` are cut, which shortens
    the last column; at least 12 characters of it stay. `width` None: no line is cut.
    """
    cells = [[one_line(cell, 400 if n == len(row) - 1 else 80) for n, cell in enumerate(row)] for row in rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in cells]
    other_width = sum(widths[:-1]) + 2 * (len(widths) - 1)
    limit = max(width, other_width + 12) if width is not None else max(map(len, lines))
    return [line if len(line) <= limit else line[: limit - 1] + "…" for line in lines]


def time_ago(seconds: float) -> str:
    """Return how long ago something was: `just now`, `5 min ago`, `3 h ago`, `12 d ago`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"
