"""The business process as Temporal workflows, deterministic: what happens, in which order, and who decides."""

from workflows.backlog import Backlog
from workflows.delivery import Delivery
from workflows.follow_up import Following
from workflows.notification import Notification
from workflows.treasury import Treasury
from workflows.unknown_workflow import UnknownWorkflow

WORKFLOWS = (Delivery, Backlog, Following, Notification, Treasury, UnknownWorkflow)
