"""A stack of pull requests: the branch that each item begins from, and goes into. Pure; the same for the same state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter

from perdure.models.backlog import BacklogItem
from perdure.models.backlog_state import BacklogState, ItemPhase, ItemState
from perdure.models.result import DeliveryResult, ReviewStatus, Status, TestsStatus


def no_place(item: BacklogItem, items: Mapping[str, BacklogItem]) -> str:
    """Say why an item has no place in a stack, as `field: why`; empty: it has one."""
    if item.check:
        return "check: runs with each landing on the branch of the backlog, and a stack has none: leave it out"
    on = {id: _behind(id, items) for id in item.depends_on if id in items}
    if on and not any(on.keys() - {id} <= behind for id, behind in on.items()):
        names = " and ".join(on)
        return f"depends_on: {names}: a pull request has one base, and neither stands on the other: let one of them do"
    return ""


def placed(whole: str, parts: list[BacklogItem], items: Mapping[str, BacklogItem]) -> list[BacklogItem]:
    """The parts of an item of a stack, on what that one stood on. Each has a place: where two would have to stand side
    by side below a third one, all of them stand one on the other, in the order in which they can be built.

    items   all others, and the whole. Checks are left out: they are run on the branch that a stack does not have
    """
    under, ids = items[whole].depends_on, tuple(part.id for part in parts)
    made = [part.model_copy(update={"check": (), "depends_on": part.depends_on or under}) for part in parts]
    others = {
        id: item.model_copy(update={"depends_on": tuple(dict.fromkeys((*item.depends_on, *ids)))})
        for id, item in items.items()
        if whole in item.depends_on
    }
    known = {**items, **others, **{part.id: part for part in made}}
    if not any(no_place(one, known) for one in (*others.values(), *made)):
        return made
    by_id, below, chain = {part.id: part for part in made}, under, list[BacklogItem]()
    for id in TopologicalSorter({part.id: [on for on in part.depends_on if on in ids] for part in made}).static_order():
        on = tuple(dict.fromkeys((*by_id[id].depends_on, *below)))
        chain.append(by_id[id].model_copy(update={"depends_on": on}))
        below = (id,)
    return chain


def begins_from(state: BacklogState, id: str) -> str:
    """The branch of the item below, where that one's pull request is open; else what that went into; else the base.

    Of several, the one that stands on most of the others, then the one that landed last.
    """
    assert state.opened is not None
    items = {name: at.item for name, at in state.items.items()}
    below = [state.items[name] for name in _behind(id, items) if state.items[name].phase is ItemPhase.LANDED]
    if not below:
        return state.opened.base
    names = {at.item.id for at in below}
    top = max(below, key=lambda at: (len(names & _behind(at.item.id, items)), _landed_at(at), at.item.id))
    return stands_for(state, top)


def stands_for(state: BacklogState, at: ItemState) -> str:
    """The branch that has what this item brought: its own, or where that was merged the one it went into."""
    assert state.opened is not None
    by_branch = {one.branch: one for one in state.items.values() if one.branch}
    for _ in state.items:  # a circle of branches would be somebody else's doing
        if not at.merged:
            return at.branch
        if at.into not in by_branch:
            return at.into or state.opened.base
        at = by_branch[at.into]
    return state.opened.base


def moves(state: BacklogState) -> dict[str, str]:
    """Of items whose pull request is into a branch that was merged: by item, the branch it has to be into."""
    by_branch = {at.branch: at for at in state.items.values() if at.branch}
    found = {}
    for id, at in state.items.items():
        if at.phase is ItemPhase.LANDED and not at.merged and at.into in by_branch and by_branch[at.into].merged:
            found[id] = stands_for(state, by_branch[at.into])
    return found


def standing(state: BacklogState) -> list[str]:
    """Items whose pull request is open, or may be again, and into the branch of another item."""
    branches = {at.branch for at in state.items.values() if at.branch}
    open = (at.phase is ItemPhase.LANDED and not at.merged and not at.closed for at in state.items.values())
    return [id for (id, at), there in zip(state.items.items(), open, strict=True) if there and at.into in branches]


def proposed(result: DeliveryResult) -> str:
    """The commit of a delivery's pull request that others may build on; empty: it failed, or is a draft with doubts."""
    tested = result.tests.status is TestsStatus.GREEN and result.review.status is not ReviewStatus.BLOCKED
    whole = result.status in (Status.DELIVERED, Status.COMPLETED) or (result.status is Status.DRAFT and tested)
    return (result.head_sha or "") if whole and not result.reason else ""


def _behind(id: str, items: Mapping[str, BacklogItem]) -> set[str]:
    """All that an item depends on, directly or not."""
    found, left = set[str](), list(_of(items.get(id)))
    while left:
        one = left.pop()
        if one in items and one not in found:
            found.add(one)
            left += _of(items[one])
    return found


def _of(item: BacklogItem | None) -> Iterable[str]:
    return item.depends_on if item is not None else ()


def _landed_at(at: ItemState) -> float:
    return at.ended.timestamp() if at.ended is not None else 0.0
