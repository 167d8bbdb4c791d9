"""Lists as a person reads them: rows of deliveries and backlogs, and events, one a line; pure functions. Used by
`perdure list` and `perdure events`, and for an event's data by the page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from perdure.render.formatting import align_columns, time_ago
from perdure.render.step_lines import phase_bar
from perdure.text import format_money, one_line

if TYPE_CHECKING:
    from perdure.client import ListEntry
    from perdure.models.events import Event


_TITLE_LEAST, _TITLE_MOST, _LAST_LEAST = 16, 40, 12
"""Characters of a title in a table, as there is room for it, and of the last column that there has to be room for."""


def delivery_rows(
    entries: Sequence[ListEntry], width: int | None, now: datetime | None = None, kind: str = "delivery"
) -> list[str]:
    """Return a table with one line for each entry: title, where one has any, id, status, start, cost,
    pull request or repository.

    kind   heading of the first column, `delivery` or `backlog`
    width  at which lines are cut; None: not at all
    """
    now = now or datetime.now(UTC)
    rows = [
        (
            entry.delivery_id,
            _status_text(entry),
            time_ago((now - entry.started).total_seconds()),
            format_money(entry.cost_usd) if entry.cost_usd is not None else "",
            entry.pull_request or entry.repository,
        )
        for entry in entries
    ]
    heading = (kind, "status", "started", "cost", "pull request or repository")
    return align_columns(_add_titles(entries, [heading, *rows], width), width)


def waiting_delivery_rows(entries: Sequence[ListEntry], width: int | None, now: datetime | None = None) -> list[str]:
    """Return a table with one line for each delivery that waits: title, where one has any, id, for what, since when,
    and what it is about."""
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
    return align_columns(_add_titles(entries, [("delivery", "waits for", "since", "about"), *rows], width), width)


def _add_titles(
    entries: Sequence[ListEntry], rows: Sequence[tuple[str, ...]], width: int | None
) -> Sequence[tuple[str, ...]]:
    """Return the rows of a table, a heading and one row an entry, with the titles before them; unchanged where no entry
    has one. Titles are cut to the room that the other columns leave: the ids behind them are whole."""
    if not any(entry.title for entry in entries):
        return rows
    others = sum(max(len(row[n]) for row in rows) + 2 for n in range(len(rows[0]) - 1)) + 2 + _LAST_LEAST
    limit = _TITLE_MOST if width is None else min(max(width - others, _TITLE_LEAST), _TITLE_MOST)
    return [
        (title, *row) for title, row in zip(["title", *(one_line(e.title, limit) for e in entries)], rows, strict=True)
    ]


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
    """Return the status, with how far it has come while it runs (`running ▰▰▱▱▱ build`) and what it waits for."""
    if entry.pending_decision is not None:
        return f"waiting ({entry.waits_for})"
    status = entry.status.replace("_", " ")
    if entry.closed is None:
        status += f" {phase_bar(entry.phase)}" if entry.phase else ""
        status += f", {one_line(entry.held, 80)}" if entry.held else ""
    return status


def _question_text(entry: ListEntry) -> str:
    """Return what a person is asked: the question's text, else the decision's summary; the repository where nobody is
    asked.
    """
    if entry.pending_decision is None:
        return entry.repository
    return (
        entry.pending_decision.question.text
        if entry.pending_decision.question is not None
        else entry.pending_decision.summary
    )


def format_event(event: Event) -> str:
    """Return an event as a line for people: time (UTC), delivery or backlog, offset, type, step and turn, and its data
    as plain text."""
    subject = event.delivery or event.backlog or ""
    where = " ".join(str(part) for part in (event.step, event.turn and f"turn {event.turn}") if part)
    parts = (event.time[11:19], subject, f"{event.offset:>4}", event.type, where, one_line(format_data(event), 160))
    return "  ".join(part for part in parts if part)


def format_data(event: Event) -> str:
    """Return the values of an event's data in one line, without those that are empty or only for programs."""
    values = (
        value
        for name, value in event.data.items()
        if value not in (None, "", [], {}, False) and name not in _PROGRAM_FIELDS
    )
    return " · ".join(one_line(str(value)) for value in values)


_PROGRAM_FIELDS = ("checkpoint", "commit", "of", "options")
"""Fields that are for programs: people are not shown them."""
