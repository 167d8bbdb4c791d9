"""`perdure events`: what happened, one event a line, also as it happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.ids import BACKLOG, LAST, resolve_id
from perdure.cli.screen import Screen
from perdure.cli.session import carry_out, connected
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
        async for event in await _told(await connected(screen), id, since, first, follow=follow):
            print(event.model_dump_json() if json else line(event), flush=True)

    try:
        carry_out(work())
    except KeyboardInterrupt:
        if not follow:
            raise
        raise typer.Exit(EXIT_DETACHED) from None


async def _told(perdure: Perdure, id: str, since: str, first: int, *, follow: bool) -> AsyncIterator[Event]:
    """The stream that was asked for. BadInput for a time or a place that cannot be."""
    from perdure.client.event_feed import all_events, backlog_events
    from perdure.models.amounts import seconds

    if not id:
        if first:
            raise BadInput("offsets count within one delivery", where="--from", fix="name it: perdure events ID")
        try:
            back = timedelta(seconds=seconds(since))
        except ValueError as error:
            raise BadInput(str(error), where="--since", fix="write 30m or 24h") from None
        return all_events(perdure.client, datetime.now(UTC) - back, follow=follow)
    if id != LAST and await perdure.list(limit=1, query=f"WorkflowId = '{id}'", workflow=BACKLOG):
        if first:
            fix = f"perdure events {id}/ITEM --from {first} is about one of its deliveries"
            raise BadInput("a backlog's deliveries have offsets of their own", where="--from", fix=fix)
        return backlog_events(perdure.client, id, follow=follow)
    return perdure.events(await resolve_id(perdure, id), follow=follow, since=first)


def line(event: Event) -> str:
    """One event for people: time (UTC), whose, which, and the words of its data, of which nothing is markup."""
    whose = event.delivery or event.backlog or ""
    where = " ".join(str(part) for part in (event.step, event.turn and f"turn {event.turn}") if part)
    parts = (event.time[11:19], whose, f"{event.offset:>4}", event.type, where, one_line(told(event), 160))
    return "  ".join(part for part in parts if part)


def told(event: Event) -> str:
    """The words of an event's data, in one line."""
    words = (
        value for name, value in event.data.items() if value not in (None, "", [], {}, False) and name not in _LONG
    )
    return " · ".join(one_line(str(value)) for value in words)


_LONG = ("checkpoint", "commit", "of", "options")
"""Fields that are for programs."""
