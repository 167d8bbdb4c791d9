"""The events of many workflows in one stream, for `perdure logs` and the page: of a backlog with its deliveries, or of
a whole namespace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from datetime import datetime
from heapq import merge
from itertools import accumulate
from typing import Any

from temporalio.client import Client

from perdure.client.history.events import stream_events
from perdure.client.server.view import list_newest
from perdure.models.errors import BadInput
from perdure.models.events import Event, EventType
from perdure.models.ids import BACKLOG_WORKFLOW, DELIVERY_WORKFLOW

LOOK_EVERY_S = 2.0
"""Pause between two looks at the list for deliveries and backlogs that are new in a namespace: lists are a second
behind anyway."""

MOST = 1000
"""Most deliveries and most backlogs, the newest, whose events are read for a namespace."""

AT_ONCE = 8
"""Histories that are read at the same time."""


async def backlog_events(client: Client, id: str, *, follow: bool = False) -> AsyncIterator[Event]:
    """Yield the events of a backlog and of all deliveries of its items; with `follow`, go on until the backlog ends.

    Offsets count within each delivery. Raises BadInput when there is no such backlog.
    """
    feed = _MergedStreams(client)
    for event in await feed.past_events([id]):
        yield event
    if follow:
        async for event in feed.follow_events(id):
            yield event


async def all_events(client: Client, since: datetime, *, follow: bool = False) -> AsyncGenerator[Event]:
    """Yield the events after `since` of all deliveries and backlogs that ran after it; with `follow`, for ever."""
    feed = _MergedStreams(client)
    for event in await feed.past_events(await _ids_since(client, since)):
        if datetime.fromisoformat(event.time) >= since:
            yield event
    if follow:
        async for event in feed.follow_events(None):
            yield event


async def _ids_since(client: Client, since: datetime) -> list[str]:
    """List the ids of the deliveries and backlogs that run or have ended after `since`, at most MOST of each."""
    query = f"(ExecutionStatus = 'Running' OR CloseTime >= '{since.isoformat()}')"
    entries = [
        entry
        for kind in (DELIVERY_WORKFLOW, BACKLOG_WORKFLOW)
        for entry in await list_newest(client, MOST, query, kind)
    ]
    return [entry.delivery_id for entry in entries]


class _MergedStreams:
    """The event streams of several deliveries and backlogs, merged: first all that has happened, then what happens."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._next_offsets: dict[str, int] = {}
        self._begun_ids: list[str] = []
        self._began = datetime.now().astimezone()

    async def past_events(self, ids: list[str]) -> list[Event]:
        """Return all events so far of these ids, and of the deliveries that backlogs among them have begun, by time.

        Records where each stream was read to, for `follow_events`. Raises BadInput when there is no workflow of one of
        the ids, and RPCError when the server fails.
        """
        slots = asyncio.Semaphore(AT_ONCE)

        async def read_stream(id: str) -> list[Event]:
            async with slots:
                return [event async for event in stream_events(self._client, id)]

        streams = list[list[Event]]()
        while ids:
            self._next_offsets.update(dict.fromkeys(ids, 0))
            fetched = await asyncio.gather(*map(read_stream, ids))
            for event in (event for stream in fetched for event in stream):
                self._record_offset(event)
            streams += fetched
            ids = self.pop_unread_ids()
        # Merged by time, but each stream in its own order: a server's clock was seen to go back within one.
        placed = (zip(accumulate((event.time for event in stream), max), stream, strict=True) for stream in streams)
        return [event for _, event in merge(*placed, key=lambda fetched: (fetched[0], fetched[1].delivery or ""))]

    def pop_unread_ids(self) -> list[str]:
        """Return the ids of deliveries that backlogs have begun and that were not read yet, and forget them."""
        named, self._begun_ids = [id for id in self._begun_ids if id not in self._next_offsets], []
        return list(dict.fromkeys(named))

    async def follow_events(self, backlog_id: str | None) -> AsyncIterator[Event]:
        """Yield the events that follow, of all streams read so far and of those that begin, until all of them have
        ended.

        `backlog_id` None: for ever, with every delivery and backlog that is new in the namespace. Follows each stream
        in a task of its own; all are cancelled at the end. Raises the error of a stream that fails.
        """
        queue: asyncio.Queue[Event | str | asyncio.Task[None]] = asyncio.Queue()
        tasks: dict[str, asyncio.Task[None]] = {}

        def follow(id: str) -> None:
            if id not in tasks:
                work = self._queue_events(id, queue) if id else self._queue_new_ids(queue)
                tasks[id] = asyncio.create_task(work)
                tasks[id].add_done_callback(queue.put_nowait)  # its end may be that of all

        for id in [*self._next_offsets, *([""] if backlog_id is None else [])]:
            follow(id)
        try:
            while not (backlog_id in tasks and all(task.done() for task in tasks.values()) and queue.empty()):
                received = await queue.get()
                if isinstance(received, Event):
                    self._record_offset(received)
                    yield received
                elif isinstance(received, str):
                    follow(received)
                else:
                    received.result()
                for id in self.pop_unread_ids():
                    follow(id)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _queue_events(self, id: str, queue: asyncio.Queue[Any]) -> None:
        """Put a workflow's events into the queue as they happen, from where it was read, until it has ended.

        Nothing where there is no such workflow: a backlog may name a delivery before it starts it, and retention
        deletes some. Raises RPCError when the server cannot be reached.
        """
        with suppress(BadInput):  # named by a backlog that has not started it yet, or taken by retention
            async for event in stream_events(self._client, id, follow=True, since=self._next_offsets.get(id, 0)):
                await queue.put(event)

    async def _queue_new_ids(self, queue: asyncio.Queue[Any]) -> None:
        """Put the ids of all that runs or has run since this began into the queue, every LOOK_EVERY_S, for ever."""
        while True:
            for id in await _ids_since(self._client, self._began):
                await queue.put(id)
            await asyncio.sleep(LOOK_EVERY_S)

    def _record_offset(self, event: Event) -> None:
        """Record the next offset of the event's stream and, when a backlog has begun a delivery with it, that
        delivery's id.
        """
        id = event.delivery or event.backlog or ""
        self._next_offsets[id] = event.offset + 1
        if event.type is EventType.ITEM and event.data.get("event") == "begins":
            self._begun_ids.append(str(event.data.get("delivery")))
