"""`perdure events`: what happened, one event a line, also while it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.ids import BACKLOG_WORKFLOW, LAST, resolve_id
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, run_coroutine
from perdure.models.errors import BadInput
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.client import Perdure
    from perdure.models.events import Event

EVERYTHING = "24h"


def events(
    id: Annotated[
        str, typer.Argument(metavar="ID", help="A delivery or a backlog; without it all that ran since --since.")
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until it ends.")] = False,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="Without ID: how far back, as 30m or 24h.")] = (
        EVERYTHING
    ),
    first: Annotated[
        int, typer.Option("--from", metavar="N", min=0, help="With the ID of a delivery: begin at this offset.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show what happened, in order: steps, turns, tests, decisions, deaths, the end. Read from Temporal's history."""
    from perdure.cli.look.watch import EXIT_DETACHED

    screen = Screen(json=json)

    async def work() -> None:
        async for event in await _open_stream(await connect_client(screen), id, since, first, follow=follow):
            print(event.model_dump_json() if json else format_event(event), flush=True)

    try:
        run_coroutine(work())
    except KeyboardInterrupt:
        if not follow:
            raise
        raise typer.Exit(EXIT_DETACHED) from None


async def _open_stream(perdure: Perdure, id: str, since: str, first: int, *, follow: bool) -> AsyncIterator[Event]:
    """Return the stream of events of a delivery, of a backlog, or without an id of all that ran since then.

    `first`: the offset to begin at. Raises BadInput for an offset without one delivery, and for a `since` that is no
    duration.
    """
    from perdure.client.event_feed import all_events, backlog_events
    from perdure.models.amounts import parse_duration

    if not id:
        if first:
            raise BadInput("offsets count within one delivery", where="--from", fix="name it: perdure events ID")
        try:
            age = timedelta(seconds=parse_duration(since))
        except ValueError as error:
            raise BadInput(str(error), where="--since", fix="write 30m or 24h") from None
        return all_events(perdure.client, datetime.now(UTC) - age, follow=follow)
    if id != LAST and await perdure.list(limit=1, query=f"WorkflowId = '{id}'", workflow=BACKLOG_WORKFLOW):
        if first:
            fix = f"perdure events {id}/ITEM --from {first} is about one of its deliveries"
            raise BadInput("a backlog's deliveries have offsets of their own", where="--from", fix=fix)
        return backlog_events(perdure.client, id, follow=follow)
    return perdure.events(await resolve_id(perdure, id), follow=follow, since=first)


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
