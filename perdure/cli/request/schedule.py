"""The options `--at` and `--every`: a delivery or a backlog that begins later, or again and again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.look.schedules import next_start_text, schedule_data
from perdure.cli.screen import Screen
from perdure.models.errors import BadInput
from perdure.models.ids import delivery_id

if TYPE_CHECKING:
    from perdure.cli.request.validation import CheckedRequest, DeliverOptions
    from perdure.models.backlog import BacklogRequest
    from perdure.models.request import DeliveryRequest
    from perdure.models.schedule import RecurringTime

AtOption = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Begin then: 23:00, 2026-11-23 23:00 Europe/Berlin; else UTC."),
]
EveryOption = Annotated[
    str | None,
    typer.Option(
        "--every", metavar="TIMES", help="Begin again and again: weekdays 23:00, mon,thu 09:30 Europe/Berlin."
    ),
]


@dataclass(frozen=True)
class StartTime:
    """The time at which something begins. `when`: a moment in UTC, or the days and hours; `text`: the same for a
    person, with the zone."""

    when: RecurringTime | datetime
    text: str


def parse_start_time(at: str | None, every: str | None, now: datetime | None = None) -> StartTime | None:
    """Parse `--at` and `--every`; None where neither is given and it begins at once.

    Raises BadInput for both together, for what is no time, a moment in the past, and a time zone that this host does
    not know.
    """
    from perdure.adapters.system.zones import find_zone
    from perdure.models.schedule import RecurringTime, SingleTime

    if at is None and every is None:
        return None
    if at is not None and every is not None:
        raise BadInput("once and again and again were asked for", where="--at and --every", fix="give one of them")
    option_name, fix = ("--at", "--at 23:00") if at is not None else ("--every", '--every "weekdays 23:00"')
    try:
        if every is not None:
            recurring = RecurringTime.parse(every)
            find_zone(recurring.utc_offset_minutes, recurring.zone)
            return StartTime(recurring, recurring.text)
        single = SingleTime.parse(at or "")
        zone = find_zone(single.utc_offset_minutes, single.zone)
        moment = single.next_occurrence(now or datetime.now(UTC), zone)
    except ValueError as error:
        raise BadInput(str(error), where=option_name, fix=fix) from None
    return StartTime(moment, f"{moment.astimezone(zone):%Y-%m-%d %H:%M} {single.zone_text}")


async def create_schedule(
    request: DeliveryRequest | BacklogRequest,
    id: str,
    start_time: StartTime,
    checked: CheckedRequest,
    screen: Screen,
    limits: list[str],
) -> None:
    """Make the schedule of a request under this id, unless exactly the same exists, and print when it begins.

    Starts server and worker where they are missing. `limits` are shown in the header. Raises BadInput for another
    schedule of that id.
    """
    import asyncio

    from perdure.adapters.system.home import Home
    from perdure.cli.host.web import web_ui_url
    from perdure.cli.request.submit import header_lines, start_worker_and_connect
    from perdure.models.schedule import RecurringTime

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
    schedule. `name` stands for a single phase in that id, so that it differs from the whole delivery's. Raises the
    refusal of an issue that cannot be delivered.
    """
    from perdure.models.rules.attaching import request_key

    if checked.work.refusal is not None:
        raise checked.work.refusal
    request = checked.request
    text_id = delivery_id(request.repository, name or request.caption, *request_key(request), start_time.text)
    default_id = checked.issue_id if request.issue is not None and not name else text_id
    await create_schedule(request, deliver_options.id or default_id, start_time, checked, screen, [])
