"""`/activity`: the events of all deliveries and backlogs, the newest first, with filters; live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web
from temporalio.service import RPCError

from perdure.cli.look.events import told
from perdure.client.event_feed import all_events
from perdure.models.amounts import seconds
from perdure.models.errors import BadInput
from perdure.models.events import Event, EventType
from perdure.page.feed import FEED
from perdure.page.live import ALIVE_S, STILL_HERE
from perdure.page.position import LATE, Position
from perdure.page.render import perdure_of, render, rendered

SHOWN = 300
"""Events on one page, the newest: a screen of some metres. What was before them `perdure events` prints."""

BACK = ("1h", "6h", "24h", "7d")


def routes() -> list[web.RouteDef]:
    return [web.get("/activity", show), web.get("/live/activity", live)]


async def show(request: web.Request) -> web.StreamResponse:
    """The newest events that the filters let through."""
    asked, now = _asked(request.query), datetime.now(UTC)
    found, position = list[Event](), Position(now - LATE)
    async with aclosing(all_events(perdure_of(request).client, now - asked["back"])) as events:
        async for event in events:
            position.take(event)
            if _wanted(event, asked):
                found = [*found[-SHOWN + 1 :], event]
    values: dict[str, Any] = {"events": found[::-1], "asked": asked, "types": list(EventType)}
    return render(request, "activity.html", **values, backs=BACK, told=told, position=str(position))


async def live(request: web.Request) -> web.StreamResponse:
    """Each event as it happens, once: where the browser lost the stream it says which place it has reached."""
    asked = _asked(request.query)
    position = Position.read(request.headers.get("Last-Event-ID") or request.query.get("from", ""))
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await answer.prepare(request)
    with suppress(ConnectionResetError, RPCError):  # the browser asks again, from where it stands
        async with aclosing(_events(request, position.since)) as events:
            async for event in events:
                if event is None:
                    await answer.write(STILL_HERE)
                elif position.take(event) and _wanted(event, asked):
                    row = rendered(request, "event.html", event=event, told=told)
                    lines = "".join(f"data: {line}\n" for line in row.splitlines())
                    await answer.write(f"id: {position}\n{lines}\n".encode())
    return answer


async def _events(request: web.Request, since: datetime) -> AsyncGenerator[Event | None]:
    """The events from that moment on, some of them twice; None now and then, while nothing happens."""
    async with request.app[FEED].joined() as to_come:
        async with aclosing(all_events(perdure_of(request).client, since)) as so_far:
            async for event in so_far:
                yield event
        while True:
            try:
                found = await asyncio.wait_for(to_come.get(), ALIVE_S)
            except TimeoutError:
                yield None
                continue
            if found is None:
                return
            yield found


def _asked(query: Mapping[str, str]) -> dict[str, Any]:
    """The filters; BadInput for a time that is none."""
    back = query.get("back", "24h")
    try:
        delta = timedelta(seconds=seconds(back))
    except ValueError as error:
        raise BadInput(str(error), where="back", fix="write 30m or 24h") from None
    return {"back": delta, "words": back, "type": query.get("type", ""), "of": query.get("of", "").strip()}


def _wanted(event: Event, asked: Mapping[str, Any]) -> bool:
    of = str(asked["of"])
    return asked["type"] in ("", event.type) and (
        not of or of in (event.delivery or "", event.backlog or "", event.item)
    )
