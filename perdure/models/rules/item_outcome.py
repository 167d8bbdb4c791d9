"""The end of an item's delivery, as its backlog records it: landed, decomposed, cancelled, already there, or failed."""

from __future__ import annotations

from datetime import datetime

from perdure.models.backlog_state import BacklogState, ItemPhase
from perdure.models.landing import DeliveryStatus, ItemEnded
from perdure.models.limits import END_MESSAGE_CHARS
from perdure.models.result import Reason
from perdure.models.rules.changes import decompose_item

ITEM_MESSAGE_CHARS = 300
"""Of the message why an item ended: a backlog carries those of a thousand items into its next run."""


def apply_item_end(
    state: BacklogState, id: str, delivery_end: ItemEnded | DeliveryStatus, now: datetime, *, stacked: bool = False
) -> None:
    """Record in the state how an item's delivery has ended, and replace the item by the parts it was decomposed into.

    stacked  the backlog makes a stack of pull requests

    With a commit the item has landed; one whose change is on the branch already counts as skipped, so that what depends
    on it may begin. Where the forge refused to let it land, the whole backlog is held.
    """
    item_state = state.items[id]
    item_state.status, item_state.reason, item_state.ended_at = delivery_end.status, delivery_end.reason, now
    item_state.usd = delivery_end.usd if delivery_end.usd is not None else item_state.usd
    item_state.branch, item_state.pull_request = (
        delivery_end.branch or item_state.branch,
        delivery_end.pull_request or item_state.pull_request,
    )
    item_state.commit = item_state.commit or delivery_end.commit  # keep a known one: it may have followed its base
    item_state.waiting_for = item_state.gate = item_state.target = ""
    message = (
        delivery_end.message[:ITEM_MESSAGE_CHARS]
        or delivery_end.reason.replace("_", " ")
        or delivery_end.status.replace("_", " ")
    )
    if item_state.commit:
        item_state.phase, item_state.message = ItemPhase.LANDED, ""
    elif delivery_end.items:
        decompose_item(state, id, delivery_end.items, now, stacked=stacked)
    elif delivery_end.status in ("cancelled", "canceled"):
        item_state.phase, item_state.message = ItemPhase.CANCELLED, message
    elif isinstance(delivery_end, ItemEnded) and delivery_end.already_on_branch:
        item_state.phase, item_state.message = ItemPhase.SKIPPED, message  # what depends on it may begin
    else:
        item_state.phase, item_state.message = ItemPhase.FAILED, message
        if delivery_end.reason == Reason.FORGE_REFUSED and item_state.landing_seq and not state.hold_reason:
            # The branch is gone, put back or protected: whatever else is built could not land there either. The message
            # is put in whole, once for all items: it has the command that brings the branch back.
            state.hold_reason = f"held: {id} could not land: {delivery_end.message[:END_MESSAGE_CHARS] or message}"
