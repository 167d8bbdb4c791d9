"""`/activity`: the events of all deliveries and backlogs, the newest first, with filters; live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web
from temporalio.service import RPCError

from perdure.cli.look.events import format_data
from perdure.client.event_feed import all_events
from perdure.models.amounts import parse_duration
from perdure.models.errors import BadInput
from perdure.models.events import Event, EventType
from perdure.page.feed import FEED
from perdure.page.live import ALIVE_S, STILL_HERE
from perdure.page.position import LATE, StreamPosition
from perdure.page.render import perdure_of, render, render_text

SHOWN = 300
"""Events on one page, the newest: a screen of some metres. What was before them `perdure events` prints."""

BACK = ("1h", "6h", "24h", "7d")


def routes() -> list[web.RouteDef]:
    return [web.get("/activity", show_activity), web.get("/live/activity", stream_activity)]


async def show_activity(request: web.Request) -> web.StreamResponse:
    """Render the page of the newest events that the filters in the query let through."""
    filters, now = _parse_filters(request.query), datetime.now(UTC)
    newest, position = list[Event](), StreamPosition(now - LATE)
    async with aclosing(all_events(perdure_of(request).client, now - filters["back"])) as events:
        async for event in events:
            position.advance_past(event)
            if _passes(event, filters):
                newest = [*newest[-SHOWN + 1 :], event]
    values: dict[str, Any] = {"events": newest[::-1], "asked": filters, "types": list(EventType)}
    return render(request, "activity.html", **values, backs=BACK, told=format_data, position=str(position))


async def stream_activity(request: web.Request) -> web.StreamResponse:
    """Stream each event as it happens, once, that the filters let through.

    Where the browser lost the stream, it says the position it has reached, and the stream goes on from there.
    """
    filters = _parse_filters(request.query)
    position = StreamPosition.parse(request.headers.get("Last-Event-ID") or request.query.get("from", ""))
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await answer.prepare(request)
    with suppress(ConnectionResetError, RPCError):  # the browser asks again, from where it stands
        async with aclosing(_events_since(request, position.since)) as events:
            async for event in events:
                if event is None:
                    await answer.write(STILL_HERE)
                elif position.advance_past(event) and _passes(event, filters):
                    row = render_text(request, "event.html", event=event, told=format_data)
                    lines = "".join(f"data: {line}\n" for line in row.splitlines())
                    await answer.write(f"id: {position}\n{lines}\n".encode())
    return answer


async def _events_since(request: web.Request, since: datetime) -> AsyncGenerator[Event | None]:
    """Yield the events from that moment on, some of them twice; None now and then, while nothing happens.

    Ends where the shared feed does: the browser asks again.
    """
    async with request.app[FEED].subscribe() as to_come:
        async with aclosing(all_events(perdure_of(request).client, since)) as so_far:
            async for event in so_far:
                yield event
        while True:
            try:
                live_event = await asyncio.wait_for(to_come.get(), ALIVE_S)
            except TimeoutError:
                yield None
                continue
            if live_event is None:
                return
            yield live_event


def _parse_filters(query: Mapping[str, str]) -> dict[str, Any]:
    """Parse the filters of a query: how far back, event type, and a delivery, backlog or item.

    Raises BadInput for a wrong time.
    """
    back = query.get("back", "24h")
    try:
        delta = timedelta(seconds=parse_duration(back))
    except ValueError as error:
        raise BadInput(str(error), where="back", fix="write 30m or 24h") from None
    return {"back": delta, "words": back, "type": query.get("type", ""), "of": query.get("of", "").strip()}


def _passes(event: Event, filters: Mapping[str, Any]) -> bool:
    """Return True where the filters let an event through."""
    name = str(filters["of"])
    return filters["type"] in ("", event.type) and (
        not name or name in (event.delivery or "", event.backlog or "", event.item)
    )
