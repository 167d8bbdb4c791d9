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
"""A worker that is restarted may cut off one attempt; somebody waits for the answer."""


class HostSilent(PerdureError):
    """Nobody takes work from the host's queue, or the answer did not come in time."""


class HostRefused(PerdureError):
    """It was done, and ended with a failure: `said`, of a type that may be `NotFoundError`, the SDK's name for an
    activity that a worker does not have."""

    def __init__(self, what: str, said: str, type: str | None) -> None:
        super().__init__(what)
        self.said, self.type = said, type


async def ask_host(
    client: Client,
    activity: str,
    work: Any,
    answer: type[T],
    *,
    queue: str,
    about: str,
    within: timedelta,
    begun_within: timedelta | None = None,
) -> T:
    """The activity's result. HostSilent, HostRefused. `about`: the delivery it is about, for people who read of it."""
    summary = f"{activity.replace('_', ' ')} {about}"
    try:
        done: T = await client.execute_activity(
            activity,
            work,
            id=f"{activity}-{uuid.uuid4().hex}",
            task_queue=queue,
            result_type=answer,
            schedule_to_start_timeout=begun_within,
            schedule_to_close_timeout=within,
            retry_policy=_ONCE_MORE,
            summary=summary[:100],
        )
    except ActivityFailureError as error:
        if isinstance(cause := error.cause, ApplicationError):
            raise HostRefused(f"{summary}: {cause.message}", cause.message, cause.type) from None
        what = f"the host that works on {about} does not answer"
        raise HostSilent(what, where=f"task queue {queue}", fix="perdure up --detach there starts a worker") from None
    return done
