"""Rows in columns, as wide as they need to be; pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from perdure.cli.words import money
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.client import Listed


def delivery_rows(
    found: Sequence[Listed], width: int | None, now: datetime | None = None, what: str = "delivery"
) -> list[str]:
    """One line a delivery, or a backlog, under a heading."""
    now = now or datetime.now(UTC)
    rows = [
        (
            one.delivery_id,
            _status(one),
            ago((now - one.started).total_seconds()),
            money(one.cost_usd) if one.cost_usd is not None else "",
            one.pull_request or one.repository,
        )
        for one in found
    ]
    return columns([(what, "status", "started", "cost", "pull request or repository"), *rows], width)


def waiting_rows(found: Sequence[Listed], width: int | None, now: datetime | None = None) -> list[str]:
    """One line a delivery that waits: for what, since when, and what it is about."""
    now = now or datetime.now(UTC)
    rows = [
        (
            one.delivery_id,
            one.waits_for or one.held or "held, or a host",
            ago((now - (one.asked.since if one.asked is not None else one.since or one.started)).total_seconds()),
            _about(one),
        )
        for one in found
    ]
    return columns([("delivery", "waits for", "since", "about"), *rows], width)


def listed_json(one: Listed, what: str = "delivery") -> dict[str, Any]:
    """The same for programs: times in ISO 8601; `asked` null where no person is asked anything. A backlog's id is under
    `backlog_id`."""
    fields = {name: value for name, value in vars(one).items() if name != "asked"}
    times = {
        name: time.isoformat() if time else None
        for name, time in (("started", one.started), ("closed", one.closed), ("since", one.since))
    }
    fields[f"{what}_id"] = fields.pop("delivery_id")
    return fields | times | {"asked": one.asked.model_dump(mode="json") if one.asked is not None else None}


def _status(one: Listed) -> str:
    if one.asked is not None:
        return f"waiting ({one.waits_for})"
    return one.status.replace("_", " ") + (f" ({one.phase})" if one.phase and one.closed is None else "")


def _about(one: Listed) -> str:
    if one.asked is None:
        return one.repository
    return one.asked.question.text if one.asked.question is not None else one.asked.words


def columns(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Left-aligned columns, two spaces apart; on a narrow screen the last one is cut, None cuts nothing."""
    cells = [[one_line(cell, 400 if n == len(row) - 1 else 80) for n, cell in enumerate(row)] for row in rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in cells]
    left = sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = max(width, left + 12) if width is not None else max(map(len, lines))
    return [line if len(line) <= room else line[: room - 1] + "…" for line in lines]


def ago(seconds: float) -> str:
    """`just now`, `5 min ago`, `3 h ago`, `12 d ago`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"
