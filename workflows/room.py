"""Room among the deliveries of a repository: waited for before anything is paid, at no cost of history."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from perdure.models.backlog_state import BacklogState, Opened
from perdure.models.landing import OpenBacklogInput
from perdure.models.limits import HEARTBEAT_TIMEOUT
from perdure.models.room import Room, RoomInput
from workflows.endings import interpret
from workflows.publishing import FORGE_ATTEMPT
from workflows.stage import Stage

UNTIL_ROOM = RetryPolicy(
    initial_interval=timedelta(seconds=5), backoff_coefficient=1.5, maximum_interval=timedelta(minutes=1)
)
"""The server tries again: however long that takes, history has one activity of it."""


async def find_room(stage: Stage, tell: Callable[[str], Awaitable[None]]) -> None:
    """Go on where there is room; otherwise say what it waits for, here and by `tell` (empty: it goes on), and wait.

    Raises Stopped where the forge says no.
    """
    prepared = stage.state.prepared
    if prepared is None or not prepared.limited:
        return
    stage.show()  # from now on others see it in the line
    work = RoomInput(
        delivery=stage.delivery,
        contract=prepared.contract,
        workflow_id=workflow.info().workflow_id,
        repository=stage.request.repository,
    )
    queue = prepared.publisher or prepared.queue
    try:
        if words := (await _asked("find_room", work, queue, "room for one more?")).words:
            with stage.people.waits(words):
                await tell(words)
                await _asked("find_room", work.model_copy(update={"waits": True}), queue, words)
            await tell("")
    except ActivityError as error:
        raise interpret(error) from error


async def room_for_pull_request(state: BacklogState, opened: Opened, work: OpenBacklogInput) -> None:
    """Likewise of a backlog: until fewer pull requests are open than may be. Raises ActivityError."""
    if not opened.limited:
        return
    before, queue = state.waiting, opened.queue
    if words := (await _asked("backlog_room", work, queue, "room for one more?")).words:
        state.waiting = words
        await _asked("backlog_room", work.model_copy(update={"waits": True}), queue, words)
        state.waiting = before


async def _asked(activity: str, work: RoomInput | OpenBacklogInput, queue: str, summary: str) -> Room:
    room: Room = await workflow.execute_activity(
        activity,
        work,
        result_type=Room,
        task_queue=queue,
        start_to_close_timeout=FORGE_ATTEMPT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=UNTIL_ROOM,
        summary=summary[:100],
    )
    return room
