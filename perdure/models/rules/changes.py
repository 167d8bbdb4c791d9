"""Changes of a backlog's items while it runs, and why one is refused, in one line for whoever asked for it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from perdure.models.backlog import ITEMS_MOST, BacklogItem
from perdure.models.backlog_state import SATISFIED, BacklogState, ItemPhase, ItemState
from perdure.models.rules.backlog import circle, oversized, unfit
from perdure.models.rules.dependencies import Dependencies
from perdure.models.rules.inbox import NotCounted
from perdure.models.rules.stack import placed
from perdure.text import nearest


def problem(state: BacklogState, change: str, id: str, item: BacklogItem | None = None, repository: str = "") -> str:
    """Say why this change does not count; empty: it does.

    change  add, edit, skip, retry, cancel_item or prioritise; item: the new one, for add and edit
    """
    at = state.items.get(id)
    if change == "add":
        return _add(state, at, item, repository)
    if at is None:
        return f"there is no item {id[:60]}{nearest(id[:60], state.items)}"
    match change:
        case "edit":
            return _edit(state, at, item, repository)
        case "skip":
            return _skip(at)
        case "retry":
            return _retry(state, at)
        case _:  # cancel_item, prioritise: of what has ended nothing is left to do
            return f"{id} {_STANDS[at.phase]}" if at.phase in _STANDS else ""


def over(state: BacklogState) -> str:
    """Say why nothing of a backlog can be changed any more; empty: it can."""
    if state.status == "running":
        return ""
    return f"it has {'been cancelled' if state.status == 'cancelled' else 'ended'} just now: nothing was changed"


def leave_out(at: ItemState, phase: ItemPhase, note: str, now: datetime) -> None:
    """End an item of which nothing runs. `phase`: skipped or cancelled."""
    at.phase, at.words, at.ended = phase, note, now


def go_on_with(at: ItemState) -> None:
    """An item that ended without landing may begin again."""
    at.phase, at.words = ItemPhase.WAITING, ""


def reopened(ended: BacklogState, change: str, id: str, note: str, now: datetime) -> BacklogState:
    """The state with which another run of an ended backlog begins: all that landed or was left out stays so.

    change, id   skip or retry, of one item; retry without an id: all that failed or was cancelled, and the pull request
                 that could not be opened
    What was being built when somebody terminated the backlog is begun again: a delivery that is there is adopted. What
    had not begun begins whatever is retried, and may be named like the rest.

    Raises NotCounted, in words for whoever asked.
    """
    fresh = {"status": "running", "message": "", "held": "", "waiting": "", "turn": "", "granted": None, "queue": ()}
    unasked = {"looked": None, "asks": "", "left": False}
    again = ended.model_copy(update=fresh | unasked, deep=True)
    cut_off = [at for at in again.items.values() if at.phase is ItemPhase.BUILDING]
    free = again.items.keys() - Dependencies.of(again).blocked.keys()
    unbegun = {one for one in free if again.items[one].phase is ItemPhase.WAITING}
    known = change == "retry" and id in {at.item.id for at in cut_off} | unbegun
    if id and not known and (words := problem(ended, change, id)):
        raise NotCounted(words)
    failed = [at for at in again.items.values() if at.phase in (ItemPhase.FAILED, ItemPhase.CANCELLED)]
    for at in [again.items[id]] if id else failed:
        if change == "skip":
            leave_out(at, ItemPhase.SKIPPED, note, now)
        else:
            go_on_with(at)
    for at in cut_off:
        go_on_with(at)
    proposes = change == "retry" and not id and _unproposed(ended)
    if not proposes and not any(at.phase is ItemPhase.WAITING for at in again.items.values()):
        raise NotCounted("every item has landed, failed or was left out: there is nothing to go on with")
    return again


def _unproposed(state: BacklogState) -> bool:
    """Something landed on a branch that was to have a pull request, and has none."""
    opened = state.opened
    landed = any(at.phase is ItemPhase.LANDED for at in state.items.values())
    return landed and not state.pull_request and opened is not None and bool(opened.branch) and opened.within is None


def decompose(
    state: BacklogState, id: str, parts: Iterable[BacklogItem], now: datetime, *, stacked: bool = False
) -> None:
    """Its parts take an item's place: what depends on it depends on all of them, and they have its labels and attempts,
    and its role where they have none. A part whose id is taken gets another one; where they are too many, the item has
    failed."""
    at, order = state.items[id], 1 + max(one.order for one in state.items.values())
    named = _renamed(id, list(parts), state)
    if stacked:
        named = placed(id, named, {name: one.item for name, one in state.items.items()})
    wrong = oversized([*(one.item for one in state.items.values()), *named])
    if len(state.items) + len(named) > ITEMS_MOST:
        wrong = f"{len(named)} items more: a backlog has at most {ITEMS_MOST}"
    if wrong:
        at.phase, at.words = ItemPhase.FAILED, wrong
        return
    for number, part in enumerate(named):
        whole = at.item
        said: dict[str, object] = {"labels": whole.labels, "role": part.role or whole.role}
        said |= {"attempts": whole.attempts, "after_red": whole.after_red}
        item = part.model_copy(update=said)
        state.items[item.id] = ItemState(item=item, order=order + number, added=now)
    for other in state.items.values():
        if id in other.item.depends_on:
            waits = dict.fromkeys([*other.item.depends_on, *(part.id for part in named)])
            waits.pop(id)
            other.item = other.item.model_copy(update={"depends_on": tuple(waits)})
    at.phase, at.words = ItemPhase.DECOMPOSED, f"into {len(named)} item{'s' if len(named) != 1 else ''}"


def _renamed(id: str, parts: list[BacklogItem], state: BacklogState) -> list[BacklogItem]:
    """With ids that nobody has: another item of that name may have been added meanwhile."""
    names = {part.id: part.id for part in parts}
    taken = {*state.items, *names}
    for one in [one for one in names if one in state.items]:
        stem = one[:35].rstrip("-")
        names[one] = next(name for number in range(2, len(taken) + 3) if (name := f"{stem}-{number}") not in taken)
        taken.add(names[one])
    return [
        part.model_copy(update={"id": names[part.id], "depends_on": tuple(names[one] for one in part.depends_on)})
        for part in parts
    ]


_STANDS = {
    ItemPhase.LANDED: "has landed",
    ItemPhase.FAILED: "has failed: retry goes on with it, skip leaves it out",
    ItemPhase.CANCELLED: "was cancelled: retry goes on with it, skip leaves it out",
    ItemPhase.SKIPPED: "was left out",
    ItemPhase.DECOMPOSED: "was decomposed: its parts are items of their own",
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
    if words := oversized(items.values()):
        return words
    found = circle(items.values())
    return f"depends_on: none of these can be the first: {found}" if found else ""


def _skip(at: ItemState) -> str:
    if at.phase is ItemPhase.BUILDING:
        return f"{at.item.id} is being built: cancel it first"
    return f"{at.item.id} {_STANDS[at.phase]}" if at.phase in SATISFIED else ""


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
