"""Events as they happen, followed once for all browsers that look, and only while one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime

from aiohttp import web
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.client.event_feed import all_events
from perdure.models.events import Event

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
