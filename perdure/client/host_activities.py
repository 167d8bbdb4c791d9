"""Activities outside of any workflow: what a host is asked through Temporal, with no trace in any history."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.client import ActivityFailureError, Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from perdure.models.errors import PerdureError

T = TypeVar("T")

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

    `about` is the id of the delivery that it is about, for people who read of it. Raises HostSilent when there is no
    answer `within` that time, or no worker has taken it `start_within` that time, and HostRefused when the activity
    fails.
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
            summary=summary[:100],
        )
    except ActivityFailureError as error:
        if isinstance(cause := error.cause, ApplicationError):
            raise HostRefused(f"{summary}: {cause.message}", cause.message, cause.type) from None
        what = f"the host that works on {about} does not answer"
        raise HostSilent(what, where=f"task queue {queue}", fix="perdure up --detach there starts a worker") from None
    return result
