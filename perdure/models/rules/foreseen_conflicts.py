"""Conflicts foreseen between items that are being built: kept as their deliveries report them, shown while they
last."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.models.backlog_state import BacklogState, ItemPhase
from perdure.models.ids import delivery_key
from perdure.text import one_line

_SHOWN, _KEPT, _CHARS = 2, 10, 200
"""Pairs in one line; pairs and characters of a path that are kept of one item, whatever is sent."""


def record_conflicts(state: BacklogState, id: str, conflicts: Mapping[str, str]) -> None:
    """Record which other items an item's newest commit would conflict with, each with the first path.

    conflicts  by key of the other delivery, its path; of other backlogs or of none they are ignored

    What was recorded of the item before is removed, its own report and those of the others.
    """
    keys = {
        delivery_key(item_state.delivery): item_id
        for item_id, item_state in state.items.items()
        if item_state.delivery and item_id != id
    }
    conflicts_by_item = [(keys[key], path[:_CHARS]) for key, path in sorted(conflicts.items()) if key in keys]
    for item_state in state.items.values():
        item_state.foreseen_conflicts.pop(id, None)
    state.items[id].foreseen_conflicts = dict(conflicts_by_item[:_KEPT])


def conflicts_text(state: BacklogState, id: str) -> str:
    """Return `likely to conflict with page in src/app.py`, of other items that are being built now; empty: none is
    known."""
    pairs = dict(state.items[id].foreseen_conflicts)
    pairs |= {
        other: item_state.foreseen_conflicts[id]
        for other, item_state in state.items.items()
        if id in item_state.foreseen_conflicts and other not in pairs
    }
    building = (other for other in pairs if other in state.items and state.items[other].phase is ItemPhase.BUILDING)
    descriptions = [f"{other} in {one_line(pairs[other], 60)}" for other in sorted(building)]
    if not descriptions:
        return ""
    more = f" and {len(descriptions) - _SHOWN} more" if len(descriptions) > _SHOWN else ""
    return f"likely to conflict with {', '.join(descriptions[:_SHOWN])}{more}"
