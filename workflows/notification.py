"""Notices to people: workflow `Notification`, which sends one notice to every address, and what a delivery starts it
with. It runs beside the delivery, which neither waits until people are told nor fails when they cannot be."""

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

from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import DeliveryResult
from perdure.models.delivery.state import DeliveryState
from perdure.models.errors import NoticeRefused
from perdure.models.limits import HEARTBEAT_TIMEOUT, NOTES_KEPT, NOTIFY_PAUSE, NOTIFY_PAUSE_MAX, TASK_QUEUE
from perdure.models.notice import Addresses, Notice, NotifyInput, NotifyResult, notice_of
from perdure.models.webui.markdown import escape_line
from perdure.text import shorten
from workflows.endings import invalid_request
from workflows.unknown_messages import UnknownMessages

NOTIFY_FOR_TIME = timedelta(days=1)
"""The time an address that does not answer is tried: over a night, or a receiver's day of maintenance."""

NOTICE_START_TIME = timedelta(seconds=10)
"""Longest time that a delivery waits at its end until the server has taken over the last notice: it takes milliseconds,
or the server is down."""


NOTIFY_RETRIES = RetryPolicy(
    initial_interval=NOTIFY_PAUSE,
    backoff_coefficient=2.0,
    maximum_interval=NOTIFY_PAUSE_MAX,
    non_retryable_error_types=[NoticeRefused.__name__],
)


@workflow.defn
class Notification(UnknownMessages):
    """Workflow that sends one notice to all who want to hear of it. A workflow of its own, because it may outlive the
    delivery."""

    @workflow.run
    async def run(self, raw: Any = None, *extra_args: Any) -> list[str]:
        """Send the notice to every address that takes its event, all at once, and return the names of the addresses.
        Raises ApplicationError NotTold, which names each address that was not told and why; ApplicationError
        InvalidRequest when the argument is no notice."""
        if extra_args:
            raise invalid_request(f"not a notice: {1 + len(extra_args)} arguments")
        try:
            notice = Notice.model_validate(raw)
        except ValidationError as error:
            raise invalid_request(f"not a notice: {error.error_count()} fields are wrong or missing") from None
        addresses: Addresses = await self._run_activity("notice_addresses", notice, Addresses, notice.event)
        failures = [
            failure
            for failure in await asyncio.gather(*(self._notify_address(notice, name) for name in addresses.names))
            if failure
        ]
        if failures:
            raise ApplicationError("; ".join(failures), type="NotTold", non_retryable=True)
        return list(addresses.names)

    async def _notify_address(self, notice: Notice, name: str) -> str:
        """Send the notice to one address, named by the host's configuration, by activity `notify`; return the error
        message when that failed for good, else empty text. Raises CancelledError when this workflow was cancelled."""
        work = NotifyInput(delivery=notice.delivery, notice=notice, to=name)
        try:
            await self._run_activity("notify", work, NotifyResult, name)
        except ApplicationError as error:
            return error.message
        return ""

    async def _run_activity(self, activity: str, work: Any, result: Any, summary: str) -> Any:
        """Run an activity, tried again for NOTIFY_FOR_TIME, and return its result. Raises CancelledError when this
        workflow was cancelled; else ApplicationError NotTold with the message of the last try, in one line."""
        try:
            return await workflow.execute_activity(
                activity,
                work,
                result_type=result,
                schedule_to_close_timeout=NOTIFY_FOR_TIME,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=NOTIFY_RETRIES,
                summary=summary,
            )
        except ActivityError as error:
            if workflow.cancellation_reason() is not None:
                raise asyncio.CancelledError from error
            raise ApplicationError(_innermost_message(error), type="NotTold", non_retryable=True) from None


