"""The graph of a backlog's items: what waits for what, what can never begin, the longest chain of what is left. Also
the stack of pull requests over it: the branch that each item begins from, and where its pull request has to go when
others are merged.

Pure functions; the same for the same state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from perdure.models.backlog.request import BacklogItem
from perdure.models.backlog.state import SATISFIED, BacklogState, ItemPhase, ItemState
from perdure.models.delivery.result import DeliveryResult, ReviewStatus, Status, TestsStatus


class _DependencyNode(NamedTuple):
    """The part of an item's state that the graph depends on."""

    id: str
    phase: ItemPhase
    order: int
    depends_on: tuple[str, ...]


@dataclass(frozen=True)
class Dependencies:
    """The dependencies of a backlog at one moment, by item id; equal for equal items in whatever order they stand.

    missing     what an item that has not begun depends on and has not landed, in the order in which it is written
    blocked_by  of those that cannot begin: the item that ended without landing, directly or behind others
    unblocks    how many distinct items wait for it; of one that can still land, only those that nothing else blocks
    chain_length      how many items are on the longest chain that begins with it, of what can still land; 0: it ended
    dependent_count   how many distinct items depend on it, whatever became of them
    critical    the longest chain of all, in order; empty where none is longer than one item
    """

    missing: Mapping[str, tuple[str, ...]]
    blocked_by: Mapping[str, str]
    unblocks: Mapping[str, int]
    chain_length: Mapping[str, int]
    dependent_count: Mapping[str, int]
    critical: tuple[str, ...]

    @classmethod
    def from_state(cls, state: BacklogState) -> Dependencies:
        """Return the dependencies of a backlog's items as they are now."""
        return _build_dependencies(
            tuple(
                _DependencyNode(id, item_state.phase, item_state.order, item_state.item.depends_on)
                for id, item_state in state.items.items()
            )
        )


@lru_cache(maxsize=16)
def _build_dependencies(nodes: tuple[_DependencyNode, ...]) -> Dependencies:
    """Return by item: dependencies not landed, blocker, how many wait for it or depend on it, and the longest chains.

    Cached by id, phase, order and dependencies of the items: a thousand take 10 ms of a processor, and most messages to
    a backlog change none of this.
    """
    nodes_by_id = {node.id: node for node in nodes}
    in_order, dependent_count = _order_and_count(tuple((node.id, node.depends_on) for node in nodes))
    satisfied = {node.id for node in nodes if node.phase in SATISFIED}
    missing = {
        node.id: tuple(dependency for dependency in dict.fromkeys(node.depends_on) if dependency not in satisfied)
        for node in nodes
        if node.phase is ItemPhase.WAITING
    }
    ended = {node.id for node in nodes if _cannot_land(node)} | {
        dependency for dependencies in missing.values() for dependency in dependencies
    } - nodes_by_id.keys()
    blocked_by = dict[str, str]()
    for id in in_order if ended else ():
        culprits = (
            blocked_by.get(dependency) or (dependency if dependency in ended else "")
            for dependency in missing.get(id, ())
        )
        if culprit := next(filter(None, culprits), ""):
            blocked_by[id] = culprit
    waiting_masks = _dependent_masks(in_order, missing)
    blocked_mask = _bit_mask(in_order, blocked_by)
    chain_length, next_in_chain = _find_chains(nodes_by_id, in_order, missing, blocked_by)
    return Dependencies(
        missing=missing,
        blocked_by=blocked_by,
        unblocks={
            id: (
                waiting_masks[id] if id in ended or id in blocked_by else waiting_masks[id] & ~blocked_mask
            ).bit_count()
            for id in in_order
        },
        chain_length=chain_length,
        dependent_count=dependent_count,
        critical=_critical_chain(nodes_by_id, chain_length, next_in_chain),
    )


