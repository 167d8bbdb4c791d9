"""Workflows of ours that stand still although nobody holds them: what the server alone shows of that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from temporalio.api.common.v1 import WorkflowExecution as Named
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecution

from perdure.client.view import polled
from perdure.models.limits import TASK_QUEUE

LOOKED_AT_MOST = 200
"""Running workflows that `doctor` asks the server about one by one, the newest: a few milliseconds each."""


RUNNING = "ExecutionStatus = 'Running' AND WorkflowType IN ('Delivery', 'Treasury', 'Notification')"

_EVENTS = 20
"""From the end of a history: a task that failed stands among the last three, before what came in since."""


@dataclass(frozen=True)
class Stuck:
    """One workflow. `why`: in one line; `fix`: what to do."""

    id: str
    why: str
    fix: str


async def stuck(client: Client) -> AsyncIterator[Stuck]:
    """Each of the newest running ones whose workflow task fails, or that waits on a queue nobody takes work from.

    Raises RPCError when the server does not say.
    """
    served: dict[str, bool] = {TASK_QUEUE: True}  # without any worker nothing is wrong with its queue
    async for seen in client.list_workflows(RUNNING, limit=LOOKED_AT_MOST):
        queue = seen.task_queue
        if queue not in served:
            served[queue] = await polled(client, queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
        if not served[queue]:
            fix = f"perdure cancel {seen.id}, then submit it again to task queue {TASK_QUEUE}"
            yield Stuck(seen.id, f"waits on task queue {queue}, from which nobody takes work", fix)
        elif why := await _failing(client, seen):
            yield Stuck(seen.id, why, f"a worker of the release that began it goes on; or: perdure cancel {seen.id}")


async def _failing(client: Client, seen: WorkflowExecution) -> str:
    described = await client.get_workflow_handle(seen.id, run_id=seen.run_id).describe()
    task = described.raw_description.pending_workflow_task
    if task.attempt < 2:
        return ""
    said = await client.workflow_service.get_workflow_execution_history_reverse(
        GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace,
            execution=Named(workflow_id=seen.id, run_id=seen.run_id),
            maximum_page_size=_EVENTS,
        )
    )
    failed = next(filter(None, map(_failure, said.history.events)), "")
    return f"its workflow task has failed {task.attempt - 1} times: {failed}" if failed else ""


def _failure(event: HistoryEvent) -> str:
    if not event.HasField("workflow_task_failed_event_attributes"):
        return ""
    failure = event.workflow_task_failed_event_attributes.failure
    return " ".join(failure.message.split())[:200] or "it does not say why"
