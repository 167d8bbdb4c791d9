"""The limit of deliveries at once in a repository: room is waited for before anything is paid, at no cost of
history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from perdure.models.backlog_state import BacklogState, OpenBacklogResult
from perdure.models.concurrency_limit import ConcurrencyCheckInput, ConcurrencyCheckResult
from perdure.models.landing import OpenBacklogInput
from perdure.models.limits import HEARTBEAT_TIMEOUT
from workflows.endings import interpret_failure
from workflows.publishing import FORGE_ATTEMPT
from workflows.step_runner import StepRunner

UNTIL_ROOM = RetryPolicy(
    initial_interval=timedelta(seconds=5), backoff_coefficient=1.5, maximum_interval=timedelta(minutes=1)
)
"""Retries until there is room. The server tries again: however long that takes, history has one activity of it."""


async def wait_for_room(runner: StepRunner, tell_reason: Callable[[str], Awaitable[None]]) -> None:
    """Wait until there is room for one more delivery of the repository; return at once where there is, or no limit.

    What it waits for is shown, and told by `tell_reason` (empty: it goes on). Raises DeliveryStopped where the forge
    refuses.
    """
    prepared = runner.state.prepared
    if prepared is None or not prepared.limited:
        return
    runner.show_state()  # from now on other deliveries see this one in the line
    work = ConcurrencyCheckInput(
        delivery=runner.delivery,
        contract=prepared.contract,
        workflow_id=workflow.info().workflow_id,
        repository=runner.request.repository,
    )
    queue = prepared.publisher or prepared.queue
    try:
        if reason := (await _look_for_room("find_room", work, queue, "room for one more?")).reason:
            with runner.gates.show_waiting(reason):
                await tell_reason(reason)
                await _look_for_room("find_room", work.model_copy(update={"waits": True}), queue, reason)
            await tell_reason("")
    except ActivityError as error:
        raise interpret_failure(error) from error


async def wait_for_pull_request_room(state: BacklogState, opened: OpenBacklogResult, work: OpenBacklogInput) -> None:
    """Wait until fewer pull requests of the repository are open than may be, for a backlog; its state shows what is
    waited for. Raises ActivityError."""
    if not opened.limits_pull_requests:
        return
    waiting_before, queue = state.waiting, opened.queue
    if reason := (await _look_for_room("backlog_room", work, queue, "room for one more?")).reason:
        state.waiting = reason
        await _look_for_room("backlog_room", work.model_copy(update={"waits": True}), queue, reason)
        state.waiting = waiting_before


async def _look_for_room(
    activity: str, work: ConcurrencyCheckInput | OpenBacklogInput, queue: str, summary: str
) -> ConcurrencyCheckResult:
    """Run an activity that looks for room, and return its answer. With `waits` in its input the server tries it again
    until there is room."""
    room: ConcurrencyCheckResult = await workflow.execute_activity(
        activity,
        work,
        result_type=ConcurrencyCheckResult,
        task_queue=queue,
        start_to_close_timeout=FORGE_ATTEMPT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=UNTIL_ROOM,
        summary=summary[:100],
    )
    return room
