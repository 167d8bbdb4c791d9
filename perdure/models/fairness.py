"""The order in which a server hands out work for which there are not enough slots: Temporal's priority, fairness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEY_BYTES = 64
"""A server takes no longer fairness key."""

MIDDLE = 3
"""Temporal's priorities are 1 (first) to 5; work of no priority has this one."""


def urgency(priority: int) -> int | None:
    """Temporal's priority key for an item's priority of -100 to 100: 1 above 50, 5 below -50; None for 0: that of whom
    it is a part of, 3 unless somebody said otherwise."""
    step = 1 if abs(priority) <= 50 else 2
    return (MIDDLE - step if priority > 0 else MIDDLE + step) if priority else None


def shared_with(id: str, raw: Mapping[str, Any], *, backlog: bool = False) -> str | None:
    """Those with whom a workflow shares its turns: its backlog's deliveries; the repository's, for one that is in none.
    Each such key has its turn, however much waits under another. None: a task shares those of its delivery."""
    place = raw.get("landing")
    if isinstance(place, Mapping) and place.get("within"):
        return None
    named = id if backlog else place.get("backlog") if isinstance(place, Mapping) else raw.get("repository")
    return str(named or id).encode()[-KEY_BYTES:].decode(errors="ignore")
