"""The graph of a backlog's items: what waits for what, what can never begin, the longest chain of what is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from perdure.models.backlog_state import SATISFIED, BacklogState, ItemPhase


class _Place(NamedTuple):
    """All that counts of one item."""

    id: str
    phase: ItemPhase
    order: int
    depends_on: tuple[str, ...]


@dataclass(frozen=True)
class Dependencies:
    """All of it at one moment, by item id; the same for the same items in whatever order they stand.

    missing   what an item that has not begun depends on and has not landed, in the order in which it is written
    blocked   of those that cannot begin: the item that ended without landing, directly or behind others
    unblocks  how many distinct items wait for it; of one that can still land, only those that nothing else blocks
    chain     how many items are on the longest chain that begins with it, of what can still land; 0: it has ended
    rests_on  how many distinct items depend on it, whatever became of them
    critical  the longest chain of all, in order; empty where none is longer than one item
    """

    missing: Mapping[str, tuple[str, ...]]
    blocked: Mapping[str, str]
    unblocks: Mapping[str, int]
    chain: Mapping[str, int]
    rests_on: Mapping[str, int]
    critical: tuple[str, ...]

    @classmethod
    def of(cls, state: BacklogState) -> Dependencies:
        return _of(tuple(_Place(id, at.phase, at.order, at.item.depends_on) for id, at in state.items.items()))


@lru_cache(maxsize=16)
def _of(places: tuple[_Place, ...]) -> Dependencies:
    """A thousand items take 10 ms of a processor, and most of what a backlog hears changes none of this."""
    items = {at.id: at for at in places}
    in_order, rests_on = _shape(tuple((at.id, at.depends_on) for at in places))
    satisfied = {at.id for at in places if at.phase in SATISFIED}
    missing = {
        at.id: tuple(one for one in dict.fromkeys(at.depends_on) if one not in satisfied)
        for at in places
        if at.phase is ItemPhase.WAITING
    }
    over = {at.id for at in places if _over(at)} | {one for after in missing.values() for one in after} - items.keys()
    blocked = dict[str, str]()
    for id in in_order if over else ():
        culprits = (blocked.get(one) or (one if one in over else "") for one in missing.get(id, ()))
        if culprit := next(filter(None, culprits), ""):
            blocked[id] = culprit
    waiting = _behind(in_order, missing)
    stuck = _mask(in_order, blocked)
    chain, longest = _chains(items, in_order, missing, blocked)
    return Dependencies(
        missing=missing,
        blocked=blocked,
        unblocks={
            id: (waiting[id] if id in over or id in blocked else waiting[id] & ~stuck).bit_count() for id in in_order
        },
        chain=chain,
        rests_on=rests_on,
        critical=_critical(items, chain, longest),
    )


def _chains(
    items: Mapping[str, _Place], in_order: list[str], missing: Mapping[str, Sequence[str]], blocked: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, str]]:
    """The longest chain of what can still land that begins with each; and the next item of it, of two the older."""
    chain, following = dict.fromkeys(in_order, 0), dict[str, str]()
    for id in reversed(in_order):
        if items[id].phase not in (ItemPhase.WAITING, ItemPhase.BUILDING) or id in blocked:
            continue
        chain[id] += 1
        for one in missing.get(id, ()):
            older = chain[one] == chain[id] and _age(items[id]) < _age(items[following[one]])
            if chain[one] < chain[id] or older:
                chain[one], following[one] = chain[id], id
    return chain, following


def cycle(depends_on: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """One circle of ids that wait for each other, the first again at its end, from the smallest on; empty: none."""
    try:
        TopologicalSorter(depends_on).prepare()
    except CycleError as error:
        found: list[str] = error.args[1][:-1][::-1]
        at = found.index(min(found))
        return (*found[at:], *found[: at + 1])
    return ()


@lru_cache(maxsize=16)
def _shape(depends_on: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[list[str], dict[str, int]]:
    """All ids, each behind what it depends on; and how many depend on each. The same as long as no item is added."""
    known = dict(depends_on)
    graph = {id: [one for one in after if one in known] for id, after in depends_on}
    in_order = list(TopologicalSorter(graph).static_order())
    return in_order, {id: behind.bit_count() for id, behind in _behind(in_order, known).items()}


def _over(at: _Place) -> bool:
    """It ended without landing: as things are, what depends on it never begins; nor what depends on one not there."""
    return at.phase in (ItemPhase.FAILED, ItemPhase.CANCELLED)


def _mask(in_order: list[str], ids: Iterable[str]) -> int:
    place = {id: at for at, id in enumerate(in_order)}
    return sum(1 << place[id] for id in ids)


def _behind(in_order: list[str], depends_on: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The distinct items that depend on each, directly or behind others: a bit for each place in the order."""
    found = dict.fromkeys(in_order, 0)
    for at, id in reversed(list(enumerate(in_order))):
        for one in depends_on.get(id, ()):
            if one in found:
                found[one] |= found[id] | 1 << at
    return found


def _age(at: _Place) -> tuple[int, str]:
    return (at.order, at.id)


def _critical(items: Mapping[str, _Place], chain: Mapping[str, int], longest: Mapping[str, str]) -> tuple[str, ...]:
    begin = min(chain, key=lambda id: (-chain[id], *_age(items[id])), default="")
    if chain.get(begin, 0) < 2:
        return ()
    found = [begin]
    while found[-1] in longest:
        found.append(longest[found[-1]])
    return tuple(found)
