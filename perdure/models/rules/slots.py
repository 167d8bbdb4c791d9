"""Slots of a backlog: how many of its items are built at once, and who leaves its slot to others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_state import BacklogState, ItemPhase, ItemState

SLOT_KEPT = timedelta(minutes=2)
"""For which an item that waits for a person keeps its slot: who sits beside it has answered by then."""

ROOM = "room"
"""In `gate`, of an item that waits for other deliveries of the repository: nobody is asked, and it keeps its slot."""

WAITING_MOST = 2
"""Times `parallel` that are under way at most, those that wait for a person among them: so many go on at once, if all
are answered in the same moment."""


def no_slot(request: BacklogRequest, state: BacklogState, building: Sequence[ItemState], now: datetime) -> str:
    """Say why there is no slot, in one line; empty: there is one. Who waits for a person for long has left its own, and
    takes it back when that is decided, beyond `parallel` if need be."""
    frees = state.opened is not None and state.opened.frees
    left = [at for at in building if frees and (since := _asked_since(at)) and now >= since + SLOT_KEPT]
    if len(building) - len(left) >= request.parallel:
        return f"{len(building) - len(left)} at once, no more"
    if len(building) >= WAITING_MOST * request.parallel:
        return f"{len(building)} under way, {len(left)} of them wait for you: answer one"
    return ""


def next_free(request: BacklogRequest, state: BacklogState, now: datetime) -> datetime | None:
    """The time at which there is a slot, because enough of those that wait for a person have left theirs; None: there
    is one, or none of them will."""
    building = [at for at in state.items.values() if at.phase is ItemPhase.BUILDING]
    if not no_slot(request, state, building, now):
        return None
    times = sorted({since + SLOT_KEPT for at in building if (since := _asked_since(at))})
    return next((time for time in times if time > now and not no_slot(request, state, building, time)), None)


def _asked_since(at: ItemState) -> datetime | None:
    """Since when a person has to decide before it goes on."""
    return at.since if at.phase is ItemPhase.BUILDING and at.waits else None
