"""The `check` commands of what has landed: those that run with the next landing, and those that did not run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from perdure.models.backlog import CHECKS_MOST, CHECKS_S
from perdure.models.backlog_state import BacklogState, ItemPhase, ItemState
from perdure.models.rules.dependencies import Dependencies

_NAMED = 5


def checks(state: BacklogState, item: str) -> dict[str, tuple[str, ...]]:
    """Commands that have to hold when this item lands, by item: its own, and at most CHECKS_MOST of landed ones.

    Of these first what was not run for longest, then what most items depend on: each has its turn.
    """
    graph = Dependencies.of(state)
    landed = sorted(_landed(state), key=lambda at: (_seconds(at), -graph.rests_on[at.item.id], at.order, at.item.id))
    mine = state.items[item].item.check if item in state.items else ()
    found = {item: mine} if mine else {}
    room = CHECKS_MOST
    for at in landed:
        if len(at.item.check) > room:
            break  # no shorter one goes before it, or it never had a turn
        room -= len(at.item.check)
        found[at.item.id] = at.item.check
    return found


def moved(state: BacklogState, ran: Iterable[str], now: datetime) -> None:
    """Take down that the branch has moved to a commit on which the checks of these items held."""
    state.moved = now
    for id in ran:
        if id in state.items:
            state.items[id].checked = now


def unchecked(state: BacklogState) -> str:
    """In one line, of which landed items the checks did not run on the branch as it is; empty: all did."""
    at = state.moved
    if at is None:
        return ""
    left = [one.item.id for one in _landed(state) if one.checked is None or one.checked < at]
    if not left:
        return ""
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    most = f"at most {CHECKS_MOST} commands do, within {CHECKS_S / 60:.0f} minutes"
    return f"the checks of {', '.join(left[:_NAMED])}{more} did not run with what landed last: {most}"


def _landed(state: BacklogState) -> list[ItemState]:
    return [at for at in state.items.values() if at.phase is ItemPhase.LANDED and at.item.check]


def _seconds(at: ItemState) -> float:
    return at.checked.timestamp() if at.checked is not None else 0.0
