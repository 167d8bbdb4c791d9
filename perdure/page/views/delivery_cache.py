"""All that the page knows of a delivery: described, read and kept once for all who look at it, however many they are.

Read from its history and its host: no workflow is asked, so that looking wakes none.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence

from aiohttp import web

from perdure.client import Delivery, RunDescription
from perdure.models.delivery.conversation import ConversationTurn
from perdure.models.events import Event
from perdure.page.render import LOOK_EVERY_S, perdure_of
from perdure.render.report.facts import DeliveryReport
from perdure.render.report.gather import HostReader, gather_report

_WATCHED_MOST = 16
"""Deliveries of which something is kept, those that were looked at last: a MB or two each."""

_TURNS_KEPT = 500
"""Turns of one delivery whose words are kept: 2 to 20 KB each, and what is older is read again when asked for."""

_Key = tuple[str, int, bool]


class WatchedDelivery:
    """One delivery, as far as it has been read; everything is read again only once its history has grown."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self._looking, self._reading = asyncio.Lock(), asyncio.Lock()
        self._seen: RunDescription | None = None
        self._seen_at = 0.0
        self._events, self._events_key = list[Event](), ("", 0, False)
        self._reports: dict[Collection[str], tuple[_Key, DeliveryReport]] = {}
        self._turns = OrderedDict[str, ConversationTurn]()

    async def read_description(self, *, fresh: bool = False) -> RunDescription:
        """Return the server's description, at most LOOK_EVERY_S old, with `fresh` a new one.

        Raises BadInput when there is no such delivery, and RPCError when the server does not answer.
        """
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if fresh or self._seen is None or now - self._seen_at >= LOOK_EVERY_S:
                self._seen = await self.delivery.describe()
                self._seen_at = now
            return self._seen

    async def read_events(self, seen: RunDescription) -> Sequence[Event]:
        """Return all its events so far, each at the place that its offset names. Raises as `read_description` does."""
        async with self._reading:
            if self._events_key != (key := _key_of(seen)):
                self._events += [event async for event in self.delivery.events(since=len(self._events))]
                self._events_key = key
            return self._events

    async def read_report(self, seen: RunDescription, parts: Collection[str]) -> DeliveryReport:
        """Return its report with these parts, names of HOST_PARTS, from its host. Raises as `read_description` does."""
        async with self._reading:
            kept = self._reports.get(parts)
            if kept is None or kept[0] != _key_of(seen):
                kept = _key_of(seen), await gather_report(self.delivery, passive=True, parts=parts)
                self._reports[parts] = kept
            return kept[1]

    async def read_turns(self, checkpoints: Sequence[str], queue: str) -> tuple[dict[str, ConversationTurn], str]:
        """Return the turns that ended with these checkpoints, oldest first, by checkpoint, without those that cannot be
        read now; and why not, empty where all are there. `queue` is its host's."""
        reader = HostReader(self.delivery, queue)
        async with self._reading:
            for checkpoint in reversed(checkpoints):
                if checkpoint in self._turns:
                    continue
                if not (turns := await reader.read_conversation(checkpoint)):
                    break
                self._turns |= {turn.checkpoint: turn for turn in reversed(turns)}
            turns_by_checkpoint = {one: self._turns[one] for one in checkpoints if one in self._turns}
            while len(self._turns) > max(_TURNS_KEPT, len(checkpoints)):
                self._turns.popitem(last=False)
        return turns_by_checkpoint, "; ".join(reader.unread)


WATCHED: web.AppKey[OrderedDict[str, WatchedDelivery]] = web.AppKey("watched")


def watched_delivery(request: web.Request) -> WatchedDelivery:
    """Return the delivery that the request's path names, with what was read of it before."""
    kept, id = request.app[WATCHED], request.match_info["id"]
    watched = kept.setdefault(id, WatchedDelivery(perdure_of(request).delivery(id)))
    kept.move_to_end(id)
    while len(kept) > _WATCHED_MOST:
        kept.popitem(last=False)
    return watched


def _key_of(seen: RunDescription) -> _Key:
    return seen.run_id, seen.events, seen.running
