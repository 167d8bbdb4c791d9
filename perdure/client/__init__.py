"""Submit a request, come back to it, read it: what any Python program needs of Perdure.

Light on purpose: models and the Temporal client, nothing else. In another language, start workflow type `Delivery`
on task queue `perdure` with the same JSON.
"""

from perdure.client.backlog import Backlog
from perdure.client.backlog_submit import SubmittedBacklog
from perdure.client.decisions import Answered
from perdure.client.delivery import Delivery
from perdure.client.namespace import Perdure, Submitted
from perdure.client.schedules import Scheduled
from perdure.client.view import Described, Listed, Pending

__all__ = [
    "Answered",
    "Backlog",
    "Delivery",
    "Described",
    "Listed",
    "Pending",
    "Perdure",
    "Scheduled",
    "Submitted",
    "SubmittedBacklog",
]
