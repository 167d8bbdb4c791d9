"""Rows in columns, as wide as they need to be; pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perdure.cli.words import money, one_line

if TYPE_CHECKING:
    from perdure.client import Listed


def delivery_rows(found: Sequence[Listed], width: int | None, now: datetime | None = None) -> list[str]:
    """One line a delivery under a heading."""
    now = now or datetime.now(UTC)
    rows = [
        (
            one.delivery_id,
            one.status.replace("_", " ") + (f" ({one.phase})" if one.phase and one.closed is None else ""),
            ago((now - one.started).total_seconds()),
            money(one.cost_usd) if one.cost_usd is not None else "",
            one.pull_request or one.repository,
        )
        for one in found
    ]
    return columns([("delivery", "status", "started", "cost", "pull request or repository"), *rows], width)


def columns(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Left-aligned columns, two spaces apart; on a narrow screen the last one is cut, None cuts nothing."""
    cells = [[one_line(cell, 400) for cell in row] for row in rows]
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
