"""Activities that a delivery's host does not take: the workflow asks whether the host is away, shows that in the Web
UI, and puts the activity into the host's queue again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, TimeoutError, TimeoutType
from temporalio.workflow import ActivityCancellationType, ActivityHandle

from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.work import HostLookup, HostLookupInput
from perdure.models.limits import HEARTBEAT_TIMEOUT, RETRY_PAUSE, TASK_QUEUE
from perdure.text import shorten
from workflows import endings
from workflows.gates import DeliveryGates

T = TypeVar("T")

SILENCES = (timedelta(seconds=30), timedelta(minutes=2), timedelta(minutes=10), timedelta(hours=1))
"""The times that an activity may lie in its host's queue, one after the other, before the workflow asks whether the
host is there: each question is a few events. The last is repeated."""

LOOKUP_TIME = timedelta(minutes=1)
"""For the answer of whichever worker is there: it takes milliseconds."""

REASON_CHARS = 200
"""Of why nobody takes from the host's queue: any worker may answer, and the state goes into history."""

ENDLESS = RetryPolicy(initial_interval=RETRY_PAUSE, backoff_coefficient=1.0, maximum_attempts=0)
"""Retries without end. Deaths are not failures: attempts are bounded by time and by the journal's count, never by
number."""


class HostQueue:
    """Runs activities on the task queues of one delivery's host. `show` brings the details of the Web UI up to date."""

    def __init__(self, state: DeliveryState, gates: DeliveryGates, show: Callable[[], None]) -> None:
        self._state, self._gates, self._show = state, gates, show

    async def run_activity(self, activity: str, work: Any, result: type[T], queue: str, summary: str) -> T:
        """Run an activity within the delivery's time, and return its result.

        While the host is away, the reason is shown, and the time does not count as the delivery's. Raises
        ActivityError, and DeliveryStopped when no time is left.
        """
        lookups = 0
        while True:
            silence = self._longest_silence(queue, lookups)
            more_time = silence if lookups and silence else timedelta(0)  # the host was away: it may be so again
            try:
                handle: ActivityHandle[T] = workflow.start_activity(
                    activity,
                    work,
                    result_type=result,
                    task_queue=queue,
                    schedule_to_close_timeout=self._gates.time_left() + more_time,
                    schedule_to_start_timeout=silence,
                    heartbeat_timeout=HEARTBEAT_TIMEOUT,
                    retry_policy=ENDLESS,
                    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                    summary=summary,
                )
                output = await endings.wait_for_activity(handle)
            except ActivityError as error:
                if silence is None or not _was_not_taken(error):
                    self._show_reason("")
                    raise
                self._gates.exclude_time(silence)
                self._show_reason(await self._find_reason(queue))
                lookups += 1
            else:
                self._show_reason("")
                return output

    def _longest_silence(self, queue: str, lookups: int) -> timedelta | None:
        """Return how long the activity may lie in the queue after so many lookups. None, for as long as it takes: where
        no other host works at the server, the queue is not the host's, or a worker was there, with all slots taken."""
        prepared = self._state.prepared
        if prepared is None or not prepared.host_may_be_away or queue == TASK_QUEUE:
            return None
        if lookups and not self._state.host_wait:
            return None
        return SILENCES[min(lookups, len(SILENCES) - 1)]

    async def _find_reason(self, queue: str) -> str:
        """Return why nobody takes activities from the host's queue; empty where the host is there."""
        try:
            lookup: HostLookup = await workflow.execute_activity(
                "find_host",
                HostLookupInput(queue=queue),
                result_type=HostLookup,
                schedule_to_close_timeout=LOOKUP_TIME,
                task_queue=TASK_QUEUE,
                summary="is its host there?",
            )
        except ActivityError as error:
            if endings.is_cancellation(error):
                raise
            return "its host has not answered"
        return shorten(lookup.reason, REASON_CHARS)

    def _show_reason(self, reason: str) -> None:
        if reason != self._state.host_wait:
            self._state.host_wait = reason
            self._show()


def _was_not_taken(error: ActivityError) -> bool:
    """Return True where an activity failed because no worker took it in time, on whichever attempt."""
    return isinstance(error.cause, TimeoutError) and error.cause.type == TimeoutType.SCHEDULE_TO_START
