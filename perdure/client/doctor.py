"""Problems in a namespace, for `perdure doctor`: workflows that cannot go on, notices that did not reach their address,
and a trial notice to every address. A delivery's handle reads here which of its own notices failed."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.common.v1 import WorkflowExecution as Named
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.history.fold import ActivityRecord
from perdure.client.history.records import TaskFailed, decode_event
from perdure.client.history.runs import read_history
from perdure.client.server.view import escape_filter_value, has_pollers
from perdure.models.limits import TASK_QUEUE
from perdure.models.notice import trial_notice
from perdure.text import one_line, shell_word

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
    """Yield those running deliveries, notifications and Treasuries whose workflow task fails, or whose task queue no
    worker takes work from.

    Looks at the newest LOOKED_AT_MOST of them; Perdure's own task queue counts as served also without a worker. Raises
    RPCError when the server does not say.
    """
    served: dict[str, bool] = {TASK_QUEUE: True}  # without any worker nothing is wrong with its queue
    async for execution in client.list_workflows(RUNNING, limit=LOOKED_AT_MOST):
        queue = execution.task_queue
        if queue not in served:
            served[queue] = await has_pollers(client, queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
        if not served[queue]:
            fix = f"perdure cancel {shell_word(execution.id)}, then submit it again to task queue {TASK_QUEUE}"
            yield StuckWorkflow(execution.id, f"waits on task queue {queue}, from which nobody takes work", fix)
        elif reason := await _task_failure(client, execution):
            yield StuckWorkflow(
                execution.id,
                reason,
                f"a worker of the release that began it goes on; or: perdure cancel {shell_word(execution.id)}",
            )


async def _task_failure(client: Client, execution: WorkflowExecution) -> str:
    """Return in one line how often, and why, a workflow's current task has failed.

    Empty when it is at its first try, or the last events of the history have no failed task.
    """
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
    records = [await decode_event(event, client.data_converter) for event in page.history.events]
    message = next((record.message for record in records if isinstance(record, TaskFailed)), None)
    if message is None:
        return ""
    return f"its workflow task has failed {task.attempt - 1} times: {one_line(message) or 'it does not say why'}"


NOTICES_ANSWER = timedelta(seconds=5)
"""Limit for each answer of a server that was just seen to answer."""

NOTICES_WITHIN, NOTICES_SHOWN = timedelta(days=7), 3
"""Age and number of the notices that reached nobody in `perdure doctor`: the newest of a week show what is wrong with
an address."""

NOTIFY_TRIED, NOTIFY_TRIED_LOOK_S = timedelta(seconds=20), 0.2
"""The time `perdure doctor --notify` waits for the answers of one try (NOTIFY_ATTEMPT_S), which all have begun at once,
and the pause between two looks."""

NOTIFICATION_WORKFLOW = "Notification"
_MARK = ".notice-"
"""The part of a notification's id behind the delivery's id. A trial notice has none."""

_OURS = ("WorkerDied", "WorkerShutdown")
"""Types of failures that say nothing about the address."""


async def failed_notices(client: Client, delivery_id: str = "") -> list[str]:
    """Return why notices did not reach their address, one line each: `calc-sub: hooks.example answered 503`.

    The newest first. Of all deliveries within a week, or of one; the lines do not repeat its id then. Notices that are
    still tried are among them. At most NOTICES_SHOWN. Raises RPCError.
    """
    return [line async for line in _find_failed_notices(client, delivery_id)]


async def _find_failed_notices(client: Client, delivery_id: str) -> AsyncIterator[str]:
    """Yield the lines of `failed_notices`, at most NOTICES_SHOWN: of one delivery or, with an empty id, of all, then
    only notices begun within NOTICES_WITHIN and with the delivery's id before each line. Raises RPCError."""
    query = f"WorkflowType = '{NOTIFICATION_WORKFLOW}' AND ExecutionStatus IN ('Failed', 'Running')"
    if delivery_id:
        query += f" AND WorkflowId STARTS_WITH '{escape_filter_value(delivery_id + _MARK)}'"
    else:
        query += f" AND StartTime > '{(datetime.now(UTC) - NOTICES_WITHIN).isoformat(timespec='seconds')}'"
    shown = 0
    async for execution in client.list_workflows(query, limit=10 * NOTICES_SHOWN, rpc_timeout=NOTICES_ANSWER):
        if _MARK in execution.id and (reason := await _failure_reason(client, execution)):
            yield reason if delivery_id else f"{execution.id.rpartition(_MARK)[0]}: {reason}"
            shown += 1
        if shown == NOTICES_SHOWN:
            return


