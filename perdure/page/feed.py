"""Events as they happen: followed once for all who look, and only while somebody does."""

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
"""Events that wait for one who looks: a browser that reads no more asks again, from where it stands."""

Waiting = asyncio.Queue[Event | None]
"""Of one who looks; None: there come no more, ask again."""


class Feed:
    """The events of all deliveries and backlogs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._looking = set[Waiting]()
        self._following: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[Waiting]:
        """All that happens from here on, once each."""
        mine = Waiting()
        self._looking.add(mine)
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow())
        try:
            yield mine
        finally:
            self._looking.discard(mine)
            if not self._looking:
                self._following.cancel()

    async def _follow(self) -> None:
        try:
            async with aclosing(all_events(self._client, datetime.now(UTC), follow=True)) as events:
                async for event in events:
                    self._tell(event)
        except RPCError:
            pass  # the server is gone: they ask again
        finally:
            for waiting in self._looking:
                waiting.put_nowait(None)

    def _tell(self, event: Event) -> None:
        for waiting in tuple(self._looking):
            full = waiting.qsize() >= UNREAD
            waiting.put_nowait(None if full else event)
            if full:
                self._looking.discard(waiting)


FEED: web.AppKey[Feed] = web.AppKey("feed")