def _find_chains(
    nodes_by_id: Mapping[str, _DependencyNode],
    in_order: list[str],
    missing: Mapping[str, Sequence[str]],
    blocked_by: Mapping[str, str],
) -> tuple[dict[str, int], dict[str, str]]:
    """Return, by item, the length of the longest chain that begins with it, and the next item on that chain.

    Only items that can still land count, any other has length 0; of two next items the older one is chosen.
    """
    chain_length, next_in_chain = dict.fromkeys(in_order, 0), dict[str, str]()
    for id in reversed(in_order):
        if nodes_by_id[id].phase not in (ItemPhase.WAITING, ItemPhase.BUILDING) or id in blocked_by:
            continue
        chain_length[id] += 1
        for dependency in missing.get(id, ()):
            is_older = chain_length[dependency] == chain_length[id] and _age_key(nodes_by_id[id]) < _age_key(
                nodes_by_id[next_in_chain[dependency]]
            )
            if chain_length[dependency] < chain_length[id] or is_older:
                chain_length[dependency], next_in_chain[dependency] = chain_length[id], id
    return chain_length, next_in_chain


def find_cycle(depends_on: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return one cycle of ids that wait for each other, beginning with the smallest id, which is repeated at the end;
    empty: there is none."""
    try:
        TopologicalSorter(depends_on).prepare()
    except CycleError as error:
        ids: list[str] = error.args[1][:-1][::-1]
        start = ids.index(min(ids))
        return (*ids[start:], *ids[: start + 1])
    return ()


@lru_cache(maxsize=16)
def _order_and_count(depends_on: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[list[str], dict[str, int]]:
    """Return all ids, each after those it depends on, and by id how many items depend on it, directly or through
    others.

    Cached by the dependencies, which stay the same as long as no item is added.
    """
    by_id = dict(depends_on)
    graph = {id: [dependency for dependency in dependencies if dependency in by_id] for id, dependencies in depends_on}
    in_order = list(TopologicalSorter(graph).static_order())
    return in_order, {id: mask.bit_count() for id, mask in _dependent_masks(in_order, by_id).items()}


def _cannot_land(node: _DependencyNode) -> bool:
    """Return True when an item failed or was cancelled: as things are, what depends on it never begins."""
    return node.phase in (ItemPhase.FAILED, ItemPhase.CANCELLED)


def _bit_mask(in_order: list[str], ids: Iterable[str]) -> int:
    """Return an integer with one bit set for the position in the order of each of these ids."""
    positions = {id: position for position, id in enumerate(in_order)}
    return sum(1 << positions[id] for id in ids)


def _dependent_masks(in_order: list[str], depends_on: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return by id the items that depend on it, directly or through others, as an integer with a bit for each one's
    position in the order."""
    masks = dict.fromkeys(in_order, 0)
    for position, id in reversed(list(enumerate(in_order))):
        for dependency in depends_on.get(id, ()):
            if dependency in masks:
                masks[dependency] |= masks[id] | 1 << position
    return masks


def _age_key(node: _DependencyNode) -> tuple[int, str]:
    """Return a sort key by which older items come first."""
    return (node.order, node.id)


def _critical_chain(
    nodes_by_id: Mapping[str, _DependencyNode], chain_length: Mapping[str, int], next_in_chain: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the ids of the longest chain of items that can still land, in order; of equal ones the one that begins
    with the oldest item.

    Empty when no chain has two items.
    """
    first_id = min(chain_length, key=lambda id: (-chain_length[id], *_age_key(nodes_by_id[id])), default="")
    if chain_length.get(first_id, 0) < 2:
        return ()
    chain = [first_id]
    while chain[-1] in next_in_chain:
        chain.append(next_in_chain[chain[-1]])
    return tuple(chain)


def no_place_reason(item: BacklogItem, items: Mapping[str, BacklogItem]) -> str:
    """Return the reason why an item has no place in a stack of pull requests, as `field: why`; empty: it has one.

    It has none when it has check commands, or depends on several items of which none stands on all the others: a pull
    request has one base.
    """
    if item.check:
        return "check: runs with each landing on the branch of the backlog, and a stack has none: leave it out"
    dependencies = {id: _all_dependencies(id, items) for id in item.depends_on if id in items}
    if dependencies and not any(dependencies.keys() - {id} <= indirect for id, indirect in dependencies.items()):
        names = " and ".join(dependencies)
        return f"depends_on: {names}: a pull request has one base, and neither stands on the other: let one of them do"
    return ""


def place_parts(whole_id: str, parts: list[BacklogItem], items: Mapping[str, BacklogItem]) -> list[BacklogItem]:
    """Return the parts of an item of a stack, each on what that item stood on unless it depends on something itself,
    without check commands.

    When two parts would stand side by side below a third item, all of them stand one on the other, in an order in which
    they can be built, so that each has a place.

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
    """Return the branch that an item's delivery begins from in a stack: the branch with the work of the landed item
    below it, which is that one's own or, once merged, the branch it went into; the base when none has landed below it.

    Of several items below, the one that stands on most of the others counts, then the one that landed last.
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
    """Return the branch that has the work of an item of a stack: its own, or when its pull request was merged the one
    it went into, and so on down to the base."""
    assert state.opened is not None
    by_branch = {other.stacked.branch: other for other in state.items.values() if other.stacked.branch}
    for _ in state.items:  # a circle of branches would be somebody else's doing
        if not item_state.stacked.merged:
            return item_state.stacked.branch
        if item_state.stacked.into not in by_branch:
            return item_state.stacked.into or state.opened.base
        item_state = by_branch[item_state.stacked.into]
    return state.opened.base


def retargets(state: BacklogState) -> dict[str, str]:
    """Return, by item, the branch to which its open pull request has to be retargeted, because the branch it is into
    was merged; items that stay are left out."""
    by_branch = {
        item_state.stacked.branch: item_state for item_state in state.items.values() if item_state.stacked.branch
    }
    targets = {}
    for id, item_state in state.items.items():
        if (
            item_state.phase is ItemPhase.LANDED
            and not item_state.stacked.merged
            and item_state.stacked.into in by_branch
            and by_branch[item_state.stacked.into].stacked.merged
        ):
            targets[id] = branch_with_work(state, by_branch[item_state.stacked.into])
    return targets


def stacked_items(state: BacklogState) -> list[str]:
    """Return the ids of items whose pull request is open, or may be opened again, and is into the branch of another
    item."""
    branches = {item_state.stacked.branch for item_state in state.items.values() if item_state.stacked.branch}
    open_flags = (
        item_state.phase is ItemPhase.LANDED and not item_state.stacked.merged and not item_state.stacked.closed
        for item_state in state.items.values()
    )
    return [
        id
        for (id, item_state), is_open in zip(state.items.items(), open_flags, strict=True)
        if is_open and item_state.stacked.into in branches
    ]


def stackable_commit(result: DeliveryResult) -> str:
    """Return the commit of a delivery's pull request that others may build on.

    Empty: the delivery failed, or its pull request is a draft whose tests are not green or that has blockers.
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
    return item_state.child.ended_at.timestamp() if item_state.child.ended_at is not None else 0.0


OUTCOMES = ("failed", "skipped", "cancelled", "decomposed", "building", "not begun")
"""Outcomes of an item that has not landed, besides `blocked by` and the id of another one."""


def unlanded_outcomes(state: BacklogState) -> dict[str, str]:
    """Return what came of each item that has not landed, by id, in their order: one of OUTCOMES, or which other item
    it is blocked by."""
    blocked_by = Dependencies.from_state(state).blocked_by
    order = sorted(state.items, key=lambda id: (state.items[id].order, id))
    phases = {id: state.items[id].phase for id in order if state.items[id].phase is not ItemPhase.LANDED}
    not_begun = {id: f"blocked by {culprit}" for id, culprit in blocked_by.items()}
    return {
        id: not_begun.get(id, "not begun") if phase is ItemPhase.WAITING else phase.value
        for id, phase in phases.items()
    }
