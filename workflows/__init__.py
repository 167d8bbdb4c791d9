"""The business process, deterministic: what happens, in which order, and who decides."""

from workflows.backlog import Backlog
from workflows.delivery import Delivery
from workflows.following import Following
from workflows.misspelt import Misspelt
from workflows.notification import Notification
from workflows.treasury import Treasury

WORKFLOWS = (Delivery, Backlog, Following, Notification, Treasury, Misspelt)
