"""`perdure schedules`: what begins at a time, and what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.commands import STEER, CommandGroup
from perdure.cli.formatting import pluralise, span
from perdure.cli.ids import Json
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, run_coroutine
from perdure.cli.table import align_columns

if TYPE_CHECKING:
    from perdure.client import Perdure, ScheduleInfo

ScheduleId = Annotated[str, typer.Argument(metavar="ID", help="A schedule, as perdure schedules shows it.")]

schedules = CommandGroup(
    help="All that begins at a time (--at, --every): listed; paused, resumed or removed by its id."
)


def register(app: typer.Typer) -> None:
    app.add_typer(schedules, name="schedules", rich_help_panel=STEER)


@schedules.callback(invoke_without_command=True)
def list_schedules(context: typer.Context, json: Json = False) -> None:
    """List all that begins at a time (--at, --every), and what became of it the last time."""
    if context.invoked_subcommand is not None:
        return

    screen = Screen(json=json)

    async def work() -> list[ScheduleInfo]:
        return await (await connect_client(screen)).schedules.list()

    infos = run_coroutine(work())
    if json:
        screen.print_json([schedule_data(info) for info in infos])
    elif infos:
        screen.print_lines(schedule_rows(infos, screen.table_width))
    else:
        screen.print_line('nothing is scheduled: perdure backlog start FILE --every "weekdays 23:00"')


@schedules.command()
def pause(
    id: ScheduleId, note: Annotated[str, typer.Option("--note", metavar="TEXT", help="For who looks at it.")] = ""
) -> None:
    """Begin nothing until it is resumed; what runs goes on."""
    _run_and_print(lambda perdure: perdure.schedules.pause(id, note), f"{id} is paused; perdure schedules resume {id}")


@schedules.command()
def resume(id: ScheduleId) -> None:
    """Begin again at its times; those that passed meanwhile are not made up for."""
    _run_and_print(lambda perdure: perdure.schedules.resume(id), f"{id} goes on; perdure schedules shows when")


@schedules.command()
def remove(id: ScheduleId) -> None:
    """Forget it. What it has started goes on."""
    _run_and_print(lambda perdure: perdure.schedules.remove(id), f"{id} is removed; what it has started goes on")


def _run_and_print(work: Callable[[Perdure], Awaitable[None]], message: str) -> None:
    """Call `work` with a client of the server, and print the message once it is done."""
    screen = Screen()

    async def connect_and_work() -> None:
        await work(await connect_client(screen))

    run_coroutine(connect_and_work())
    screen.print_line(message)


def schedule_data(info: ScheduleInfo) -> dict[str, Any]:
    """Return a schedule as data for programs: times in ISO 8601; `next` null for one that is over."""
    return {**asdict(info), "next": info.next.isoformat() if info.next else None, "state": info.state}


def schedule_rows(infos: Sequence[ScheduleInfo], width: int | None, now: datetime | None = None) -> list[str]:
    """Return one line a schedule under a heading; below them, how many times of which schedule were skipped or
    missed."""
    heading = ("schedule", "what", "times", "next", "last", "about")
    cells = [(info.id, info.what, info.when, _next_cell(info, now), _last_cell(info), info.about) for info in infos]
    lines = align_columns([heading, *cells], width)
    for info in infos:
        if info.skipped:
            lines.append(f"! {info.id}: {pluralise(info.skipped, 'time')} skipped, its last run was still at work")
        if info.missed:
            lines.append(f"! {info.id}: {pluralise(info.missed, 'time')} missed, Temporal was down for an hour or more")
    return lines


def next_start_text(info: ScheduleInfo, now: datetime | None = None) -> str:
    """Return when a schedule begins next: `2026-11-23 22:00 UTC, in 1h 12m`; empty where it never does again."""
    if info.next is None:
        return ""
    remaining_s = (info.next - (now or datetime.now(UTC))).total_seconds()
    duration = f"{remaining_s / 86400:.0f} days" if remaining_s >= 2 * 86400 else span(remaining_s)
    return f"{info.next.astimezone(UTC):%Y-%m-%d %H:%M} UTC, in {duration}"


def _next_cell(info: ScheduleInfo, now: datetime | None) -> str:
    """Return the cell about the next start: its time, `paused` with the note, or the state of a schedule that is
    over."""
    if info.next is None:
        return info.state
    return "paused" + (f": {info.note}" if info.note != "paused" else "") if info.paused else next_start_text(info, now)


def _last_cell(info: ScheduleInfo) -> str:
    """Return the id of what the schedule started last, and what became of it; `-` where it has started nothing."""
    return f"{info.last} {info.outcome.replace('_', ' ')}" if info.last else "-"
