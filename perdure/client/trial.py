"""A trial notice: about no delivery, told by a worker to every address it has."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.history import Act, read_past
from perdure.client.notifications import WORKFLOW, failure_of
from perdure.models.limits import TASK_QUEUE, UNTOLD_ANSWER
from perdure.models.notice import trial_notice

NOTIFY_TRIED, NOTIFY_TRIED_LOOK_S = timedelta(seconds=20), 0.2
"""`perdure doctor --notify` waits for the answers of one try (NOTIFY_ATTEMPT_S), which all have begun at once."""


@dataclass(frozen=True)
class Tried:
    """`said`: one line, `hooks.example answered 503`."""

    told: bool
    said: str


async def try_notice(client: Client) -> list[Tried]:
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
        rpc_timeout=UNTOLD_ANSWER,
        static_summary="a test of notifications",
    )
    try:
        return await _answers(client, handle, time.monotonic() + NOTIFY_TRIED.total_seconds())
    finally:
        try:
            await handle.terminate("tried once", rpc_timeout=UNTOLD_ANSWER)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended
                raise


async def _answers(client: Client, handle: WorkflowHandle[object, object], until: float) -> list[Tried]:
    while True:
        described = await handle.describe(rpc_timeout=UNTOLD_ANSWER)
        pending = described.raw_description.pending_activities
        failed = [words for work in pending if (words := failure_of(work))]
        over = described.status is not WorkflowExecutionStatus.RUNNING or time.monotonic() > until
        if over or (pending and len(failed) == len(pending)):
            break
        await asyncio.sleep(NOTIFY_TRIED_LOOK_S)
    acts = [act for act in (await read_past(client, handle.id)).acts if act.activity == "notify"]
    return [Tried(told=False, said=words) for words in failed] + [
        tried for act in acts if (tried := _tried(act, failed)) is not None
    ]


def _tried(act: Act, failed: list[str]) -> Tried | None:
    """None where its last try has said why."""
    name = str(act.given.get("to", ""))
    if act.result is not None:
        return Tried(told=True, said=f"{name} answered {act.result.get('status')}")
    if act.failure:
        return Tried(told=False, said=act.failure.partition("\n")[0])
    return (
        None if any(words.startswith(name) for words in failed) else Tried(told=False, said=f"{name} has not answered")
    )
