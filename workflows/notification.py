"""Telling people, beside the delivery: it never waits for them to be told, and does not fail when they cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, ChildWorkflowError

from perdure.models.errors import NoticeRefused
from perdure.models.limits import HEARTBEAT_TIMEOUT, NOTES_KEPT, NOTIFY_PAUSE, NOTIFY_PAUSE_MAX
from perdure.models.notice import Addresses, Notice, Notified, NotifyInput, notice_of
from perdure.models.request import DeliveryRequest
from perdure.models.result import DeliveryResult
from perdure.models.state import DeliveryState
from perdure.models.webui.markdown import cell
from workflows.endings import invalid

NOTIFY_FOR = timedelta(days=1)
"""An address that does not answer is tried this long: over a night, or a receiver's day of maintenance."""

NOTICE_STARTED = timedelta(seconds=10)
"""At its end a delivery waits until the server has taken over the last notice: milliseconds, or the server is down."""


FOR_A_DAY = RetryPolicy(
    initial_interval=NOTIFY_PAUSE,
    backoff_coefficient=2.0,
    maximum_interval=NOTIFY_PAUSE_MAX,
    non_retryable_error_types=[NoticeRefused.__name__],
)


@workflow.defn
class Notification:
    """Tells one notice to all who want to hear of it. A workflow of its own, because it may outlive the delivery."""

    @workflow.run
    async def run(self, raw: Any = None) -> list[str]:
        """Tell everybody, and return who was told. Fails with NotTold, which names each who was not and why."""
        try:
            notice = Notice.model_validate(raw)
        except ValidationError as error:
            raise invalid(f"not a notice: {error.error_count()} fields are wrong or missing") from None
        found: Addresses = await self._carried_out("notice_addresses", notice, Addresses, notice.event)
        untold = [words for words in await asyncio.gather(*(self._tell(notice, to) for to in found.names)) if words]
        if untold:
            raise ApplicationError("; ".join(untold), type="NotTold", non_retryable=True)
        return list(found.names)

    async def _tell(self, notice: Notice, to: str) -> str:
        """Say why this one was not told; empty when it was. The others do not wait for it."""
        work = NotifyInput(delivery=notice.delivery, notice=notice, to=to)
        try:
            await self._carried_out("notify", work, Notified, to)
        except ApplicationError as error:
            return error.message
        return ""

    async def _carried_out(self, activity: str, work: Any, result: Any, summary: str) -> Any:
        """Raises ApplicationError with one line: what the last try said."""
        try:
            return await workflow.execute_activity(
                activity,
                work,
                result_type=result,
                schedule_to_close_timeout=NOTIFY_FOR,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=FOR_A_DAY,
                summary=summary,
            )
        except ActivityError as error:
            if workflow.cancellation_reason() is not None:
                raise asyncio.CancelledError from error
            raise ApplicationError(_said(error), type="NotTold", non_retryable=True) from None


class DeliveryNotices:
    """The notices of one delivery. Nothing is told where `prepare` found nobody who wants to hear.

    show    brings what is seen from outside up to date
    """

    def __init__(self, delivery: str, request: DeliveryRequest, state: DeliveryState, show: Callable[[], None]) -> None:
        self._delivery, self._request, self._state, self._show = delivery, request, state, show
        self._telling: set[asyncio.Task[None]] = set()
        self.unprepared = False  # somebody wants to hear of one that is not prepared

    def tell(self, event: str) -> None:
        """waiting or reminder: of what the state says is asked. Goes on beside what follows."""
        prepared = self._state.prepared
        if prepared.notifies if prepared is not None else self.unprepared:
            telling = asyncio.create_task(self._hand_over(self._notice(event)))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def ended(self, result: DeliveryResult, *, notifies: bool) -> None:
        """Hand over the last notice: whoever is told, and how long that takes, is no matter of the delivery's."""
        prepared, place = self._state.prepared, self._request.landing
        if place is not None and place.within is not None:  # a task's end is its delivery's matter
            return
        if notifies or (prepared is not None and prepared.notifies):
            forked = self._request.forked
            if forked is not None and forked.attempt and workflow.patched("attempts-end-quietly"):
                return  # as is an attempt's
            await hand_over(self._notice("ended", result))

    async def _hand_over(self, notice: Notice) -> None:
        telling = await _started(notice)
        await workflow.wait_condition(lambda: telling.done() or notice.over(self._state))
        if not telling.done():
            telling.cancel()
        try:
            await telling
        except ChildWorkflowError as error:
            if isinstance(error.cause, CancelledError):
                return
            note = f"not all were told what it waits for ({notice.event}): {_said(error)}"
            if note not in self._state.notes and len(self._state.notes) < NOTES_KEPT:
                self._state.notes += (note[:300],)
                self._show()

    def _notice(self, event: str, result: DeliveryResult | None = None) -> Notice:
        info = workflow.info()
        return notice_of(
            event,
            self._state,
            self._request,
            id=f"notice-{workflow.uuid4().hex[:16]}",
            delivery=self._delivery,
            delivery_id=info.workflow_id,
            run_id=info.run_id,
            at=workflow.now(),
            result=result,
        )


async def hand_over(notice: Notice) -> None:
    """Begin to tell it, though a cancellation comes; its telling is not waited for."""
    starting = asyncio.create_task(_started(notice))
    with suppress(asyncio.CancelledError):
        await workflow.wait([starting], timeout=NOTICE_STARTED.total_seconds())


async def _started(notice: Notice) -> workflow.ChildWorkflowHandle[Any, list[str]]:
    """A run of it that outlives this one. Its id is new after a rewind, and the same when this is replayed."""
    return await workflow.start_child_workflow(
        "Notification",
        notice,
        id=f"{notice.delivery_id}.{notice.id}",
        result_type=list[str],
        parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        cancellation_type=workflow.ChildWorkflowCancellationType.TRY_CANCEL,
        static_summary=cell(
            notice.words if notice.words.startswith(notice.event) else f"{notice.event}: {notice.words}", 90
        ),
    )


def _said(error: BaseException) -> str:
    """One line: the innermost failure that says something."""
    words, seen = str(error), error.__cause__
    while seen is not None:
        if isinstance(seen, ApplicationError):
            words = seen.message
        seen = seen.__cause__
    return words.partition("\n")[0]