async def _failure_reason(client: Client, execution: WorkflowExecution) -> str:
    """Return what the last tries of one notification said, for each address; empty when nothing has failed yet."""
    handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
    if execution.status is WorkflowExecutionStatus.FAILED:
        try:
            await handle.result(rpc_timeout=NOTICES_ANSWER)
        except WorkflowFailureError as failure:
            return failure.cause.message if isinstance(failure.cause, ApplicationError) else str(failure.cause)
        return ""
    described = await handle.describe(rpc_timeout=NOTICES_ANSWER)
    failures = ((activity, failure_of(activity)) for activity in described.raw_description.pending_activities)
    return "; ".join(f"{reason}, tried {_times(activity.attempt - 1)}" for activity, reason in failures if reason)


def failure_of(activity: PendingActivityInfo) -> str:
    """Return in one line why the notice of a pending activity has not arrived; empty where nothing is known of that."""
    if activity.last_failure.application_failure_info.type in _OURS:
        return ""
    return activity.last_failure.message.partition("\n")[0]


@dataclass(frozen=True)
class NoticeAttempt:
    """The outcome of a trial notice to one address. `summary`: one line, `hooks.example answered 503`."""

    delivered: bool
    summary: str


async def send_trial_notice(client: Client) -> list[NoticeAttempt]:
    """Send a trial notice to every address once, and return what came of each; empty when no worker took it.

    Starts a notification workflow and ends it after at most NOTIFY_TRIED: whatever has failed by then is not tried
    again. Raises RPCError.
    """
    id = f"notify-test-{uuid.uuid4().hex[:16]}"
    handle = await client.start_workflow(
        NOTIFICATION_WORKFLOW,
        trial_notice(id, datetime.now(UTC)),
        id=id,
        task_queue=TASK_QUEUE,
        execution_timeout=2 * NOTIFY_TRIED,  # whoever asks may go before it ends
        rpc_timeout=NOTICES_ANSWER,
        static_summary="a test of notifications",
    )
    try:
        return await _wait_for_attempts(client, handle, time.monotonic() + NOTIFY_TRIED.total_seconds())
    finally:
        try:
            await handle.terminate("tried once", rpc_timeout=NOTICES_ANSWER)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended
                raise


async def _wait_for_attempts(
    client: Client, handle: WorkflowHandle[object, object], deadline: float
) -> list[NoticeAttempt]:
    """Wait until every address has answered or failed, or until `deadline` (monotonic); return what came of each.

    Looks every NOTIFY_TRIED_LOOK_S seconds. Raises RPCError when Temporal cannot answer.
    """
    while True:
        described = await handle.describe(rpc_timeout=NOTICES_ANSWER)
        pending = described.raw_description.pending_activities
        failures = [reason for work in pending if (reason := failure_of(work))]
        is_over = described.status is not WorkflowExecutionStatus.RUNNING or time.monotonic() > deadline
        if is_over or (pending and len(failures) == len(pending)):
            break
        await asyncio.sleep(NOTIFY_TRIED_LOOK_S)
    activities = [act for act in (await read_history(client, handle.id)).activities if act.activity == "notify"]
    return [NoticeAttempt(delivered=False, summary=reason) for reason in failures] + [
        attempt for act in activities if (attempt := _finished_attempt(act, failures)) is not None
    ]


def _finished_attempt(activity: ActivityRecord, failures: list[str]) -> NoticeAttempt | None:
    """Return what came of the notice of one activity: delivered, failed, or not answered yet.

    None when the activity still runs and `failures` already has a line of its address.
    """
    name = str(activity.input.get("to", ""))
    if activity.result is not None:
        return NoticeAttempt(delivered=True, summary=f"{name} answered {activity.result.get('status')}")
    if activity.failure:
        return NoticeAttempt(delivered=False, summary=activity.failure.partition("\n")[0])
    return (
        None
        if any(reason.startswith(name) for reason in failures)
        else NoticeAttempt(delivered=False, summary=f"{name} has not answered")
    )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
