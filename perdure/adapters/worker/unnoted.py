"""The work that a dead worker was handed and had not noted yet, found by asking the server.

Between the server's handing out an activity and the worker's note of it lie some milliseconds: whoever dies there
leaves no token behind. But the server shows to whom it handed an activity last, each worker has a name of its own, and
a token says no more than which attempt it is about. So it is written anew, for that attempt: the server compares it
with the attempt that runs, like any token (seen with server 1.32: NotFound for an earlier attempt, a later one, and one
that waits). Should a server's tokens look different, it says so, and the heartbeat timeout decides as before.

The same holds for a workflow's next decision, which no worker notes: history says who took it, and given back as failed
it is handed out again after 10 ms, instead of after its time-out of 5 s.

Three other ways were tried and are not taken. Its reset of an activity changes nothing before the timeout for one that
was handed out. A report by activity id kills the living next attempt (holes.md H4). A shorter heartbeat timeout works,
but given back while the next attempt waits it ends the activity for good, by a ScheduleToStart timeout of the past.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryReverseRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.client import Client
from temporalio.client import WorkflowExecution as Run
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.limits import TASK_QUEUE

RPC_TIMEOUT = timedelta(seconds=5)

RUNNING = f"ExecutionStatus = 'Running' AND TaskQueue = '{TASK_QUEUE}'"

_TAKEN = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
_DECIDING = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED

_LATEST = 20
"""Events from the end of a history: that a decision was taken is the last one but for what came in since."""


async def handed_to(client: Client, worker: str) -> AsyncIterator[dict[str, Any]]:
    """Notes, as that worker would have made them, of each activity that the server believes it to be at, and of each
    decision of a workflow: that has no name of an activity.

    Raises RPCError.
    """
    namespace = ""
    async for run in client.list_workflows(RUNNING):
        described = await _described(client, run)
        if described.pending_workflow_task.state == _DECIDING and (taken := await _decision(client, run, worker)):
            namespace = namespace or await _namespace_id(client)
            yield _note(run, _token(namespace, run, taken), "")
        for pending in described.pending_activities:
            if pending.state != _TAKEN or not pending.last_worker_identity.endswith(worker):
                continue
            namespace = namespace or await _namespace_id(client)
            if scheduled := await _scheduled(client, run, pending.activity_id):
                token = _token(namespace, run, {4: scheduled, 5: pending.attempt}, pending.activity_id)
                yield _note(run, token, pending.activity_type.name)


async def give_back(client: Client, token: bytes) -> None:
    """A decision that a dead worker had taken: it has made none. Raises RPCError."""
    given_back = RespondWorkflowTaskFailedRequest(
        namespace=client.namespace,
        task_token=token,
        cause=WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FAILOVER_CLOSE_COMMAND,
        failure=Failure(message="its worker died", source="Perdure"),
    )
    await client.workflow_service.respond_workflow_task_failed(given_back, timeout=RPC_TIMEOUT)


def _note(run: Run, token: bytes, activity: str) -> dict[str, Any]:
    return {
        "token": base64.b64encode(token).decode(),
        "workflow_id": run.id,
        "run_id": run.run_id,
        "activity": activity,
    }


async def _described(client: Client, run: Run) -> DescribeWorkflowExecutionResponse:
    execution = WorkflowExecution(workflow_id=run.id, run_id=run.run_id)
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
    try:
        return await client.workflow_service.describe_workflow_execution(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return DescribeWorkflowExecutionResponse()  # it has ended: nothing is pending
        raise


async def _decision(client: Client, run: Run, worker: str) -> dict[int, int] | None:
    """A token's numbers of the decision that is pending, if that worker has taken it; None when another did, or nobody
    can say: of a second attempt history knows nothing."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=run.id, run_id=run.run_id),
        maximum_page_size=_LATEST,
    )
    said = await client.workflow_service.get_workflow_execution_history_reverse(request, timeout=RPC_TIMEOUT)
    for event in said.history.events:
        if event.HasField("workflow_task_started_event_attributes"):
            taken = event.workflow_task_started_event_attributes
            ours = taken.identity.endswith(worker)
            return {4: taken.scheduled_event_id, 5: 1, 10: event.event_id} if ours else None
        if event.HasField("workflow_task_failed_event_attributes") or event.HasField(
            "workflow_task_timed_out_event_attributes"
        ):
            return None
    return None


async def _namespace_id(client: Client) -> str:
    request = DescribeNamespaceRequest(namespace=client.namespace)
    return (await client.workflow_service.describe_namespace(request, timeout=RPC_TIMEOUT)).namespace_info.id


async def _scheduled(client: Client, run: Run, activity_id: str) -> int:
    """The event with which an activity that is pending began; 0 when it is none any more."""
    found = 0
    async for event in client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history_events():
        if event.activity_task_scheduled_event_attributes.activity_id == activity_id:
            found = event.event_id
    return found


def _token(namespace: str, run: Run, numbers: dict[int, int], activity: str = "") -> bytes:
    """The server's message `Task` (temporal.server.api.token.v1): which attempt at what of which run. `numbers` are its
    fields: 4 the event that scheduled it, 5 the attempt, 10 the event with which a decision was taken."""
    texts = {1: namespace, 2: run.id, 3: run.run_id, **({6: activity} if activity else {})}
    fields = [_varint(field << 3 | 2) + _varint(len(text.encode())) + text.encode() for field, text in texts.items()]
    fields += [_varint(field << 3) + _varint(number) for field, number in numbers.items()]
    return b"".join(fields)


def _varint(number: int) -> bytes:
    """A number as protocol buffers write it: seven bits a byte, the least first."""
    more = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([byte | 0x80 for byte in more[:-1]] + more[-1:])
