"""Decisions that are given to a backlog for one of its deliveries, checked against what that delivery waits for."""

from __future__ import annotations

from typing import Any

from perdure.models.backlog_state import BacklogState, ItemPhase, ItemState
from perdure.models.base import json_type_name
from perdure.models.decisions import Gate, PendingDecision
from perdure.models.rules.changes import change_refusal
from perdure.models.rules.inbox import Inbox, NotCounted
from perdure.models.state import DeliveryState


def resolve_item_decision(state: BacklogState, update: str, raw: Any) -> tuple[ItemState, dict[str, Any]]:
    """Return the item whose delivery decides this, and the message to send to it, bound to what waits there.

    update  the name of a delivery's update; raw: its message, with `item` beside it

    Raises NotCounted where there is no such item, where it waits for nothing or for something else, and where this
    message does not decide that.
    """
    if not isinstance(raw, dict) or not isinstance(id := raw.get("item"), str):
        received = f", got {json_type_name(raw)}" if not isinstance(raw, dict) else ""
        raise NotCounted(f'item: name the one that waits: {{"item": "api", …}}{received}')
    if refusal := change_refusal(state, "cancel_item", id):  # unknown, or it has ended
        raise NotCounted(refusal)
    item_state, message = state.items[id], {name: value for name, value in raw.items() if name != "item"}
    if item_state.phase is not ItemPhase.BUILDING:
        raise NotCounted(f"{id} has not begun yet: nothing of it waits for a decision")
    waits_for_person = bool(item_state.waiting_for) and item_state.gate in tuple(Gate)  # or for room on its host
    pending = (
        PendingDecision.model_validate(item_state.pending_decision)
        if waits_for_person and item_state.pending_decision
        else None
    )
    if pending is None and (waits_for_person or update != "add_budget"):
        instruction = f"waits: {item_state.waiting_for}; decide it there: {item_state.delivery}"
        raise NotCounted(
            f"{id} {instruction if waits_for_person else 'is being built: it waits for nothing that you could decide'}"
        )
    Inbox(DeliveryState(pending_decision=pending)).check_decision(update, message)
    target = {"of": pending.target} if pending is not None and update in pending.options else {}
    return item_state, target | message
