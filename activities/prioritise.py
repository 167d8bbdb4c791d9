"""Prioritise: give a delivery that runs another of Temporal's priorities, as its backlog's item has it now.

Effect: the options of its workflow on the server. Key: the delivery; the same again changes nothing.
"""

from __future__ import annotations

from datetime import timedelta

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio import activity
from temporalio.api.common.v1 import Priority, WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import UpdateWorkflowExecutionOptionsRequest
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.landing import PriorityInput, PriorityResult

RPC_TIMEOUT = timedelta(seconds=10)
"""The time for one small write; after that the activity is tried again."""

_UNSUPPORTED = (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.PERMISSION_DENIED)


@activity.defn
async def prioritise_delivery(work: PriorityInput) -> PriorityResult:
    """Set the priority and the fairness key of a running delivery on the server; return the reason where the server
    does not do that, or the delivery has ended. Raises RPCError, to be tried again."""
    client = activity.client()
    request = UpdateWorkflowExecutionOptionsRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=work.delivery),
        workflow_execution_options=WorkflowExecutionOptions(
            priority=Priority(priority_key=work.key, fairness_key=work.shared_with)
        ),
        update_mask=FieldMask(paths=["priority"]),
        identity=client.identity,
    )
    try:
        await client.workflow_service.update_workflow_execution_options(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return PriorityResult(reason="it has ended")
        if error.status in _UNSUPPORTED:
            return PriorityResult(reason=f"this server does not change what runs: {error.message}"[:200])
        raise
    return PriorityResult()
