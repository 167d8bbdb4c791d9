"""Words sent to a delivery that no worker has read yet: they stand behind the last workflow task in history."""

from __future__ import annotations

from typing import Any

from temporalio.api.history.v1 import WorkflowExecutionSignaledEventAttributes
from temporalio.client import WorkflowHandle
from temporalio.converter import DataConverter


async def not_read(handle: WorkflowHandle[Any, Any], converter: DataConverter) -> list[str]:
    """`approve`, `say`, `hold`, `cancel`…, in the order in which they were sent. Raises RPCError."""
    sent: list[str] = []
    async for event in handle.fetch_history_events():
        if event.HasField("workflow_task_completed_event_attributes"):
            sent.clear()
        if event.HasField("workflow_execution_signaled_event_attributes"):
            sent.append(await _name(event.workflow_execution_signaled_event_attributes, converter))
        if event.HasField("workflow_execution_cancel_requested_event_attributes"):
            sent.append("cancel")
    return sent


async def _name(sent: WorkflowExecutionSignaledEventAttributes, converter: DataConverter) -> str:
    """The signal's; of a decision what it decides."""
    if sent.signal_name != "decide":
        return sent.signal_name
    values = await converter.decode_wrapper(sent.input)
    named = values[0].get("update") if values and isinstance(values[0], dict) else None
    return str(named or sent.signal_name).replace("_", "-")
