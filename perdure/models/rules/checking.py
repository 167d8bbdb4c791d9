"""The `check` commands of what has landed: those that run with the next landing, and those that did not run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from perdure.models.backlog import CHECKS_MOST
from perdure.models.backlog_state import BacklogState, ItemPhase, ItemState
from perdure.models.rules.dependencies import Dependencies

_NAMED = 5


def checks(state: BacklogState, item: str) -> dict[str, tuple[str, ...]]:
    """Commands that have to hold when this item lands, by item: its own, and at most CHECKS_MOST of landed ones.

    Of these first what was not run for longest, then what most items depend on: each has its turn.
    """
    mine = state.items[item].item.check if item in state.items else ()
    return ({item: mine} if mine else {}) | _as_many(state, _landed(state))


def owed(state: BacklogState) -> dict[str, tuple[str, ...]]:
    """Commands of landed items that did not run on the branch as it is, as many as run at once."""
    return _as_many(state, _left(state))


def _as_many(state: BacklogState, landed: list[ItemState]) -> dict[str, tuple[str, ...]]:
    graph = Dependencies.of(state)
    room, found = CHECKS_MOST, dict[str, tuple[str, ...]]()
    for at in sorted(landed, key=lambda at: (_seconds(at), -graph.rests_on[at.item.id], at.order, at.item.id)):
        if len(at.item.check) > room:
            break  # no shorter one goes before it, or it never had a turn
        room -= len(at.item.check)
        found[at.item.id] = at.item.check
    return found


def moved(state: BacklogState, ran: Iterable[str], now: datetime) -> None:
    """Take down that the branch has moved to a commit on which the checks of these items held."""
    state.moved = now
    held(state, ran, now)


def held(state: BacklogState, ran: Iterable[str], now: datetime) -> None:
    """Take down that the checks of these items held on the branch as it is."""
    for id in ran:
        if id in state.items:
            state.items[id].checked = now


def asked(state: BacklogState, failing: Iterable[str], words: str) -> None:
    """Ask a person about checks that fail at the end; until they decide, or the same checks hold after all."""
    state.asks, state.failing = words, tuple(failing)


def answered(state: BacklogState) -> None:
    """Ask no longer about checks that hold now: another item has landed that mends it."""
    if state.failing and not {at.item.id for at in _left(state)} & set(state.failing):
        state.asks, state.failing = "", ()


def unchecked(state: BacklogState) -> str:
    """In one line, of which landed items the checks did not hold, or not run, on the branch as it is. Empty: none."""
    left = [at.item.id for at in _left(state)]
    if not left:
        return ""
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    return f"the checks of {', '.join(left[:_NAMED])}{more} are not known to hold on the branch as it is"


def _landed(state: BacklogState) -> list[ItemState]:
    return [at for at in state.items.values() if at.phase is ItemPhase.LANDED and at.item.check]


def _left(state: BacklogState) -> list[ItemState]:
    at = state.moved
    return [one for one in _landed(state) if at is not None and (one.checked is None or one.checked < at)]


def _seconds(at: ItemState) -> float:
    return at.checked.timestamp() if at.checked is not None else 0.0
