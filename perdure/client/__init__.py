"""Client library of Perdure for any Python program: submit a request, follow it, decide what it waits for, read it.

Light on purpose: it needs models and the Temporal client, nothing else. From another language, start workflow type
`Delivery` on task queue `perdure` with the same JSON.
"""

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
