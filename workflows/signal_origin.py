"""The signals of a backlog's deliveries, of which any client may send some in a delivery's name: each is recorded once
the server says that the delivery has sent it.

The server is asked by local activity `signal_origin`, whose result is one event of the backlog's history, for all
signals that have come together. Signals are recorded in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from temporalio import workflow

from perdure.models.backlog.landing import (
    ItemEnded,
    ItemForeseen,
    ItemPlanned,
    ItemWaits,
    LandingEnded,
    LandingRequested,
)
from perdure.models.backlog.state import ItemPhase, SignalClaim
from perdure.models.limits import NOTES_KEPT
from perdure.text import shorten
from workflows.items import Items
from workflows.signals import find_signal_problems

S = TypeVar("S", bound=LandingRequested | LandingEnded | ItemWaits | ItemPlanned | ItemForeseen | ItemEnded)


@dataclass(frozen=True)
class PendingSignal:
    """A signal that is not recorded yet. `record` does that; `after`: the last event that an earlier one can be."""

    claim: SignalClaim
    item: str
    record: Callable[[], None]
    after: int


class SignalOrigins:
    """The signals that a backlog has got and has not recorded yet."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._pending: list[PendingSignal] = []
        self._is_asking = False
        self._last_event, self._event_before = 0, 0

    async def record_if_sent(self, name: str, signal: S, record: Callable[[S], None]) -> None:
        """Record a signal by `record` once the server says that the delivery it names has sent it; one that it has not
        sent, or that is not the item's delivery, changes nothing. A run that began before the server was asked records
        each."""
        if not workflow.patched("signal_origin"):
            return record(signal)
        entry = self._items.state.items.get(signal.item)
        if entry is None or signal.delivery != (entry.child.id or f"{workflow.info().workflow_id}/{signal.item}"):
            return None
        if (event := workflow.info().get_current_history_length()) != self._last_event:
            self._last_event, self._event_before = event, self._last_event
        claim = SignalClaim(signal=name, delivery=signal.delivery, content=signal.model_dump_json())
        self._pending.append(PendingSignal(claim, signal.item, lambda: record(signal), self._event_before))
        if self._is_asking:
            return None
        self._is_asking = True
        try:
            await asyncio.sleep(0)  # others that have come with it are asked about with it
            while self._pending:
                await self._record_pending()
        finally:
            self._is_asking = False
        return None

    async def wait_until_recorded(self) -> None:
        """Wait until all signals that have come are recorded or ignored."""
        await workflow.wait_condition(lambda: not self._is_asking)

    async def _record_pending(self) -> None:
        """Ask for the origin of the signals that are pending; record or ignore each."""
        signals, self._pending = self._pending, []
        claims, after = [signal.claim for signal in signals], min(signal.after for signal in signals)
        for signal, reason in zip(signals, await find_signal_problems(claims, after), strict=True):
            if reason:
                self._note_ignored(signal, reason)
            else:
                signal.record()

    def _note_ignored(self, signal: PendingSignal, reason: str) -> None:
        """Add a note on a signal that changes nothing, unless there is one; have the delivery looked up: a reset of the
        backlog takes the sender from a signal."""
        state = self._items.state
        note = shorten(f"{signal.item}: a signal {signal.claim.signal} is ignored: {reason}", 300)
        if note not in state.notes:
            state.notes = (*state.notes, note)[-NOTES_KEPT:]
        if state.items[signal.item].phase is ItemPhase.BUILDING:
            self._items.unsure.add(signal.item)
        self._items.changed = True
