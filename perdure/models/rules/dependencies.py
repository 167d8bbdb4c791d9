"""The graph of a backlog's items: what waits for what, what can never begin, the longest chain of what is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from perdure.models.backlog import SATISFIED, BacklogState, ItemPhase, ItemState


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
        items = state.items
        in_order = _sorted(items)
        missing = {
            id: tuple(dict.fromkeys(one for one in at.item.depends_on if not _satisfied(items.get(one))))
            for id, at in items.items()
            if at.phase is ItemPhase.WAITING
        }
        blocked = dict[str, str]()
        for id in in_order:
            culprits = (blocked.get(one) or (one if _over(items.get(one)) else "") for one in missing.get(id, ()))
            if culprit := next(filter(None, culprits), ""):
                blocked[id] = culprit
        everything = _behind(in_order, {id: items[id].item.depends_on for id in in_order})
        waiting = _behind(in_order, missing)
        stuck = _mask(in_order, blocked)
        chain = dict.fromkeys(in_order, 0)
        longest = dict[str, str]()
        for id in reversed(in_order):
            if items[id].phase not in (ItemPhase.WAITING, ItemPhase.BUILDING) or id in blocked:
                continue
            chain[id] += 1
            for one in missing.get(id, ()):
                if (chain[id], _first(items, id, longest.get(one, id))) > (chain[one], False):
                    chain[one], longest[one] = chain[id], id
        return cls(
            missing=missing,
            blocked=blocked,
            unblocks={
                id: (waiting[id] if _over(items[id]) or id in blocked else waiting[id] & ~stuck).bit_count()
                for id in in_order
            },
            chain=chain,
            rests_on={id: everything[id].bit_count() for id in in_order},
            critical=_critical(items, chain, longest),
        )


def cycle(depends_on: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """One circle of ids that wait for each other, the first again at its end, from the smallest on; empty: none."""
    try:
        TopologicalSorter(depends_on).prepare()
    except CycleError as error:
        found: list[str] = error.args[1][:-1][::-1]
        at = found.index(min(found))
        return (*found[at:], *found[: at + 1])
    return ()


def _sorted(items: Mapping[str, ItemState]) -> list[str]:
    """All ids, each behind what it depends on."""
    graph = {id: [one for one in at.item.depends_on if one in items] for id, at in items.items()}
    return list(TopologicalSorter(graph).static_order())


def _satisfied(at: ItemState | None) -> bool:
    return at is not None and at.phase in SATISFIED


def _over(at: ItemState | None) -> bool:
    """It is not there, or it ended without landing: as things are, what depends on it never begins."""
    return at is None or at.phase in (ItemPhase.FAILED, ItemPhase.CANCELLED)


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


def _first(items: Mapping[str, ItemState], one: str, other: str) -> bool:
    """True where `one` is the older of two that are not the same."""
    return (items[one].order, one) < (items[other].order, other)


def _critical(items: Mapping[str, ItemState], chain: Mapping[str, int], longest: Mapping[str, str]) -> tuple[str, ...]:
    begin = min(chain, key=lambda id: (-chain[id], items[id].order, id), default="")
    if chain.get(begin, 0) < 2:
        return ()
    found = [begin]
    while found[-1] in longest:
        found.append(longest[found[-1]])
    return tuple(found)
