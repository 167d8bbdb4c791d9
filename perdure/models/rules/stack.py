"""A stack of pull requests: the branch that each item begins from, and the one its pull request is into.

Pure functions; the same for the same state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter

from perdure.models.backlog import BacklogItem
from perdure.models.backlog_state import BacklogState, ItemPhase, ItemState
from perdure.models.result import DeliveryResult, ReviewStatus, Status, TestsStatus


def no_place_reason(item: BacklogItem, items: Mapping[str, BacklogItem]) -> str:
    """Return the reason why an item has no place in a stack, as `field: why`; empty: it has one.

    It has check commands, or depends on items of which none stands on all others: a pull request has one base.
    """
    if item.check:
        return "check: runs with each landing on the branch of the backlog, and a stack has none: leave it out"
    dependencies = {id: _all_dependencies(id, items) for id in item.depends_on if id in items}
    if dependencies and not any(dependencies.keys() - {id} <= indirect for id, indirect in dependencies.items()):
        names = " and ".join(dependencies)
        return f"depends_on: {names}: a pull request has one base, and neither stands on the other: let one of them do"
    return ""


def place_parts(whole_id: str, parts: list[BacklogItem], items: Mapping[str, BacklogItem]) -> list[BacklogItem]:
    """Return the parts of an item of a stack, on what that item stood on, without check commands.

    Where two parts would stand side by side below a third item, all of them stand one on the other, in an order in
    which they can be built, so that each has a place.

    whole_id  of the item; items: all others of the stack, and that item

    Check commands are run on a backlog's branch, which a stack does not have.
    """
    dependencies, part_ids = items[whole_id].depends_on, tuple(part.id for part in parts)
    placed_parts = [
        part.model_copy(update={"check": (), "depends_on": part.depends_on or dependencies}) for part in parts
    ]
    others = {
        id: item.model_copy(update={"depends_on": tuple(dict.fromkeys((*item.depends_on, *part_ids)))})
        for id, item in items.items()
        if whole_id in item.depends_on
    }
    all_items = {**items, **others, **{part.id: part for part in placed_parts}}
    if not any(no_place_reason(candidate, all_items) for candidate in (*others.values(), *placed_parts)):
        return placed_parts
    by_id, below, chain = {part.id: part for part in placed_parts}, dependencies, list[BacklogItem]()
    for id in TopologicalSorter(
        {part.id: [lower for lower in part.depends_on if lower in part_ids] for part in placed_parts}
    ).static_order():
        lower = tuple(dict.fromkeys((*by_id[id].depends_on, *below)))
        chain.append(by_id[id].model_copy(update={"depends_on": lower}))
        below = (id,)
    return chain


def start_branch(state: BacklogState, id: str) -> str:
    """Return the branch that an item's delivery begins from.

    It is the branch of the item below, where that one's pull request is open; else the branch which that went into;
    else the base. Of several items below, the one that stands on most of the others counts, then the one that landed
    last.
    """
    assert state.opened is not None
    items = {name: item_state.item for name, item_state in state.items.items()}
    below = [state.items[name] for name in _all_dependencies(id, items) if state.items[name].phase is ItemPhase.LANDED]
    if not below:
        return state.opened.base
    landed_ids = {item_state.item.id for item_state in below}
    top = max(
        below,
        key=lambda item_state: (
            len(landed_ids & _all_dependencies(item_state.item.id, items)),
            _landing_time(item_state),
            item_state.item.id,
        ),
    )
    return branch_with_work(state, top)


def branch_with_work(state: BacklogState, item_state: ItemState) -> str:
    """Return the branch that has what this item brought: its own, or where that was merged the one it went into."""
    assert state.opened is not None
    by_branch = {other.branch: other for other in state.items.values() if other.branch}
    for _ in state.items:  # a circle of branches would be somebody else's doing
        if not item_state.merged:
            return item_state.branch
        if item_state.into not in by_branch:
            return item_state.into or state.opened.base
        item_state = by_branch[item_state.into]
    return state.opened.base


def retargets(state: BacklogState) -> dict[str, str]:
    """Return, by item, the branch to which a pull request has to be retargeted, since the branch it is into was
    merged."""
    by_branch = {item_state.branch: item_state for item_state in state.items.values() if item_state.branch}
    targets = {}
    for id, item_state in state.items.items():
        if (
            item_state.phase is ItemPhase.LANDED
            and not item_state.merged
            and item_state.into in by_branch
            and by_branch[item_state.into].merged
        ):
            targets[id] = branch_with_work(state, by_branch[item_state.into])
    return targets


def stacked_items(state: BacklogState) -> list[str]:
    """Return the items whose pull request is open, or may be opened again, and is into the branch of another item."""
    branches = {item_state.branch for item_state in state.items.values() if item_state.branch}
    open_flags = (
        item_state.phase is ItemPhase.LANDED and not item_state.merged and not item_state.closed
        for item_state in state.items.values()
    )
    return [
        id
        for (id, item_state), is_open in zip(state.items.items(), open_flags, strict=True)
        if is_open and item_state.into in branches
    ]


def stackable_commit(result: DeliveryResult) -> str:
    """Return the commit of a delivery's pull request that others may build on.

    Empty: the delivery failed, or its pull request is a draft with red tests or blockers.
    """
    has_no_doubts = result.tests.status is TestsStatus.GREEN and result.review.status is not ReviewStatus.BLOCKED
    is_complete = result.status in (Status.DELIVERED, Status.COMPLETED) or (
        result.status is Status.DRAFT and has_no_doubts
    )
    return (result.head_sha or "") if is_complete and not result.reason else ""


def _all_dependencies(id: str, items: Mapping[str, BacklogItem]) -> set[str]:
    """Return the ids of all items that an item depends on, directly or through others."""
    dependencies, to_visit = set[str](), list(_direct_dependencies(items.get(id)))
    while to_visit:
        item_id = to_visit.pop()
        if item_id in items and item_id not in dependencies:
            dependencies.add(item_id)
            to_visit += _direct_dependencies(items[item_id])
    return dependencies


def _direct_dependencies(item: BacklogItem | None) -> Iterable[str]:
    """Return the ids that an item depends on; none for None."""
    return item.depends_on if item is not None else ()


def _landing_time(item_state: ItemState) -> float:
    """Return when an item landed, in seconds since 1970; 0: not known."""
    return item_state.ended_at.timestamp() if item_state.ended_at is not None else 0.0
