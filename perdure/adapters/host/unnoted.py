"""The work that a dead worker was handed and had not noted yet, found by asking the server.

Between the server's handing out an activity and the worker's note of it lie some milliseconds: whoever dies there
leaves no token behind. But the server shows to whom it handed an activity last, each worker has a name of its own, and
a token says no more than which attempt it is about. So it is written anew, for that attempt: the server compares it
with the attempt that runs, like any token (seen with server 1.32: NotFound for an earlier attempt, a later one, and one
that waits). Should a server's tokens look different, it says so, and the heartbeat timeout decides as before.

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
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.client import WorkflowExecution as Run
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.policy import TASK_QUEUE

RPC_TIMEOUT = timedelta(seconds=5)

RUNNING = f"ExecutionStatus = 'Running' AND TaskQueue = '{TASK_QUEUE}'"

_TAKEN = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED


async def handed_to(client: Client, worker: str) -> AsyncIterator[dict[str, Any]]:
    """Notes, as that worker would have made them, of each activity that the server believes it to be at.

    Raises RPCError.
    """
    namespace = ""
    async for run in client.list_workflows(RUNNING):
        for pending in await _pending(client, run):
            if pending.state != _TAKEN or not pending.last_worker_identity.endswith(worker):
                continue
            namespace = namespace or await _namespace_id(client)
            if scheduled := await _scheduled(client, run, pending.activity_id):
                token = _token(namespace, run, scheduled, pending)
                yield {
                    "token": base64.b64encode(token).decode(),
                    "workflow_id": run.id,
                    "run_id": run.run_id,
                    "activity": pending.activity_type.name,
                }


async def _pending(client: Client, run: Run) -> list[PendingActivityInfo]:
    execution = WorkflowExecution(workflow_id=run.id, run_id=run.run_id)
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
    try:
        described = await client.workflow_service.describe_workflow_execution(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return []
        raise
    return list(described.pending_activities)


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


def _token(namespace: str, run: Run, scheduled: int, pending: PendingActivityInfo) -> bytes:
    """The server's message `Task` (temporal.server.api.token.v1): which attempt at which activity of which run."""
    texts = {1: namespace, 2: run.id, 3: run.run_id, 6: pending.activity_id}
    numbers = {4: scheduled, 5: pending.attempt}
    fields = [_varint(field << 3 | 2) + _varint(len(text.encode())) + text.encode() for field, text in texts.items()]
    fields += [_varint(field << 3) + _varint(number) for field, number in numbers.items()]
    return b"".join(fields)


def _varint(number: int) -> bytes:
    """A number as protocol buffers write it: seven bits a byte, the least first."""
    more = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([byte | 0x80 for byte in more[:-1]] + more[-1:])
