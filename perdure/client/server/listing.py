"""Lists from visibility: the newest deliveries or backlogs, and the workflows that cannot go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from temporalio.api.common.v1 import WorkflowExecution as Named
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import (
    Client,
    WorkflowExecution,
)

from perdure.client.server.view import ListEntry, has_pollers, list_entry_of, pending_decision_of
from perdure.models.ids import DELIVERY_WORKFLOW
from perdure.models.limits import TASK_QUEUE

_PAGE = 1000
"""The most entries that a server gives in one answer."""


async def list_newest(
    client: Client, limit: int, query: str = "", workflow: str = DELIVERY_WORKFLOW
) -> list[ListEntry]:
    """List the newest deliveries, or workflows of another type, by their start, each once; `query` is added with AND.

    `query` is a list filter. A server lists what runs before what has ended, and that by its end; where its lists are
    in an SQL database it takes no other order. So first `limit` of those that run and of those that have ended are
    read: as many are no older than the oldest of the newest of them, and then everything that began since.
    """
    clause = f"WorkflowType = '{workflow}'" + (f" AND ({query})" if query else "")
    running = await _list_first(client, f"{clause} AND ExecutionStatus = 'Running'", limit)
    ended = await _list_first(client, f"{clause} AND ExecutionStatus != 'Running'", limit)
    entries = _newest_first(ended | running)
    if len(ended) == limit:  # there may be more of them, older by their end and newer by their start
        since = entries[limit - 1].started.isoformat()
        entries = _newest_first(await _list_first(client, f"{clause} AND StartTime >= '{since}'", None))
    return entries[:limit]


async def _list_first(client: Client, clause: str, limit: int | None) -> dict[str, ListEntry]:
    """Read the first `limit` entries of a list, or all of it, by id; of several runs of one id the newest."""
    entries: dict[str, ListEntry] = {}
    async for execution in client.list_workflows(clause, page_size=min(2 * limit, _PAGE) if limit else _PAGE):
        if execution.id not in entries or entries[execution.id].started < execution.start_time:
            entries[execution.id] = list_entry_of(
                execution, await pending_decision_of(execution)
            )  # a retried one has several runs
        if len(entries) == limit:
            break
    return entries


def _newest_first(entries: dict[str, ListEntry]) -> list[ListEntry]:
    """Return the entries by their start, the newest first."""
    return sorted(entries.values(), key=lambda entry: entry.started, reverse=True)


LOOKED_AT_MOST = 200
"""Most running workflows, the newest, that `doctor` asks the server about one by one: a few milliseconds each."""


RUNNING = "ExecutionStatus = 'Running' AND WorkflowType IN ('Delivery', 'Treasury', 'Notification')"

_EVENTS = 20
"""Events read from the end of a history: a task that failed stands among the last three, before what came in since."""


@dataclass(frozen=True)
class StuckWorkflow:
    """A workflow that cannot go on. `reason`: in one line; `fix`: what to do."""

    id: str
    reason: str
    fix: str


async def find_stuck_workflows(client: Client) -> AsyncIterator[StuckWorkflow]:
    """Yield the newest running workflows whose workflow task fails, or whose task queue no worker takes work from.

    Raises RPCError when the server does not say.
    """
    served: dict[str, bool] = {TASK_QUEUE: True}  # without any worker nothing is wrong with its queue
    async for execution in client.list_workflows(RUNNING, limit=LOOKED_AT_MOST):
        queue = execution.task_queue
        if queue not in served:
            served[queue] = await has_pollers(client, queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
        if not served[queue]:
            fix = f"perdure cancel {execution.id}, then submit it again to task queue {TASK_QUEUE}"
            yield StuckWorkflow(execution.id, f"waits on task queue {queue}, from which nobody takes work", fix)
        elif reason := await _task_failure(client, execution):
            yield StuckWorkflow(
                execution.id,
                reason,
                f"a worker of the release that began it goes on; or: perdure cancel {execution.id}",
            )


async def _task_failure(client: Client, execution: WorkflowExecution) -> str:
    """Return in one line how often, and why, a workflow's current task has failed; empty when it has not."""
    described = await client.get_workflow_handle(execution.id, run_id=execution.run_id).describe()
    task = described.raw_description.pending_workflow_task
    if task.attempt < 2:
        return ""
    page = await client.workflow_service.get_workflow_execution_history_reverse(
        GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace,
            execution=Named(workflow_id=execution.id, run_id=execution.run_id),
            maximum_page_size=_EVENTS,
        )
    )
    message = next(filter(None, map(_failure_message, page.history.events)), "")
    return f"its workflow task has failed {task.attempt - 1} times: {message}" if message else ""


def _failure_message(event: HistoryEvent) -> str:
    """Return the message of a failed workflow task, at most 200 characters; empty for any other event."""
    if not event.HasField("workflow_task_failed_event_attributes"):
        return ""
    failure = event.workflow_task_failed_event_attributes.failure
    return " ".join(failure.message.split())[:200] or "it does not say why"


def escape_filter_value(text: str) -> str:
    """Escape a text for use between the single quotes of a list filter."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
