"""Client library of Perdure for any Python program: submit a request, follow it, decide what it waits for, read it.

Light on purpose: it needs models and the Temporal client, nothing else. From another language, start workflow type
`Delivery` on task queue `perdure` with the same JSON.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.client.backlog import Backlog, BacklogSubmission
    from perdure.client.delivery.decisions import DecisionReply
    from perdure.client.delivery.handle import Delivery
    from perdure.client.namespace import Perdure, Submission
    from perdure.client.schedules import ScheduleInfo
    from perdure.client.server.view import ListEntry, PendingActivity, RunDescription

__all__ = [
    "Backlog",
    "BacklogSubmission",
    "DecisionReply",
    "Delivery",
    "ListEntry",
    "PendingActivity",
    "Perdure",
    "RunDescription",
    "ScheduleInfo",
    "Submission",
]

_MODULES = {
    "perdure.client.backlog": ("Backlog", "BacklogSubmission"),
    "perdure.client.delivery.decisions": ("DecisionReply",),
    "perdure.client.delivery.handle": ("Delivery",),
    "perdure.client.namespace": ("Perdure", "Submission"),
    "perdure.client.schedules": ("ScheduleInfo",),
    "perdure.client.server.view": ("ListEntry", "PendingActivity", "RunDescription"),
}


def __getattr__(name: str) -> object:
    """Import a class of this package when it is first asked for: a program that lists needs none of what decides."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
