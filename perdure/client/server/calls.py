"""Calls to Temporal that outlive a bad moment: queries and updates of a workflow, tried again where a dying worker or a
change of run was to blame, and activities outside of any workflow, by which a host is asked. The handles of deliveries
and backlogs use it; `perdure verify` and reports ask a delivery's host by it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.client import ActivityFailureError, Client, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.server.capabilities import NO_STANDALONE_ACTIVITIES
from perdure.models.errors import PerdureError
from perdure.models.limits import DECISION_ACCEPTED
from perdure.text import shorten

QUERY_TIMEOUT = timedelta(seconds=5)
"""Limit of one try of a query: a worker answers within milliseconds, a busy one in a second or two."""

QUERY_TRIES, QUERY_PAUSE_S = 3, 0.5
"""Tries of a query, and the pause between them. A server goes on handing queries to a worker that has died, for 10 s at
most (measured: 10.0), and a query that was handed to it is lost: the third try begins after 11 s."""

UPDATE_TRIES, UPDATE_PAUSE_S = 5, 0.2
"""Tries of an update, and the pause between them. An update that arrives while its workflow continues as new is refused
(once in 200 with four clients at a backlog that does so every few seconds): the next run takes it. A workflow whose
every task fails refuses each try, at once."""

_NO_ANSWER = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)
"""Statuses that mean that no worker answered: the client has given up, or the server. Where no worker has run for a
while, the server says FAILED_PRECONDITION."""

T = TypeVar("T")


@asynccontextmanager
async def unknown_named_by(describe: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
    """Raise, in place of the server's RPCError that there is no such workflow, what `describe` raises about it; the
    RPCError itself where that raises nothing, as for a workflow that has ended."""
    try:
        yield
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            await describe()
        raise


async def query_workflow(
    handle: WorkflowHandle[Any, Any], query: str, result_type: type[T], *, once: bool = False
) -> T:
    """Query a workflow and return its answer; try again while a worker may just have died and another be starting.

    Makes at most QUERY_TRIES tries; with `once` a single one, for a caller that asks again anyway and tells a person
    meanwhile. Raises RPCError when no worker answers or the server refuses, and WorkflowQueryFailedError when the
    workflow does.
    """
    for tries_left in reversed(range(1 if once else QUERY_TRIES)):
        try:
            reply: T = await handle.query(query, result_type=result_type, rpc_timeout=QUERY_TIMEOUT)
            return reply
        except RPCError as error:
            if error.status not in _NO_ANSWER or not tries_left:
                raise
        await asyncio.sleep(QUERY_PAUSE_S)
    raise AssertionError("the last try returns or raises")


async def send_update(handle: WorkflowHandle[Any, Any], name: str, message: dict[str, Any], id: str) -> Any:
    """Send an update to a workflow and return its reply; try again where the workflow was changing runs.

    All tries have the same `id`, so that it counts once. Raises WorkflowUpdateFailedError when the workflow refuses it,
    RPCError when there is no such workflow or it has ended, and WorkflowUpdateRPCTimeoutOrCancelledError or, after
    twice DECISION_ACCEPTED, TimeoutError when no worker takes it.
    """
    # rpc_timeout limits one try, not all of them: the client tries again what a server has not answered.
    async with asyncio.timeout(2 * DECISION_ACCEPTED.total_seconds()):
        for tries_left in reversed(range(UPDATE_TRIES)):
            try:
                return await handle.execute_update(name, message, id=id, rpc_timeout=DECISION_ACCEPTED)
            except RPCError as error:
                if error.status is not RPCStatusCode.FAILED_PRECONDITION or not tries_left:
                    raise
            await asyncio.sleep(UPDATE_PAUSE_S)
    raise AssertionError("the last try returns or raises")


_ONCE_MORE = RetryPolicy(maximum_attempts=2)
"""A worker that is restarted may cut off one attempt; somebody waits for the answer, so there is one more and no
third."""


class HostSilent(PerdureError):
    """No worker takes work from the host's queue, or the answer did not come in time."""


class HostRefused(PerdureError):
    """The host's activity ended with a failure: `failure_message`, of an error type.

    The type may be `NotFoundError`, the SDK's name for an activity that a worker does not have.
    """

    def __init__(self, what: str, failure_message: str, type: str | None) -> None:
        super().__init__(what)
        self.failure_message, self.type = failure_message, type


async def run_on_host(
    client: Client,
    activity: str,
    work: Any,
    result_type: type[T],
    *,
    queue: str,
    about: str,
    within: timedelta,
    start_within: timedelta | None = None,
) -> T:
    """Run an activity with argument `work` on a host's task queue, outside of any workflow, and return its result.

    Waits for it; an attempt that fails or is cut off is followed by one more. `about` is the id of the delivery that it
    is about, for people who read of it. Raises HostSilent when there is no answer `within` that time, or no worker has
    taken it `start_within` that time, HostRefused when the activity fails, and PerdureError where the server has no
    standalone activities.
    """
    summary = f"{activity.replace('_', ' ')} {about}"
    try:
        result: T = await client.execute_activity(
            activity,
            work,
            id=f"{activity}-{uuid.uuid4().hex}",
            task_queue=queue,
            result_type=result_type,
            schedule_to_start_timeout=start_within,
            schedule_to_close_timeout=within,
            retry_policy=_ONCE_MORE,
            summary=shorten(summary, 100),
        )
    except RPCError as error:
        if error.status != RPCStatusCode.UNIMPLEMENTED:
            raise
        missing = NO_STANDALONE_ACTIVITIES
        raise PerdureError(f"this Temporal server has no {missing.name}", where=summary, fix=missing.fix) from None
    except ActivityFailureError as error:
        if isinstance(cause := error.cause, ApplicationError):
            raise HostRefused(f"{summary}: {cause.message}", cause.message, cause.type) from None
        what = f"the host that works on {about} does not answer"
        raise HostSilent(what, where=f"task queue {queue}", fix="perdure up --detach there starts a worker") from None
    return result
