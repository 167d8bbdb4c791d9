"""The graph of a backlog's items: what waits for what, what can never begin, and the longest chain of what is left to
do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from perdure.models.backlog_state import SATISFIED, BacklogState, ItemPhase


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
    """Return the dependencies of these items, cached by them.

    A thousand items take 10 ms of a processor, and most messages to a backlog change none of this.
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
    """Return by item the length of the longest chain that begins with it, and the next item on that chain.

    Only items count that can still land; of two next items the older one is chosen.
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
    """Return one cycle of ids that wait for each other, the first repeated at its end; empty: there is none.

    It begins with the smallest id.
    """
    try:
        TopologicalSorter(depends_on).prepare()
    except CycleError as error:
        ids: list[str] = error.args[1][:-1][::-1]
        start = ids.index(min(ids))
        return (*ids[start:], *ids[: start + 1])
    return ()


@lru_cache(maxsize=16)
def _order_and_count(depends_on: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[list[str], dict[str, int]]:
    """Return all ids, each after what it depends on, and how many items depend on each.

    Cached by the dependencies, which stay the same as long as no item is added.
    """
    by_id = dict(depends_on)
    graph = {id: [dependency for dependency in dependencies if dependency in by_id] for id, dependencies in depends_on}
    in_order = list(TopologicalSorter(graph).static_order())
    return in_order, {id: mask.bit_count() for id, mask in _dependent_masks(in_order, by_id).items()}


def _cannot_land(node: _DependencyNode) -> bool:
    """Return whether an item ended without landing: as things are, what depends on it never begins."""
    return node.phase in (ItemPhase.FAILED, ItemPhase.CANCELLED)


def _bit_mask(in_order: list[str], ids: Iterable[str]) -> int:
    """Return an integer with one bit set for the position in the order of each of these ids."""
    positions = {id: position for position, id in enumerate(in_order)}
    return sum(1 << positions[id] for id in ids)


def _dependent_masks(in_order: list[str], depends_on: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return by id the distinct items that depend on it, directly or through others, as a bit for each position in the
    order."""
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
    """Return the longest chain of items that can still land, in order, of equal ones the oldest.

    Empty where no chain has two items.
    """
    first_id = min(chain_length, key=lambda id: (-chain_length[id], *_age_key(nodes_by_id[id])), default="")
    if chain_length.get(first_id, 0) < 2:
        return ()
    chain = [first_id]
    while chain[-1] in next_in_chain:
        chain.append(next_in_chain[chain[-1]])
    return tuple(chain)
