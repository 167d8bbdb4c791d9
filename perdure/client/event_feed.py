"""The events of many: of a backlog with its deliveries, or of a whole namespace, oldest first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from datetime import datetime
from heapq import merge
from itertools import accumulate

from temporalio.client import Client

from perdure.client.events import events
from perdure.client.listing import newest
from perdure.client.submit import WORKFLOW
from perdure.models.errors import BadInput
from perdure.models.events import Event, EventType

LOOK_EVERY_S = 2.0
"""Between two looks at the list for what is new in a namespace: lists are a second behind anyway."""

MOST = 1000
"""Deliveries and backlogs whose events are read at once; the newest."""

AT_ONCE = 8
"""Histories that are read beside each other."""


async def backlog_events(client: Client, id: str, *, follow: bool = False) -> AsyncIterator[Event]:
    """The events of a backlog and of all deliveries of its items; offsets count within each. BadInput for no backlog.

    With `follow` also those to come, until the backlog has ended.
    """
    feed = _Feed(client)
    for event in await feed.so_far([id]):
        yield event
    if follow:
        async for event in feed.to_come(id):
            yield event


async def all_events(client: Client, since: datetime, *, follow: bool = False) -> AsyncGenerator[Event]:
    """The events after `since` of all deliveries and backlogs that ran after it; with `follow` for ever."""
    feed = _Feed(client)
    for event in await feed.so_far(await _listed(client, since)):
        if datetime.fromisoformat(event.time) >= since:
            yield event
    if follow:
        async for event in feed.to_come(None):
            yield event


async def _listed(client: Client, since: datetime) -> list[str]:
    query = f"(ExecutionStatus = 'Running' OR CloseTime >= '{since.isoformat()}')"
    found = [one for kind in (WORKFLOW, "Backlog") for one in await newest(client, MOST, query, kind)]
    return [one.delivery_id for one in found]


class _Feed:
    """Many streams, each read to where it stands, then followed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._next: dict[str, int] = {}
        self._named: list[str] = []
        self._began = datetime.now().astimezone()

    async def so_far(self, ids: list[str]) -> list[Event]:
        """Return everything that has happened to these, and to the deliveries they have begun, by time."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def read(id: str) -> list[Event]:
            async with slots:
                return [event async for event in events(self._client, id)]

        streams = list[list[Event]]()
        while ids:
            self._next.update(dict.fromkeys(ids, 0))
            found = await asyncio.gather(*map(read, ids))
            for event in (event for stream in found for event in stream):
                self._seen(event)
            streams += found
            ids = self.unread()
        # By time, and in its own order within each stream: a server's clock was seen to go back there.
        placed = (zip(accumulate((event.time for event in stream), max), stream, strict=True) for stream in streams)
        return [event for _, event in merge(*placed, key=lambda found: (found[0], found[1].delivery or ""))]

    def unread(self) -> list[str]:
        """Return the deliveries that backlogs have begun and that were not read yet."""
        named, self._named = [id for id in self._named if id not in self._next], []
        return list(dict.fromkeys(named))

    async def to_come(self, until: str | None) -> AsyncIterator[Event]:
        """Events as they happen, of all that were read, and of those that begin; until that backlog has ended."""
        queue: asyncio.Queue[Event | str] = asyncio.Queue()
        tasks: dict[str, asyncio.Task[None]] = {}

        def follow(id: str) -> None:
            if id not in tasks:
                tasks[id] = asyncio.create_task(self._pump(id, queue))

        for id in self._next:
            follow(id)
        if until is None:
            tasks[""] = asyncio.create_task(self._look(queue))
        try:
            while not (until in tasks and all(task.done() for task in tasks.values()) and queue.empty()):
                found = await queue.get()
                if isinstance(found, Event):
                    self._seen(found)
                    yield found
                for id in [*self.unread(), *([found] if isinstance(found, str) and found else [])]:
                    follow(id)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _pump(self, id: str, queue: asyncio.Queue[Event | str]) -> None:
        with suppress(BadInput):  # named by a backlog that has not started it yet, or taken by retention
            async for event in events(self._client, id, follow=True, since=self._next.get(id, 0)):
                await queue.put(event)
        await queue.put("")  # its end may be that of all

    async def _look(self, queue: asyncio.Queue[Event | str]) -> None:
        while True:
            for id in await _listed(self._client, self._began):
                await queue.put(id)
            await asyncio.sleep(LOOK_EVERY_S)

    def _seen(self, event: Event) -> None:
        id = event.delivery or event.backlog or ""
        self._next[id] = event.offset + 1
        if event.type is EventType.ITEM and event.data.get("event") == "begins":
            self._named.append(str(event.data.get("delivery")))
