"""Notices that reached nobody, as Temporal has them; and a trial one, about no delivery, to every address."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.history import Act, read_past
from perdure.models.limits import TASK_QUEUE
from perdure.models.notice import trial_notice

NOTICES_ANSWER = timedelta(seconds=5)
"""For each answer of a server that was just seen to answer."""

NOTICES_WITHIN, NOTICES_SHOWN = timedelta(days=7), 3
"""Notices that reached nobody, in `perdure doctor`: the newest of a week show what is wrong with an address."""

NOTIFY_TRIED, NOTIFY_TRIED_LOOK_S = timedelta(seconds=20), 0.2
"""`perdure doctor --notify` waits for the answers of one try (NOTIFY_ATTEMPT_S), which all have begun at once."""

WORKFLOW = "Notification"
_MARK = ".notice-"
"""In a notification's id, behind the delivery's. What is told to try it has none."""

_OURS = ("WorkerDied", "WorkerShutdown")
"""Types of failures that say nothing of whom was to be told."""


async def not_notified(client: Client, delivery_id: str = "") -> list[str]:
    """`calc-sub: hooks.example answered 503`, the newest first, of one delivery or of all; also what is still tried.

    With a delivery's id the lines do not repeat it. At most NOTICES_SHOWN. Raises RPCError.
    """
    return [words async for words in _not_notified(client, delivery_id)]


async def _not_notified(client: Client, delivery_id: str) -> AsyncIterator[str]:
    query = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus IN ('Failed', 'Running')"
    if delivery_id:
        query += f" AND WorkflowId STARTS_WITH '{quoted(delivery_id + _MARK)}'"
    else:
        query += f" AND StartTime > '{(datetime.now(UTC) - NOTICES_WITHIN).isoformat(timespec='seconds')}'"
    shown = 0
    async for found in client.list_workflows(query, limit=10 * NOTICES_SHOWN, rpc_timeout=NOTICES_ANSWER):
        if _MARK in found.id and (words := await _why(client, found)):
            yield words if delivery_id else f"{found.id.rpartition(_MARK)[0]}: {words}"
            shown += 1
        if shown == NOTICES_SHOWN:
            return


async def _why(client: Client, found: WorkflowExecution) -> str:
    """Return what the last tries of this one said, of each address; empty when nothing has failed yet."""
    handle = client.get_workflow_handle(found.id, run_id=found.run_id)
    if found.status is WorkflowExecutionStatus.FAILED:
        try:
            await handle.result(rpc_timeout=NOTICES_ANSWER)
        except WorkflowFailureError as failure:
            return failure.cause.message if isinstance(failure.cause, ApplicationError) else str(failure.cause)
        return ""
    described = await handle.describe(rpc_timeout=NOTICES_ANSWER)
    failed = ((work, failure_of(work)) for work in described.raw_description.pending_activities)
    return "; ".join(f"{words}, tried {_times(work.attempt - 1)}" for work, words in failed if words)


def failure_of(work: PendingActivityInfo) -> str:
    """One line: why whom it tells has not heard yet; empty where nothing is known."""
    if work.last_failure.application_failure_info.type in _OURS:
        return ""
    return work.last_failure.message.partition("\n")[0]


@dataclass(frozen=True)
class NoticeTried:
    """`said`: one line, `hooks.example answered 503`."""

    told: bool
    said: str


async def try_notice(client: Client) -> list[NoticeTried]:
    """Tell all once and say what came of it, an address each; empty when no worker took it. Raises RPCError.

    Whatever has failed by then is not tried again.
    """
    id = f"notify-test-{uuid.uuid4().hex[:16]}"
    handle = await client.start_workflow(
        WORKFLOW,
        trial_notice(id, datetime.now(UTC)),
        id=id,
        task_queue=TASK_QUEUE,
        execution_timeout=2 * NOTIFY_TRIED,  # whoever asks may go before it ends
        rpc_timeout=NOTICES_ANSWER,
        static_summary="a test of notifications",
    )
    try:
        return await _answers(client, handle, time.monotonic() + NOTIFY_TRIED.total_seconds())
    finally:
        try:
            await handle.terminate("tried once", rpc_timeout=NOTICES_ANSWER)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended
                raise


async def _answers(client: Client, handle: WorkflowHandle[object, object], until: float) -> list[NoticeTried]:
    while True:
        described = await handle.describe(rpc_timeout=NOTICES_ANSWER)
        pending = described.raw_description.pending_activities
        failed = [words for work in pending if (words := failure_of(work))]
        over = described.status is not WorkflowExecutionStatus.RUNNING or time.monotonic() > until
        if over or (pending and len(failed) == len(pending)):
            break
        await asyncio.sleep(NOTIFY_TRIED_LOOK_S)
    acts = [act for act in (await read_past(client, handle.id)).acts if act.activity == "notify"]
    return [NoticeTried(told=False, said=words) for words in failed] + [
        tried for act in acts if (tried := _tried(act, failed)) is not None
    ]


def _tried(act: Act, failed: list[str]) -> NoticeTried | None:
    """None where its last try has said why."""
    name = str(act.given.get("to", ""))
    if act.result is not None:
        return NoticeTried(told=True, said=f"{name} answered {act.result.get('status')}")
    if act.failure:
        return NoticeTried(told=False, said=act.failure.partition("\n")[0])
    return (
        None
        if any(words.startswith(name) for words in failed)
        else NoticeTried(told=False, said=f"{name} has not answered")
    )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def quoted(text: str) -> str:
    """A value between single quotes of a list filter."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
