"""Decisions given to a backlog that are its deliveries' to take: checked by what each said that it waits for."""

from __future__ import annotations

from typing import Any

from perdure.models.backlog_state import BacklogState, ItemPhase, ItemState
from perdure.models.base import kind_of
from perdure.models.decisions import Asked, Gate
from perdure.models.rules.changes import problem
from perdure.models.rules.inbox import Inbox, NotCounted
from perdure.models.state import DeliveryState


def handed(state: BacklogState, update: str, raw: Any) -> tuple[ItemState, dict[str, Any]]:
    """The item whose delivery decides this, and what that is sent: bound to what waits. Raises NotCounted: there is no
    such item, it waits for nothing or for something else, or this does not decide it.

    update  as of a delivery; raw: its message, and `item`
    """
    if not isinstance(raw, dict) or not isinstance(id := raw.get("item"), str):
        got = f", got {kind_of(raw)}" if not isinstance(raw, dict) else ""
        raise NotCounted(f'item: name the one that waits: {{"item": "api", …}}{got}')
    if words := problem(state, "cancel_item", id):  # unknown, or it has ended
        raise NotCounted(words)
    at, said = state.items[id], {name: value for name, value in raw.items() if name != "item"}
    if at.phase is not ItemPhase.BUILDING:
        raise NotCounted(f"{id} has not begun yet: nothing of it waits for a decision")
    person = bool(at.waits) and at.gate in tuple(Gate)  # it may wait for room on its host, too
    asked = Asked.model_validate(at.asks) if person and at.asks else None
    if asked is None and (person or update != "add_budget"):
        there = f"waits: {at.waits}; decide it there: {at.delivery}"
        raise NotCounted(f"{id} {there if person else 'is being built: it waits for nothing that you could decide'}")
    Inbox(DeliveryState(asked=asked)).check(update, said)
    bound = {"of": asked.of} if asked is not None and update in asked.options else {}
    return at, bound | said
