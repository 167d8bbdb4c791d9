"""Deliveries as visibility lists them, in the order of their start; the stuck ones; messages nobody has read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution as Named
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionSignaledEventAttributes
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecution, WorkflowHandle
from temporalio.converter import DataConverter

from perdure.client.submit import WORKFLOW
from perdure.client.view import Listed, asked_of, listed, polled
from perdure.models.limits import TASK_QUEUE

_PAGE = 1000
"""The most that a server gives in one answer."""


async def newest(client: Client, limit: int, query: str = "", workflow: str = WORKFLOW) -> list[Listed]:
    """The newest by start, each delivery once; `query` is added with AND (a list filter).

    A server lists what runs before what has ended, and that by its end; where its lists are in an SQL database it takes
    no other order. So first `limit` deliveries are found, of those that run and of those that have ended: as many are
    no older than the oldest of the newest of them, and then everything that began since.
    """
    clause = f"WorkflowType = '{workflow}'" + (f" AND ({query})" if query else "")
    running = await _first(client, f"{clause} AND ExecutionStatus = 'Running'", limit)
    ended = await _first(client, f"{clause} AND ExecutionStatus != 'Running'", limit)
    found = _by_start(ended | running)
    if len(ended) == limit:  # there may be more of them, older by their end and newer by their start
        since = found[limit - 1].started.isoformat()
        found = _by_start(await _first(client, f"{clause} AND StartTime >= '{since}'", None))
    return found[:limit]


async def _first(client: Client, clause: str, limit: int | None) -> dict[str, Listed]:
    """The first deliveries of a list; None: all of it."""
    found: dict[str, Listed] = {}
    async for execution in client.list_workflows(clause, page_size=min(2 * limit, _PAGE) if limit else _PAGE):
        if execution.id not in found or found[execution.id].started < execution.start_time:
            found[execution.id] = listed(execution, await asked_of(execution))  # a retried one has several runs
        if len(found) == limit:
            break
    return found


def _by_start(found: dict[str, Listed]) -> list[Listed]:
    return sorted(found.values(), key=lambda one: one.started, reverse=True)


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
