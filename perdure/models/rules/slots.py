"""Slots of a backlog: how many of its items are built at once, and which ones give their slot to others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_state import BacklogState, ItemPhase, ItemState

SLOT_KEPT = timedelta(minutes=2)
"""The time an item that waits for a person keeps its slot: who sits beside it has answered by then."""

LIMIT_GATE = "room"
"""`gate` of an item that waits for other deliveries of the repository: nobody is asked, and it keeps its slot."""

WAITING_MOST = 2
"""Times `parallel` that are under way at most, those that wait for a person among them: so many go on at once, if all
are answered in the same moment."""


def no_slot_reason(request: BacklogRequest, state: BacklogState, building: Sequence[ItemState], now: datetime) -> str:
    """Return the reason why no further item gets a slot, in one line; empty: there is one.

    An item that has waited for a person for SLOT_KEPT has given its slot to others, and takes one back when that is
    decided, beyond `parallel` if need be.
    """
    frees_slots = state.opened is not None and state.opened.frees_waiting_slots
    without_slot = [
        item_state
        for item_state in building
        if frees_slots and (waiting_since := _waiting_since(item_state)) and now >= waiting_since + SLOT_KEPT
    ]
    if len(building) - len(without_slot) >= request.parallel:
        return f"{len(building) - len(without_slot)} at once, no more"
    if len(building) >= WAITING_MOST * request.parallel:
        return f"{len(building)} under way, {len(without_slot)} of them wait for you: answer one"
    return ""


def next_free_slot(request: BacklogRequest, state: BacklogState, now: datetime) -> datetime | None:
    """Return the time at which enough items that wait for a person will have given up their slots.

    None: there is a slot now, or there will be none in this way.
    """
    building = [item_state for item_state in state.items.values() if item_state.phase is ItemPhase.BUILDING]
    if not no_slot_reason(request, state, building, now):
        return None
    times = sorted(
        {waiting_since + SLOT_KEPT for item_state in building if (waiting_since := _waiting_since(item_state))}
    )
    return next((time for time in times if time > now and not no_slot_reason(request, state, building, time)), None)


def _waiting_since(item_state: ItemState) -> datetime | None:
    """Return since when a person has to decide before the item goes on; None: nobody is asked."""
    return item_state.waiting_since if item_state.phase is ItemPhase.BUILDING and item_state.waiting_for else None
