"""Conflicts foreseen between items that are being built: kept as their deliveries tell them, shown while they last."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.models.backlog_state import BacklogState, ItemPhase
from perdure.models.ids import delivery_key
from perdure.text import one_line

_SHOWN, _KEPT, _CHARS = 2, 10, 200
"""Pairs in one line; pairs and characters of a path that are kept of one item, whatever is sent."""


def foresee(state: BacklogState, id: str, conflicts: Mapping[str, str]) -> None:
    """Take in which deliveries (their keys) an item's newest commit would conflict with; what was known of it before
    counts no longer, neither its own word nor the others'."""
    keys = {delivery_key(at.delivery): other for other, at in state.items.items() if at.delivery and other != id}
    known = [(keys[key], path[:_CHARS]) for key, path in sorted(conflicts.items()) if key in keys]
    for at in state.items.values():
        at.meets.pop(id, None)
    state.items[id].meets = dict(known[:_KEPT])


def foreseen(state: BacklogState, id: str) -> str:
    """`likely to conflict with page in src/app.py`, of items that are being built both; empty: none is known."""
    pairs = dict(state.items[id].meets)
    pairs |= {other: at.meets[id] for other, at in state.items.items() if id in at.meets and other not in pairs}
    there = (other for other in pairs if other in state.items and state.items[other].phase is ItemPhase.BUILDING)
    found = [f"{other} in {one_line(pairs[other], 60)}" for other in sorted(there)]
    if not found:
        return ""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"likely to conflict with {', '.join(found[:_SHOWN])}{more}"