class DeliveryNotices:
    """Sends the notices of one delivery. None is sent when `prepare` found that nobody has subscribed to any.

    show  brings what is seen from outside up to date
    """

    def __init__(self, delivery: str, request: DeliveryRequest, state: DeliveryState, show: Callable[[], None]) -> None:
        self._delivery, self._request, self._state, self._show = delivery, request, state, show
        self._sending: set[asyncio.Task[None]] = set()
        self.notifies_unprepared = False  # somebody wants to hear of a delivery that could not be prepared

    def send_notice(self, event: str) -> None:
        """Send a notice that the delivery waits for a person or a shared budget (event `waiting` or `reminder`), in a
        task of its own, and return at once. Does nothing when nobody has subscribed to notices."""
        prepared = self._state.prepared
        if prepared.decisions.notifies if prepared is not None else self.notifies_unprepared:
            sending = asyncio.create_task(self._send_and_watch(self._make_notice(event)))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def send_end_notice(self, result: DeliveryResult, *, notifies: bool) -> None:
        """Send the notice that the delivery has ended, and return once the server has started the workflow that sends
        it, or after NOTICE_START_TIME. Does nothing when nobody has subscribed (`notifies` False, and `prepare` found
        nobody), nor for a plan's task or an attempt: the delivery they belong to tells of its own end."""
        prepared = self._state.prepared
        if self._request.parent_delivery is not None:  # a plan's task: its delivery tells of its own end
            return
        if notifies or (prepared is not None and prepared.decisions.notifies):
            forked = self._request.forked
            if forked is not None and forked.attempt:
                return  # so does that of an attempt
            await start_notification(self._make_notice("ended", result))

    async def _send_and_watch(self, notice: Notice) -> None:
        """Start the workflow that sends a notice, and wait for its end; cancel it once the delivery no longer waits for
        what the notice says. A failure becomes a note in the state, up to NOTES_KEPT of them; a cancellation does not.
        """
        child, state = await _start_child(notice), self._state
        await workflow.wait_condition(
            lambda: child.done() or notice.is_outdated(state.waiting, state.gates.pending_decision)
        )
        if not child.done():
            child.cancel()
        try:
            await child
        except ChildWorkflowError as error:
            if isinstance(error.cause, CancelledError):
                return
            text = f"not all were told what it waits for ({notice.event}): {_innermost_message(error)}"
            note = shorten(text, 300)
            if note not in self._state.notes and len(self._state.notes) < NOTES_KEPT:
                self._state.notes += (note,)
                self._show()

    def _make_notice(self, event: str, result: DeliveryResult | None = None) -> Notice:
        """Make the notice of an event from the request, the state and, at the end, the result, under a new id."""
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


async def has_subscribers() -> bool:
    """Return whether anybody has subscribed to the ends of deliveries at this worker's host, for a request that was
    refused before any host was asked. A cancellation meanwhile is swallowed. False where the host does not say, and in
    a run that began before it was asked."""
    if not workflow.patched("refusals_told"):
        return False
    asking = workflow.start_activity(  # no local one: a worker without it would fail the workflow's task
        "has_subscribers",
        "ended",
        result_type=bool,
        task_queue=TASK_QUEUE,
        schedule_to_close_timeout=NOTICE_START_TIME,
        retry_policy=RetryPolicy(non_retryable_error_types=["NotFoundError"]),
        summary="does anybody want to hear of it",
    )
    try:
        with suppress(asyncio.CancelledError):
            await workflow.wait([asking])
        return bool(await asking)
    except ActivityError:
        return False


async def start_notification(notice: Notice) -> None:
    """Start the workflow that sends a notice, and wait until it is started, NOTICE_START_TIME at most; never until
    people are told. A cancellation meanwhile is swallowed, and does not stop the start."""
    starting = asyncio.create_task(_start_child(notice))
    with suppress(asyncio.CancelledError):
        await workflow.wait([starting], timeout=NOTICE_START_TIME.total_seconds())


async def _start_child(notice: Notice) -> workflow.ChildWorkflowHandle[Any, list[str]]:
    """Start workflow `Notification` as a child that outlives this workflow; return its handle. Its id is made of the
    delivery's and the notice's."""
    return await workflow.start_child_workflow(
        "Notification",
        notice,
        id=f"{notice.delivery_id}.{notice.id}",
        result_type=list[str],
        parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        cancellation_type=workflow.ChildWorkflowCancellationType.TRY_CANCEL,
        static_summary=escape_line(
            notice.summary if notice.summary.startswith(notice.event) else f"{notice.event}: {notice.summary}", 90
        ),
    )


def _innermost_message(error: BaseException) -> str:
    """Return the message of the innermost application failure behind an error, its first line; the error's own text
    when there is none."""
    text, cause = str(error), error.__cause__
    while cause is not None:
        if isinstance(cause, ApplicationError):
            text = cause.message
        cause = cause.__cause__
    return text.partition("\n")[0]
