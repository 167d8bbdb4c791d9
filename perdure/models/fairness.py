"""The order in which a server hands out work when slots are scarce: Temporal's priority and fairness keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FAIRNESS_KEY_BYTES = 64
"""A server accepts no longer fairness key."""

MIDDLE_PRIORITY = 3
"""Temporal's priorities are 1 (first) to 5; work without a priority has this one."""


def temporal_priority(priority: int) -> int | None:
    """Return Temporal's priority key for an item's priority of -100 to 100: 1 above 50, 2 above 0, 4 below 0, 5 below
    -50.

    None for 0: the work then has the priority of the workflow that it is a part of, 3 unless something else was set.
    """
    step = 1 if abs(priority) <= 50 else 2
    return (MIDDLE_PRIORITY - step if priority > 0 else MIDDLE_PRIORITY + step) if priority else None


def fairness_key(id: str, raw: Mapping[str, Any], *, backlog: bool = False) -> str | None:
    """Return the fairness key of a workflow: that of its backlog, or of its repository where it is in no backlog.

    Workflows of one key share its turns, and each key has its turn, however much waits under another. None: a task of a
    delivery, which has that delivery's key. A key is cut to its last FAIRNESS_KEY_BYTES.

    id, raw  the workflow's id and its request as it was sent; backlog: it is a backlog itself
    """
    landing = raw.get("landing")
    if isinstance(landing, Mapping) and landing.get("within"):
        return None
    sharer = id if backlog else landing.get("backlog") if isinstance(landing, Mapping) else raw.get("repository")
    return str(sharer or id).encode()[-FAIRNESS_KEY_BYTES:].decode(errors="ignore")
