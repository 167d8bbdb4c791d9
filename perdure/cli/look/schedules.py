"""Deliveries and backlogs that begin at a time: schedules made for `--at` and `--every` of the commands that submit,
and `perdure schedules`, which lists, pauses, resumes and removes them. The times are parsed in
`perdure.cli.request.start_time`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from perdure.adapters.system.home import Home
from perdure.cli.event_loop import run_coroutine
from perdure.cli.request.start_time import StartTime
from perdure.cli.request.submit import header_lines, start_worker_and_connect
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client
from perdure.local.connect import web_ui_url
from perdure.models.ids import delivery_id
from perdure.models.rules.inbox import request_key
from perdure.models.schedule import RecurringTime
from perdure.render.formatting import align_columns
from perdure.text import format_count, shell_word, span

if TYPE_CHECKING:
    from perdure.cli.commands.start import DeliverOptions
    from perdure.cli.request.validation import CheckedRequest
    from perdure.client import Perdure, ScheduleInfo
    from perdure.models.backlog.request import BacklogRequest
    from perdure.models.delivery.request import DeliveryRequest


def list_schedules(context: typer.Context, json: bool) -> None:
    """Print all schedules of deliveries and backlogs, and what became of each the last time, as a table or JSON.

    Does nothing when a subcommand of `perdure schedules` follows. Raises BadInput for a server that knows no schedules.
    """
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


def pause(id: str, note: str) -> None:
    """Begin nothing until it is resumed; what runs goes on."""
    _run_and_print(
        lambda perdure: perdure.schedules.pause(id, note), f"{id} is paused; perdure schedules resume {shell_word(id)}"
    )


def resume(id: str) -> None:
    """Begin again at its times; those that passed meanwhile are not made up for."""
    _run_and_print(lambda perdure: perdure.schedules.resume(id), f"{id} goes on; perdure schedules shows when")


def remove(id: str) -> None:
    """Forget it."""
    _run_and_print(lambda perdure: perdure.schedules.remove(id), f"{id} is removed; what it has started goes on")


def _run_and_print(work: Callable[[Perdure], Awaitable[None]], message: str) -> None:
    """Call `work` with a client of the server, and print the message once it is done.

    Raises TemporalUnreachable when no server runs, and what `work` raises: BadInput when there is no such schedule.
    """
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
            lines.append(f"! {info.id}: {format_count(info.skipped, 'time')} skipped, its last run was still at work")
        if info.missed:
            lines.append(
                f"! {info.id}: {format_count(info.missed, 'time')} missed, Temporal was down for an hour or more"
            )
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


async def create_schedule(
    request: DeliveryRequest | BacklogRequest,
    id: str,
    start_time: StartTime,
    checked: CheckedRequest,
    screen: Screen,
    limits: list[str],
) -> None:
    """Make the schedule of a request under this id, unless exactly the same exists, and print it and when it begins, as
    lines or JSON.

    Starts server and worker where they are missing. `limits` are shown in the header. Raises BadInput for another
    schedule of that id, for one that the server refuses, for a server without schedules, and when the running worker
    has other keys than this process.
    """

    perdure = await start_worker_and_connect(checked, screen)
    is_new = await perdure.schedules.add(request, id, start_time.when, start_time.text)
    schedule = await perdure.schedules.get(id)
    if screen.json:
        screen.print_json({**schedule_data(schedule), "attached": not is_new})
        return
    page = await web_ui_url(Home.find(), id, "schedules")
    watching = ["perdure schedules", *([page] if page else [])]
    screen.print_lines(await asyncio.to_thread(header_lines, checked, id, watching, limits))
    screen.say(
        f"begins {start_time.text}"
        + (f", next {next_start_text(schedule)}" if isinstance(start_time.when, RecurringTime) else "")
    )
    if not is_new:
        screen.say(f"{id} is scheduled already: nothing new was made")
    elif not checked.elsewhere:
        screen.say(
            "this machine has to run then: its worker stays for it, perdure up starts it again; an hour late is missed"
        )


async def schedule_delivery(
    checked: CheckedRequest, deliver_options: DeliverOptions, start_time: StartTime, screen: Screen, *, name: str = ""
) -> None:
    """Make the schedule of a delivery, and print when it begins.

    The default id is that of the issue, or made from what is wanted and when: the same request at the same time has one
    schedule. `name` stands for a single phase in that id, so that it differs from the whole delivery's. Raises
    InvalidRequest for an issue that cannot be delivered, such as a closed one, and BadInput when another schedule has
    the id.
    """
    if checked.work.refusal is not None:
        raise checked.work.refusal
    request = checked.request
    text_id = delivery_id(request.repository, name or request.caption, *request_key(request), start_time.text)
    default_id = checked.issue_id if request.issue is not None and not name else text_id
    await create_schedule(request, deliver_options.id or default_id, start_time, checked, screen, [])
