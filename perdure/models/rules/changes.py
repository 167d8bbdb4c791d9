"""Changes of a backlog's items while it runs: by people, by decisions meant for an item's delivery, and by the end of
that delivery; with the reasons for refusing one, each in one line for whoever asked. Workflow `Backlog` applies them.
Also the state with which an ended backlog is reopened: the client makes it, and activity `former_run` makes it again to
compare."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from perdure.models.backlog.landing import DeliveryStatus, ItemEnded
from perdure.models.backlog.request import ITEMS_MOST, BacklogItem
from perdure.models.backlog.state import SATISFIED, BacklogState, ItemPhase, ItemState, ItemWaiting
from perdure.models.base import json_type_name
from perdure.models.delivery.decisions import Gate, PendingDecision
from perdure.models.delivery.result import Reason, Status
from perdure.models.delivery.state import DeliveryState, GatesState
from perdure.models.limits import END_MESSAGE_CHARS
from perdure.models.rules.backlog import describe_cycle, invalid_item_reason, oversize_reason
from perdure.models.rules.dependencies import Dependencies, place_parts
from perdure.models.rules.inbox import Inbox, NotCounted
from perdure.text import format_count, nearest, shorten


def change_refusal(
    state: BacklogState, change: str, id: str, item: BacklogItem | None = None, repository: str = ""
) -> str:
    """Return the reason why a change of an item does not count; empty: it does. Nothing is changed.

    change      add, edit, skip, retry, cancel_item or prioritise
    item        the new one, for add and edit
    repository  the backlog's, for add and edit
    """
    item_state = state.items.get(id)
    if change == "add":
        return _add_refusal(state, item_state, item, repository)
    if item_state is None:
        return f"there is no item {shorten(id, 60)}{nearest(id[:60], state.items)}"
    match change:
        case "edit":
            return _edit_refusal(state, item_state, item, repository)
        case "skip":
            return _skip_refusal(item_state)
        case "retry":
            return _retry_refusal(state, item_state)
        case _:  # cancel_item, prioritise: of what has ended nothing is left to do
            return f"{id} {_PHASE_TEXTS[item_state.phase]}" if item_state.phase in _PHASE_TEXTS else ""


def ended_reason(state: BacklogState) -> str:
    """Return the reason why nothing of a backlog can be changed any more, that it has ended or was cancelled; empty
    while it runs."""
    if state.status == "running":
        return ""
    return f"it has {'been cancelled' if state.status == 'cancelled' else 'ended'} just now: nothing was changed"


def end_idle_item(item_state: ItemState, phase: ItemPhase, note: str, now: datetime) -> None:
    """Record the end of an item of which nothing runs. `phase`: skipped or cancelled."""
    item_state.phase, item_state.message, item_state.child.ended_at = phase, note, now


def reopen_item(item_state: ItemState) -> None:
    """Put an item that ended without landing back to waiting, so that it may begin again."""
    item_state.phase, item_state.message = ItemPhase.WAITING, ""


def reopen_backlog(ended: BacklogState, change: str, id: str, note: str, now: datetime) -> BacklogState:
    """Return the state with which another run of an ended backlog begins: all that landed or was skipped stays so.
    `ended` itself is not changed.

    change, id  skip or retry, of one item; retry without an id: all that failed or were cancelled, and the pull request
    that could not be opened

    Items that were being built when the backlog was terminated begin again, and adopt their delivery when it exists.
    Items that had not begun begin in any case, and may be named, too.

    Raises NotCounted, with a message for people, when the change is refused or nothing would be left to do.
    """
    reopened = ended.model_copy(deep=True)
    reopened.status, reopened.message, reopened.hold_reason, reopened.waiting = "running", "", "", ""
    reopened.landing.item, reopened.landing.granted_at, reopened.landing.queue = "", None, ()
    reopened.base.checked_at, reopened.base.question, reopened.base.stays = None, "", False
    cut_off = [item_state for item_state in reopened.items.values() if item_state.phase is ItemPhase.BUILDING]
    unblocked = reopened.items.keys() - Dependencies.from_state(reopened).blocked_by.keys()
    waiting_ids = {item_id for item_id in unblocked if reopened.items[item_id].phase is ItemPhase.WAITING}
    begins_anyway = change == "retry" and id in {item_state.item.id for item_state in cut_off} | waiting_ids
    if id and not begins_anyway and (refusal := change_refusal(ended, change, id)):
        raise NotCounted(refusal)
    failed = [
        item_state
        for item_state in reopened.items.values()
        if item_state.phase in (ItemPhase.FAILED, ItemPhase.CANCELLED)
    ]
    for item_state in [reopened.items[id]] if id else failed:
        if change == "skip":
            end_idle_item(item_state, ItemPhase.SKIPPED, note, now)
        else:
            reopen_item(item_state)
    for item_state in cut_off:
        reopen_item(item_state)
    opens_pull_request = change == "retry" and not id and _lacks_pull_request(ended)
    if not opens_pull_request and not any(
        item_state.phase is ItemPhase.WAITING for item_state in reopened.items.values()
    ):
        raise NotCounted("every item has landed, failed or was left out: there is nothing to go on with")
    return reopened


def _lacks_pull_request(state: BacklogState) -> bool:
    """Return True when something landed on a branch that was to have a pull request, and it has none."""
    opened = state.opened
    landed = any(item_state.phase is ItemPhase.LANDED for item_state in state.items.values())
    has_branch = opened is not None and bool(opened.branch) and state.parent_delivery is None
    return landed and has_branch and not state.pull_request


def decompose_item(
    state: BacklogState, id: str, parts: Iterable[BacklogItem], now: datetime, *, stacked: bool = False
) -> None:
    """Replace an item of the state by its parts, and mark it as decomposed; when they are too many or too large, mark
    it as failed instead.

    Items that depended on it depend on all parts then. The parts have its labels and attempts, and its role when they
    have none; a part whose id is in use gets another one. `stacked`: each part gets a place in the stack of pull
    requests.
    """
    item_state, next_order = state.items[id], 1 + max(existing.order for existing in state.items.values())
    new_items = _with_unused_ids(id, list(parts), state)
    if stacked:
        new_items = place_parts(id, new_items, {name: existing.item for name, existing in state.items.items()})
    reason = oversize_reason([*(existing.item for existing in state.items.values()), *new_items])
    if len(state.items) + len(new_items) > ITEMS_MOST:
        reason = f"{format_count(len(new_items), 'item')} more: a backlog has at most {ITEMS_MOST}"
    if reason:
        item_state.phase, item_state.message = ItemPhase.FAILED, reason
        return
    for number, part in enumerate(new_items):
        parent_item = item_state.item
        inherited: dict[str, object] = {"labels": parent_item.labels, "role": part.role or parent_item.role}
        inherited |= {"attempts": parent_item.attempts, "after_red": parent_item.after_red}
        item = part.model_copy(update=inherited)
        state.items[item.id] = ItemState(item=item, order=next_order + number, added_at=now)
    for other in state.items.values():
        if id in other.item.depends_on:
            dependencies = dict.fromkeys([*other.item.depends_on, *(part.id for part in new_items)])
            dependencies.pop(id)
            other.item = other.item.model_copy(update={"depends_on": tuple(dependencies)})
    item_state.phase, item_state.message = (
        ItemPhase.DECOMPOSED,
        f"into {format_count(len(new_items), 'item')}",
    )


def _with_unused_ids(id: str, parts: list[BacklogItem], state: BacklogState) -> list[BacklogItem]:
    """Return the parts of item `id` with ids that no item of the backlog has; their dependencies on each other are
    renamed likewise."""
    new_ids = {part.id: part.id for part in parts}
    used_ids = {*state.items, *new_ids}
    for part_id in [part_id for part_id in new_ids if part_id in state.items]:
        stem = part_id[:35].rstrip("-")
        new_ids[part_id] = next(
            name for number in range(2, len(used_ids) + 3) if (name := f"{stem}-{number}") not in used_ids
        )
        used_ids.add(new_ids[part_id])
    return [
        part.model_copy(
            update={"id": new_ids[part.id], "depends_on": tuple(new_ids[part_id] for part_id in part.depends_on)}
        )
        for part in parts
    ]


_PHASE_TEXTS = {
    ItemPhase.LANDED: "has landed",
    ItemPhase.FAILED: "has failed: retry goes on with it, skip leaves it out",
    ItemPhase.CANCELLED: "was cancelled: retry goes on with it, skip leaves it out",
    ItemPhase.SKIPPED: "was left out",
    ItemPhase.DECOMPOSED: "was decomposed: its parts are items of their own",
}


def _add_refusal(state: BacklogState, item_state: ItemState | None, item: BacklogItem | None, repository: str) -> str:
    """Return the reason why an item cannot be added: it is missing, its id is in use, the backlog is full, or it does
    not fit; empty: it can. `item_state`: the item that has its id already, if any."""
    if item is None:
        return "item: required field is missing"
    if item_state is not None:
        return f"id: there is an item {item.id} already: edit changes it"
    if len(state.items) >= ITEMS_MOST:
        return f"a backlog has at most {ITEMS_MOST} items: start another one"
    return _item_refusal(state, item, repository)


def _edit_refusal(state: BacklogState, item_state: ItemState, item: BacklogItem | None, repository: str) -> str:
    """Return the reason why an item cannot be replaced by another version: the new version is missing, the item has
    begun or ended, or the new version does not fit; empty: it can."""
    if item is None:
        return "item: required field is missing"
    if item_state.phase in _PHASE_TEXTS:
        return f"{item.id} {_PHASE_TEXTS[item_state.phase]}"
    if item_state.child.runs or item_state.phase is not ItemPhase.WAITING:
        return f"{item.id} has begun: cancel and skip it, and add another one"
    return _item_refusal(state, item, repository)


def _item_refusal(state: BacklogState, item: BacklogItem, repository: str) -> str:
    """Return the reason why an item, new or changed, does not fit into the backlog, as `field: why`; empty: it fits.

    It does not where it depends on itself or an unknown item, is an issue of another repository, makes the items
    together larger than ITEMS_BYTES, or closes a cycle of items that wait for each other.
    """
    items = {id: item_state.item for id, item_state in state.items.items()} | {item.id: item}
    if reason := invalid_item_reason(item, items, repository):
        return reason
    if reason := oversize_reason(items.values()):
        return reason
    cycle = describe_cycle(items.values())
    return f"depends_on: none of these can be the first: {cycle}" if cycle else ""


def _skip_refusal(item_state: ItemState) -> str:
    """Return the reason why an item cannot be skipped: it is being built, has landed, was skipped already or was
    decomposed; empty: it can."""
    if item_state.phase is ItemPhase.BUILDING:
        return f"{item_state.item.id} is being built: cancel it first"
    return f"{item_state.item.id} {_PHASE_TEXTS[item_state.phase]}" if item_state.phase in SATISFIED else ""


def _retry_refusal(state: BacklogState, item_state: ItemState) -> str:
    """Return the reason why an item cannot be retried: it has landed or was left out, runs, has not begun, or is
    blocked by another one, which is named; empty: it can, for it failed or was cancelled."""
    id = item_state.item.id
    if item_state.phase in (ItemPhase.FAILED, ItemPhase.CANCELLED):
        return ""
    if item_state.phase in _PHASE_TEXTS:
        return f"{id} {_PHASE_TEXTS[item_state.phase]}: nothing is left to do"
    if item_state.phase is ItemPhase.BUILDING:
        return f"{id} is being built"
    culprit = Dependencies.from_state(state).blocked_by.get(id, "")
    return f"{id} is blocked by {culprit}: retry {culprit}" if culprit else f"{id} has not begun yet"


def resolve_item_decision(state: BacklogState, update: str, raw: Any) -> tuple[ItemState, dict[str, Any]]:
    """Return the item that a decision is for, and the message to send to its delivery: without `item`, and with the
    name of what waits there as `of`, so that it decides nothing else.

    update  the name of a delivery's update; raw: its message, with `item` beside it

    Raises NotCounted when there is no such item, when it waits for nothing or for something else, and when this message
    does not decide that.
    """
    if not isinstance(raw, dict) or not isinstance(id := raw.get("item"), str):
        received = f", got {json_type_name(raw)}" if not isinstance(raw, dict) else ""
        raise NotCounted(f'item: name the one that waits: {{"item": "api", …}}{received}')
    if refusal := change_refusal(state, "cancel_item", id):  # unknown, or it has ended
        raise NotCounted(refusal)
    item_state, message = state.items[id], {name: value for name, value in raw.items() if name != "item"}
    if item_state.phase is not ItemPhase.BUILDING:
        raise NotCounted(f"{id} has not begun yet: nothing of it waits for a decision")
    waits_for_person = bool(item_state.waiting.reason) and item_state.waiting.gate in tuple(
        Gate
    )  # or for room on its host
    pending = (
        PendingDecision.model_validate(item_state.waiting.pending_decision)
        if waits_for_person and item_state.waiting.pending_decision
        else None
    )
    if pending is None and (waits_for_person or update != "add_budget"):
        instruction = f"waits: {item_state.waiting.reason}; decide it there: {item_state.child.id}"
        raise NotCounted(
            f"{id} {instruction if waits_for_person else 'is being built: it waits for nothing that you could decide'}"
        )
    Inbox(DeliveryState(gates=GatesState(pending_decision=pending))).check_decision(update, message)
    target = {"of": pending.target} if pending is not None and update in pending.options else {}
    return item_state, target | message


ITEM_MESSAGE_CHARS = 300
"""Of the message why an item ended: a backlog carries those of a thousand items into its next run."""


_SKIP_ADVICE = ": if there is nothing to do, skip lets what depends on it begin"


def apply_item_end(
    state: BacklogState, id: str, delivery_end: ItemEnded | DeliveryStatus, now: datetime, *, stacked: bool = False
) -> None:
    """Record in the state how an item's delivery has ended, with its cost, branch, pull request and commit, and remove
    what it waited for. When it was decomposed, replace the item by its parts.

    stacked  the backlog makes a stack of pull requests

    With a commit the item has landed; one whose change is on the branch already counts as skipped, so that what depends
    on it may begin; any other has failed or was cancelled. When the forge refused to let it land after it had asked for
    its turn, the whole backlog is held, unless it is already.
    """
    item_state = state.items[id]
    item_state.child.status, item_state.child.reason, item_state.child.ended_at = (
        delivery_end.status,
        delivery_end.reason,
        now,
    )
    item_state.child.usd = delivery_end.usd if delivery_end.usd is not None else item_state.child.usd
    item_state.child.unpriced = isinstance(delivery_end, ItemEnded) and delivery_end.usd is None
    item_state.stacked.branch, item_state.stacked.address = (
        delivery_end.branch or item_state.stacked.branch,
        delivery_end.pull_request or item_state.stacked.address,
    )
    item_state.landing.commit = (
        item_state.landing.commit or delivery_end.commit
    )  # keep a known one: it may have followed its base
    item_state.waiting = ItemWaiting(number=item_state.waiting.number)
    message = (
        shorten(delivery_end.message, ITEM_MESSAGE_CHARS)
        or delivery_end.reason.replace("_", " ")
        or delivery_end.status.replace("_", " ")
    )
    if item_state.landing.commit:
        item_state.phase, item_state.message = ItemPhase.LANDED, ""
    elif delivery_end.items:
        decompose_item(state, id, delivery_end.items, now, stacked=stacked)
    elif delivery_end.status in ("cancelled", "canceled"):
        item_state.phase, item_state.message = ItemPhase.CANCELLED, message
    elif isinstance(delivery_end, ItemEnded) and delivery_end.already_on_branch:
        item_state.phase, item_state.message = ItemPhase.SKIPPED, message  # what depends on it may begin
    else:
        if delivery_end.status == Status.NO_CHANGES:
            message = shorten(message, ITEM_MESSAGE_CHARS - len(_SKIP_ADVICE)) + _SKIP_ADVICE
        item_state.phase, item_state.message = ItemPhase.FAILED, message
        if delivery_end.reason == Reason.FORGE_REFUSED and item_state.landing.seq and not state.hold_reason:
            # The branch is gone, put back or protected: whatever else is built could not land there either. The message
            # is put in whole, once for all items: it has the command that brings the branch back.
            state.hold_reason = (
                f"held: {id} could not land: {shorten(delivery_end.message, END_MESSAGE_CHARS) or message}"
            )
