"""`/activity`: the events of all deliveries and backlogs, the newest first, by delivery and step, with filters; live.
They are followed once for all browsers that look, and each browser has its exact place in them."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from aiohttp import web
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.client.history.event_feed import all_events
from perdure.models.duration import parse_duration
from perdure.models.errors import BadInput
from perdure.models.events import Event, EventType
from perdure.page.render import ALIVE_S, STILL_HERE, TITLES, perdure_of, render, render_text
from perdure.page.views.conversation import has_row
from perdure.render.event_text import event_sentence
from perdure.text import shorten

UNREAD = 5000
"""Most events that wait for one browser: one that reads no more has to ask again, from where it stands."""

Subscription = asyncio.Queue[Event | None]
"""The queue of one who looks; None in it: no more events come, ask again."""


class SharedFeed:
    """The events of all deliveries and backlogs, shared among those who look."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._subscriptions = set[Subscription]()
        self._follow_task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[Subscription]:
        """Yield a queue that gets every event from now on, once each; the subscription ends with the block.

        The first subscription starts the task that follows all events, and the end of the last one cancels it.
        """
        subscription = Subscription()
        self._subscriptions.add(subscription)
        if self._follow_task is None or self._follow_task.done():
            self._follow_task = asyncio.create_task(self._follow_all())
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            if not self._subscriptions:
                self._follow_task.cancel()

    async def _follow_all(self) -> None:
        """Follow all events and give them to all subscriptions.

        At the end, also when the server is gone, puts None into each.
        """
        try:
            async with aclosing(all_events(self._client, datetime.now(UTC), follow=True)) as events:
                async for event in events:
                    self._broadcast(event)
        except RPCError:
            pass  # the server is gone: they ask again
        finally:
            for waiting in self._subscriptions:
                waiting.put_nowait(None)

    def _broadcast(self, event: Event) -> None:
        """Put an event into the queue of each subscription; one whose queue is full gets None and is dropped."""
        for waiting in tuple(self._subscriptions):
            full = waiting.qsize() >= UNREAD
            waiting.put_nowait(None if full else event)
            if full:
                self._subscriptions.discard(waiting)


FEED: web.AppKey[SharedFeed] = web.AppKey("feed")


LATE = timedelta(seconds=30)
"""The time after newer ones of other streams an event may be told: lists are seconds behind."""

LONGEST_BACK = timedelta(days=1)
"""Nobody goes on from further back: the page itself shows what was before."""

_STREAMS = 300
"""Most streams in one position: with more, those told of longest ago count as told up to then. 5 KB; a header takes
8."""

_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)

_WRITTEN = re.compile(r"(\d{1,15})((?:~[0-9a-f]{10}\.\d{1,9})*)")


