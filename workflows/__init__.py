"""The business process, deterministic: what happens, in which order, and who decides."""

from workflows.delivery import Delivery

WORKFLOWS = [Delivery]
