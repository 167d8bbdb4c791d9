"""Changes of a backlog's items while it runs, and why one is refused, in one line for whoever asked for it."""

from __future__ import annotations

from perdure.models.backlog import ITEMS_MOST, BacklogItem, BacklogState, ItemPhase, ItemState
from perdure.models.rules.backlog import circle, near, unfit
from perdure.models.rules.dependencies import Dependencies


def problem(state: BacklogState, change: str, id: str, item: BacklogItem | None = None, repository: str = "") -> str:
    """Say why this change does not count; empty: it does.

    change  add, edit, skip, retry, cancel_item or prioritise; item: the new one, for add and edit
    """
    at = state.items.get(id)
    if change == "add":
        return _add(state, at, item, repository)
    if at is None:
        return f"there is no item {id[:60]}{near(id[:60], state.items)}"
    match change:
        case "edit":
            return _edit(state, at, item, repository)
        case "skip":
            return _skip(at)
        case "retry":
            return _retry(state, at)
        case _:  # cancel_item, prioritise: of what has ended nothing is left to do
            return f"{id} {_STANDS[at.phase]}" if at.phase in _STANDS else ""


_STANDS = {
    ItemPhase.LANDED: "has landed",
    ItemPhase.FAILED: "has failed: retry goes on with it, skip leaves it out",
    ItemPhase.CANCELLED: "was cancelled: retry goes on with it, skip leaves it out",
    ItemPhase.SKIPPED: "was left out",
}


def _add(state: BacklogState, at: ItemState | None, item: BacklogItem | None, repository: str) -> str:
    if item is None:
        return "item: required field is missing"
    if at is not None:
        return f"id: there is an item {item.id} already: edit changes it"
    if len(state.items) >= ITEMS_MOST:
        return f"a backlog has at most {ITEMS_MOST} items: start another one"
    return _unfit(state, item, repository)


def _edit(state: BacklogState, at: ItemState, item: BacklogItem | None, repository: str) -> str:
    if item is None:
        return "item: required field is missing"
    if at.phase in _STANDS:
        return f"{item.id} {_STANDS[at.phase]}"
    if at.runs or at.phase is not ItemPhase.WAITING:
        return f"{item.id} has begun: cancel and skip it, and add another one"
    return _unfit(state, item, repository)


def _unfit(state: BacklogState, item: BacklogItem, repository: str) -> str:
    items = {id: at.item for id, at in state.items.items()} | {item.id: item}
    if words := unfit(item, items, repository):
        return words
    found = circle(items.values())
    return f"depends_on: none of these can be the first: {found}" if found else ""


def _skip(at: ItemState) -> str:
    if at.phase is ItemPhase.BUILDING:
        return f"{at.item.id} is being built: cancel it first"
    return f"{at.item.id} {_STANDS[at.phase]}" if at.phase in (ItemPhase.LANDED, ItemPhase.SKIPPED) else ""


def _retry(state: BacklogState, at: ItemState) -> str:
    id = at.item.id
    if at.phase in (ItemPhase.FAILED, ItemPhase.CANCELLED):
        return ""
    if at.phase in _STANDS:
        return f"{id} {_STANDS[at.phase]}: nothing is left to do"
    if at.phase is ItemPhase.BUILDING:
        return f"{id} is being built"
    culprit = Dependencies.of(state).blocked.get(id, "")
    return f"{id} is blocked by {culprit}: retry {culprit}" if culprit else f"{id} has not begun yet"
