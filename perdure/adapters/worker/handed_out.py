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

_STARTED = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
_DECIDING = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED

_LATEST = 20
"""Events that are read from the end of a history: that a workflow task was taken is the last one but for what came in
since."""


async def find_handed_out(client: Client, worker: str) -> AsyncIterator[dict[str, Any]]:
    """Find the work that the server has handed to a worker, and yield a note of each, as the worker would have made it:
    of each activity that the server believes it to be at, and of each workflow task it has taken, whose note has no
    activity.

    Raises RPCError.
    """
    namespace = ""
    async for workflow_run in client.list_workflows(RUNNING):
        description = await _describe_run(client, workflow_run)
        if description.pending_workflow_task.state == _DECIDING and (
            token_fields := await _workflow_task_fields(client, workflow_run, worker)
        ):
            namespace = namespace or await _namespace_id(client)
            yield _make_note(workflow_run, _encode_token(namespace, workflow_run, token_fields), "")
        for pending in description.pending_activities:
            if pending.state != _STARTED or not pending.last_worker_identity.endswith(worker):
                continue
            namespace = namespace or await _namespace_id(client)
            if scheduled_event := await _scheduled_event(client, workflow_run, pending.activity_id):
                token = _encode_token(
                    namespace, workflow_run, {4: scheduled_event, 5: pending.attempt}, pending.activity_id
                )
                yield _make_note(workflow_run, token, pending.activity_type.name)


async def fail_workflow_task(client: Client, token: bytes) -> None:
    """Report a workflow task that a dead worker had taken as failed, so that it is handed out again: the worker has
    decided nothing. Raises RPCError."""
    request = RespondWorkflowTaskFailedRequest(
        namespace=client.namespace,
        task_token=token,
        cause=WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FAILOVER_CLOSE_COMMAND,
        failure=Failure(message="its worker died", source="Perdure"),
    )
    await client.workflow_service.respond_workflow_task_failed(request, timeout=RPC_TIMEOUT)


def _make_note(workflow_run: Run, token: bytes, activity: str) -> dict[str, Any]:
    """Return a note of work in flight, as InFlight writes it; empty `activity`: a workflow task."""
    return {
        "token": base64.b64encode(token).decode(),
        "workflow_id": workflow_run.id,
        "run_id": workflow_run.run_id,
        "activity": activity,
    }


async def _describe_run(client: Client, workflow_run: Run) -> DescribeWorkflowExecutionResponse:
    """Fetch the server's description of a run: what is pending there; an empty one when the run is not known any more.
    Raises RPCError."""
    execution = WorkflowExecution(workflow_id=workflow_run.id, run_id=workflow_run.run_id)
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
    try:
        return await client.workflow_service.describe_workflow_execution(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return DescribeWorkflowExecutionResponse()  # it has ended: nothing is pending
        raise


async def _workflow_task_fields(client: Client, workflow_run: Run, worker: str) -> dict[int, int] | None:
    """Return the numbers in the token of a run's pending workflow task, if that worker has taken it. None when another
    did, or nobody can say: of a second attempt history knows nothing. Raises RPCError."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=workflow_run.id, run_id=workflow_run.run_id),
        maximum_page_size=_LATEST,
    )
    answer = await client.workflow_service.get_workflow_execution_history_reverse(request, timeout=RPC_TIMEOUT)
    for event in answer.history.events:
        if event.HasField("workflow_task_started_event_attributes"):
            started = event.workflow_task_started_event_attributes
            is_ours = started.identity.endswith(worker)
            return {4: started.scheduled_event_id, 5: 1, 10: event.event_id} if is_ours else None
        if event.HasField("workflow_task_failed_event_attributes") or event.HasField(
            "workflow_task_timed_out_event_attributes"
        ):
            return None
    return None


async def _namespace_id(client: Client) -> str:
    """Fetch the id of the client's namespace, which tokens contain."""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    return (await client.workflow_service.describe_namespace(request, timeout=RPC_TIMEOUT)).namespace_info.id


async def _scheduled_event(client: Client, workflow_run: Run, activity_id: str) -> int:
    """Find the id of the event with which a pending activity was scheduled; 0 when history has none."""
    event_id = 0
    async for event in client.get_workflow_handle(workflow_run.id, run_id=workflow_run.run_id).fetch_history_events():
        if event.activity_task_scheduled_event_attributes.activity_id == activity_id:
            event_id = event.event_id
    return event_id


def _encode_token(namespace: str, workflow_run: Run, numbers: dict[int, int], activity: str = "") -> bytes:
    """Encode a task token, the server's message `Task` (temporal.server.api.token.v1): which attempt at what of which
    run. `numbers` are its fields: 4 the event that scheduled it, 5 the attempt, 10 the event with which a workflow task
    was taken."""
    texts = {1: namespace, 2: workflow_run.id, 3: workflow_run.run_id, **({6: activity} if activity else {})}
    fields = [
        _encode_varint(field << 3 | 2) + _encode_varint(len(text.encode())) + text.encode()
        for field, text in texts.items()
    ]
    fields += [_encode_varint(field << 3) + _encode_varint(number) for field, number in numbers.items()]
    return b"".join(fields)


def _encode_varint(number: int) -> bytes:
    """Encode a number as protocol buffers write it: seven bits a byte, the least first."""
    groups = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([byte | 0x80 for byte in groups[:-1]] + groups[-1:])
