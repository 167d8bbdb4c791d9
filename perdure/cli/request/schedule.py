"""`--at` and `--every`: a delivery or a backlog that begins later, or again and again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.look.schedules import begins_in, shown
from perdure.cli.screen import Screen
from perdure.models.errors import BadInput
from perdure.models.ids import delivery_id

if TYPE_CHECKING:
    from perdure.cli.request.validation import DeliverOptions, Taken
    from perdure.models.backlog import BacklogRequest
    from perdure.models.request import DeliveryRequest
    from perdure.models.schedule import Every

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
class Timed:
    """`when`: a moment in UTC, or the days and hours; `said`: in words, with the zone."""

    when: Every | datetime
    said: str


def timed(at: str | None, every: str | None, now: datetime | None = None) -> Timed | None:
    """None where it begins at once. BadInput for what is no time, or past, or of a zone that nobody knows."""
    from perdure.adapters.system.zones import clock
    from perdure.models.schedule import At, Every

    if at is None and every is None:
        return None
    if at is not None and every is not None:
        raise BadInput("once and again and again were asked for", where="--at and --every", fix="give one of them")
    option, fix = ("--at", "--at 23:00") if at is not None else ("--every", '--every "weekdays 23:00"')
    try:
        if every is not None:
            again = Every.parse(every)
            clock(again.minutes, again.zone)
            return Timed(again, again.said)
        once = At.parse(at or "")
        there = clock(once.minutes, once.zone)
        moment = once.moment(now or datetime.now(UTC), there)
    except ValueError as error:
        raise BadInput(str(error), where=option, fix=fix) from None
    return Timed(moment, f"{moment.astimezone(there):%Y-%m-%d %H:%M} {once.said}")


async def put_on(
    request: DeliveryRequest | BacklogRequest, id: str, at: Timed, taken: Taken, screen: Screen, limits: list[str]
) -> None:
    """Make its schedule, where the very same is not there, and tell when it begins."""
    import asyncio

    from perdure.adapters.system.home import Home
    from perdure.cli.host.web import web_page
    from perdure.cli.request.submit import at_work, header_lines
    from perdure.models.schedule import Every

    perdure = await at_work(taken, screen)
    new = await perdure.schedules.add(request, id, at.when, at.said)
    found = await perdure.schedules.get(id)
    if screen.json:
        screen.data({**shown(found), "attached": not new})
        return
    page = await web_page(Home.find(), id, "schedules")
    watching = ["perdure schedules", *([page] if page else [])]
    screen.lines(await asyncio.to_thread(header_lines, taken, id, watching, limits))
    screen.say(f"begins {at.said}" + (f", next {begins_in(found)}" if isinstance(at.when, Every) else ""))
    if not new:
        screen.say(f"{id} is scheduled already: nothing new was made")
    elif not taken.elsewhere:
        screen.say(
            "this machine has to run then: its worker stays for it, perdure up starts it again; an hour late is missed"
        )


async def schedule_delivery(taken: Taken, asked: DeliverOptions, at: Timed, screen: Screen, *, name: str = "") -> None:
    """Of the same words at the same time there is one; of an issue one at all. `name`: of one phase, in words: that is
    another one than the delivery of the whole."""
    from perdure.models.rules.attaching import wish

    if taken.meant.refusal is not None:
        raise taken.meant.refusal
    sent = taken.request
    words = delivery_id(sent.repository, name or sent.caption, *wish(sent), at.said)
    whole = taken.issue_id if sent.issue is not None and not name else words
    await put_on(sent, asked.id or whole, at, taken, screen, [])
