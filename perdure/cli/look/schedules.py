"""`perdure schedules`: what begins at a time, and what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.commands import STEER, Commands
from perdure.cli.ids import Json
from perdure.cli.screen import Screen
from perdure.cli.session import carry_out, connected
from perdure.cli.table import columns
from perdure.cli.words import count, span

if TYPE_CHECKING:
    from perdure.client import Perdure, Scheduled

ScheduleId = Annotated[str, typer.Argument(metavar="ID", help="A schedule, as perdure schedules shows it.")]

schedules = Commands(help="All that begins at a time (--at, --every): listed; paused, resumed or removed by its id.")


def register(app: typer.Typer) -> None:
    app.add_typer(schedules, name="schedules", rich_help_panel=STEER)


@schedules.callback(invoke_without_command=True)
def list_(context: typer.Context, json: Json = False) -> None:
    """List all that begins at a time (--at, --every), and what became of it the last time."""
    if context.invoked_subcommand is not None:
        return

    screen = Screen(json=json)

    async def work() -> list[Scheduled]:
        return await (await connected(screen)).schedules.list()

    found = carry_out(work())
    if json:
        screen.data([shown(one) for one in found])
    elif found:
        screen.lines(rows(found, screen.room))
    else:
        screen.line('nothing is scheduled: perdure backlog start FILE --every "weekdays 23:00"')


@schedules.command()
def pause(
    id: ScheduleId, note: Annotated[str, typer.Option("--note", metavar="TEXT", help="For who looks at it.")] = ""
) -> None:
    """Begin nothing until it is resumed; what runs goes on."""
    _with(lambda perdure: perdure.schedules.pause(id, note), f"{id} is paused; perdure schedules resume {id}")


@schedules.command()
def resume(id: ScheduleId) -> None:
    """Begin again at its times; those that passed meanwhile are not made up for."""
    _with(lambda perdure: perdure.schedules.resume(id), f"{id} goes on; perdure schedules shows when")


@schedules.command()
def remove(id: ScheduleId) -> None:
    """Forget it. What it has started goes on."""
    _with(lambda perdure: perdure.schedules.remove(id), f"{id} is removed; what it has started goes on")


def _with(work: Callable[[Perdure], Awaitable[None]], said: str) -> None:
    screen = Screen()

    async def run() -> None:
        await work(await connected(screen))

    carry_out(run())
    screen.line(said)


def shown(one: Scheduled) -> dict[str, Any]:
    """For programs: times in ISO 8601; `next` null for one that is over."""
    return {**asdict(one), "next": one.next.isoformat() if one.next else None, "state": one.state}


def rows(found: Sequence[Scheduled], width: int | None, now: datetime | None = None) -> list[str]:
    """One line a schedule under a heading; below them, of which times nothing came."""
    heading = ("schedule", "what", "times", "next", "last", "about")
    cells = [(one.id, one.what, one.when, _next(one, now), _last(one), one.about) for one in found]
    lines = columns([heading, *cells], width)
    for one in found:
        if one.skipped:
            lines.append(f"! {one.id}: {count(one.skipped, 'time')} skipped, its last run was still at work")
        if one.missed:
            lines.append(f"! {one.id}: {count(one.missed, 'time')} missed, Temporal was down for an hour or more")
    return lines


def begins_in(one: Scheduled, now: datetime | None = None) -> str:
    """`2026-11-23 22:00 UTC, in 1h 12m`."""
    if one.next is None:
        return ""
    left = (one.next - (now or datetime.now(UTC))).total_seconds()
    days = f"{left / 86400:.0f} days" if left >= 2 * 86400 else span(left)
    return f"{one.next.astimezone(UTC):%Y-%m-%d %H:%M} UTC, in {days}"


def _next(one: Scheduled, now: datetime | None) -> str:
    if one.next is None:
        return one.state
    return "paused" + (f": {one.note}" if one.note != "paused" else "") if one.paused else begins_in(one, now)


def _last(one: Scheduled) -> str:
    return f"{one.last} {one.outcome.replace('_', ' ')}" if one.last else "-"