class StreamPosition:
    """A place in the feed: all up to one moment and, of each stream that has told something since then, its next
    offset.

    A time alone is no place: events of one millisecond are many, and streams are told as they are read.
    """

    def __init__(self, since: datetime) -> None:
        self._until = _ms(since)
        self._next: dict[str, tuple[int, int]] = {}  # stream → its next offset, and the time of its last event

    @classmethod
    def parse(cls, text: str) -> StreamPosition:
        """Parse a position as `str` wrote it, at most a day back; any other text means now."""
        now = datetime.now(UTC)
        if (match := _WRITTEN.fullmatch(text)) is None:
            return cls(now)
        position = cls(now - LONGEST_BACK)
        position._until = max(position._until, int(match[1]))
        for part in match[2].split("~")[1:]:
            stream, _, offset = part.partition(".")
            position._next[stream] = int(offset), position._until + LATE // _MS
        return position

    def __str__(self) -> str:
        return "~".join([str(self._until), *(f"{stream}.{offset}" for stream, (offset, _) in self._next.items())])

    @property
    def since(self) -> datetime:
        """Return the moment before which no event is missing."""
        return _EPOCH + self._until * _MS

    def advance_past(self, event: Event) -> bool:
        """Record an event as told; return True when it was not told before, else False and change nothing.

        Moves the moment up to which all counts as told to LATE before the event's time, and forgets streams without
        events since that moment.
        """
        time = _ms(datetime.fromisoformat(event.time))
        stream = sha256((event.delivery or event.backlog or "").encode()).hexdigest()[:10]
        reached = self._next.get(stream)
        if event.offset < reached[0] if reached is not None else time <= self._until:
            return False
        self._next[stream] = event.offset + 1, max(time, reached[1] if reached is not None else 0)
        self._until = max(self._until, time - LATE // _MS)
        if len(self._next) > _STREAMS:
            self._until = max(self._until, min(last for _, last in self._next.values()))
        self._next = {name: place for name, place in self._next.items() if place[1] > self._until}
        return True


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // _MS


SHOWN = 300
"""Events on one page: a screen of some metres. Older ones are on further pages."""

BACK = ("1h", "6h", "24h", "7d")


def routes() -> list[web.RouteDef]:
    return [web.get("/activity", show_activity), web.get("/live/activity", stream_activity)]


@dataclass(frozen=True)
class ActivityGroup:
    """Events of one step of one delivery, of a delivery outside its steps, or of a backlog; the newest first."""

    subject: str
    is_backlog: bool
    step: str
    events: Sequence[Event]


async def show_activity(request: web.Request) -> web.StreamResponse:
    """Render the page of the newest SHOWN events that the filters in the query let through, with the place to go on
    from; with `before` in the query, a time, of those before that, with a link to older ones where there are any.

    Raises BadInput when a time in the query is wrong.
    """
    filters, now = _parse_filters(request.query), datetime.now(UTC)
    before, position = _parse_before(request.query.get("before", "")), StreamPosition(now - LATE)
    passed = list[Event]()
    async with aclosing(all_events(perdure_of(request).client, now - filters["back"])) as events:
        async for event in events:
            position.advance_past(event)
            if (not before or event.time < before) and _passes(event, filters):
                passed.append(event)
    shown, older = newest_events(passed)
    return render(
        request,
        "activity.html",
        groups=group_events(shown),
        titles=await request.app[TITLES].read_titles(map(_subject_of, shown)),
        older=older,
        live="" if before else str(position),
        asked=filters,
        types=list(EventType),
        backs=BACK,
        sentence=event_sentence,
    )


def newest_events(events: Sequence[Event]) -> tuple[list[Event], str]:
    """Return the newest SHOWN events, the newest first, and the time before which the next page begins; empty where
    there is none. Events of one millisecond stay on one page, so there may be fewer, or more where all are of one."""
    newest = sorted(events, key=lambda event: event.time, reverse=True)
    if len(newest) <= SHOWN:
        return newest, ""
    end = SHOWN
    while end and newest[end - 1].time == newest[SHOWN].time:
        end -= 1
    while not end or (end < len(newest) and newest[end].time == newest[end - 1].time):
        end += 1
    return newest[:end], newest[end - 1].time if end < len(newest) else ""


def group_events(events: Sequence[Event]) -> list[ActivityGroup]:
    """Return events by delivery and step, the group with the newest event first; each keeps the order of its events."""
    groups = defaultdict[tuple[str, bool, str], list[Event]](list)
    for event in events:
        groups[_subject_of(event), not event.delivery, event.step or ""].append(event)
    return [ActivityGroup(*key, members) for key, members in groups.items()]


async def stream_activity(request: web.Request) -> web.StreamResponse:
    """Stream each event that the filters in the query let through as it happens, once, until nobody reads any more.

    A browser that lost the stream says the position it has reached, and the stream goes on from there. Ends when
    Temporal fails: the browser asks again. Raises BadInput when the time in the query is wrong.
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
                    titles = await request.app[TITLES].read_titles([_subject_of(event)])
                    row = render_text(request, "event.html", event=event, sentence=event_sentence, titles=titles)
                    lines = "".join(f"data: {line}\n" for line in row.splitlines())
                    await answer.write(f"id: {position}\n{lines}\n".encode())
    return answer


async def _events_since(request: web.Request, since: datetime) -> AsyncGenerator[Event | None]:
    """Yield the events from that moment on, some of them twice; None after each ALIVE_S seconds without an event.

    Ends when the shared feed ends, or this reader is too far behind it: the browser then asks again.
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


def _parse_before(text: str) -> str:
    """Return a time of an event as events have it; empty for none. Raises BadInput for what is no time."""
    if text and not _EVENT_TIME.fullmatch(text):
        raise BadInput(f"{shorten(text, 40)!r} is no time of an event", where="before", fix="open the activity again")
    return text


_EVENT_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)")


def _subject_of(event: Event) -> str:
    return event.delivery or event.backlog or ""


def _passes(event: Event, filters: Mapping[str, Any]) -> bool:
    """Return True where the filters let an event through; one that repeats another only where its type is asked for."""
    name = str(filters["of"])
    if not filters["type"] and not has_row(event):
        return False
    return filters["type"] in ("", event.type) and (
        not name or name in (event.delivery or "", event.backlog or "", event.item)
    )
