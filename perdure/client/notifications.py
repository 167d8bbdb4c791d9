"""People who should have been told of a delivery and were not, as Temporal has it; no result holds what outlives it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from perdure.models.limits import UNTOLD_ANSWER

UNTOLD_WITHIN, UNTOLD_SHOWN = timedelta(days=7), 3
"""Notices that reached nobody, in `perdure doctor`: the newest of a week show what is wrong with an address."""


WORKFLOW = "Notification"
_MARK = ".notice-"
"""In a notification's id, behind the delivery's. What is told to try it has none."""

_OURS = ("WorkerDied", "WorkerShutdown")
"""Types of failures that say nothing of whom was to be told."""


async def untold(client: Client, delivery_id: str = "") -> list[str]:
    """`calc-sub: hooks.example answered 503`, the newest first, of one delivery or of all; also what is still tried.

    With a delivery's id the lines do not repeat it. At most UNTOLD_SHOWN. Raises RPCError.
    """
    return [words async for words in _untold(client, delivery_id)]


async def _untold(client: Client, delivery_id: str) -> AsyncIterator[str]:
    query = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus IN ('Failed', 'Running')"
    if delivery_id:
        query += f" AND WorkflowId STARTS_WITH '{_quoted(delivery_id + _MARK)}'"
    else:
        query += f" AND StartTime > '{(datetime.now(UTC) - UNTOLD_WITHIN).isoformat(timespec='seconds')}'"
    shown = 0
    async for found in client.list_workflows(query, limit=10 * UNTOLD_SHOWN, rpc_timeout=UNTOLD_ANSWER):
        if _MARK in found.id and (words := await _why(client, found)):
            yield words if delivery_id else f"{found.id.rpartition(_MARK)[0]}: {words}"
            shown += 1
        if shown == UNTOLD_SHOWN:
            return


async def _why(client: Client, found: WorkflowExecution) -> str:
    """Return what the last tries of this one said, of each address; empty when nothing has failed yet."""
    handle = client.get_workflow_handle(found.id, run_id=found.run_id)
    if found.status is WorkflowExecutionStatus.FAILED:
        try:
            await handle.result(rpc_timeout=UNTOLD_ANSWER)
        except WorkflowFailureError as failure:
            return failure.cause.message if isinstance(failure.cause, ApplicationError) else str(failure.cause)
        return ""
    described = await handle.describe(rpc_timeout=UNTOLD_ANSWER)
    failed = ((work, failure_of(work)) for work in described.raw_description.pending_activities)
    return "; ".join(f"{words}, tried {_times(work.attempt - 1)}" for work, words in failed if words)


def failure_of(work: PendingActivityInfo) -> str:
    """One line: why whom it tells has not heard yet; empty where nothing is known."""
    if work.last_failure.application_failure_info.type in _OURS:
        return ""
    return work.last_failure.message.partition("\n")[0]


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
