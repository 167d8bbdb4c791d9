"""A delivery's steps at its forge: the check that it may publish there, the comment on the issue, links to artifacts,
the branch, the pull request, the move of an integration branch; and the wait for room when the number of deliveries or
open pull requests is limited.

They run where the forge's token is. A forge that is away is waited for, visibly: by then the work is done and paid for.
Room is waited for before anything is paid, at no cost of history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType

from perdure.models.backlog.landing import LandInput, LandResult, OpenBacklogInput
from perdure.models.backlog.state import BacklogState, OpenBacklogResult
from perdure.models.concurrency_limit import ConcurrencyCheckInput, ConcurrencyCheckResult
from perdure.models.delivery import publishing
from perdure.models.delivery.result import ReviewResult, Status
from perdure.models.delivery.work import (
    PreparedWorkspace,
)
from perdure.models.errors import ForgeUnavailable
from perdure.models.limits import FORGE_PAUSE, FORGE_PAUSE_MAX, HEARTBEAT_TIMEOUT, RETRY_PAUSE
from perdure.models.phases import Phase, Step
from perdure.text import shorten
from workflows.endings import interpret_failure, raise_if_cancelled, wait_for_activity
from workflows.step_runner import StepRunner

FORGE_PATIENCE = timedelta(days=7)
"""The time a forge is waited for: what is to be published is done and paid for. Longer than any outage known."""

FORGE_ATTEMPT = timedelta(minutes=15)
"""Time limit of one attempt at a forge: a push of a large repository over a slow line, and a dozen small requests."""

QUEUE_PATIENCE = timedelta(seconds=20)
"""The time work for one worker waits to be started: the worker takes it in milliseconds unless all its slots are full.
After that the delivery says whom it waits for."""

COMMENT_TIMEOUTS = (timedelta(minutes=1), timedelta(minutes=10))
"""Time limits for a comment on an issue, while the delivery runs and at its end: its own result waits for it."""


T = TypeVar("T")

RETRY_AT_ONCE = RetryPolicy(
    initial_interval=RETRY_PAUSE, backoff_coefficient=1.0, non_retryable_error_types=[ForgeUnavailable.__name__]
)
"""Retries of an activity at the forge: a death is redone at once; a forge that is away is waited for by the workflow,
where a person can see it."""


class ForgeSteps:
    """A delivery's steps at its forge. Access, comments and artifacts do nothing when the origin is not hosted by a
    forge."""

    def __init__(self, runner: StepRunner, *, has_commented: bool = False) -> None:
        """`has_commented`: a run before this one has commented on the issue."""
        self._runner, self._has_commented = runner, has_commented

    @property
    def _prepared(self) -> PreparedWorkspace:
        assert self._runner.state.prepared is not None
        return self._runner.state.prepared

    @property
    def _queue(self) -> str:
        return self._prepared.publishing.publisher or self._prepared.queue

    async def check_access(self) -> None:
        """Check, by activity `check_access`, that the forge would take the result, before a cent is spent; its notes
        become the state's. Does nothing when no forge hosts the origin. Raises DeliveryStopped when the forge would
        refuse."""
        if not self._prepared.publishing.hosted:
            return
        work = publishing.AccessCheckInput(delivery=self._runner.delivery, contract=self._prepared.contract)
        try:
            checked = await self._run_patiently(
                "check_access", work, publishing.AccessCheckResult, "may we publish there?"
            )
        except ActivityError as error:
            raise interpret_failure(error) from error
        self._runner.state.notes = checked.notes

    async def tell_issue(self, reason: str, gate: str) -> None:
        """Update the comment on the issue: it waits at this gate or, with an empty `reason`, no longer does. Does
        nothing when comments are not configured. Raises CancelledError when the delivery was cancelled."""
        prepared = self._runner.state.prepared
        if prepared is not None and prepared.decisions.comments:
            await self.update_issue_comment(workflow.info().workflow_id, reason, gate)
            raise_if_cancelled()

    async def update_issue_comment(self, workflow_id: str, waiting: str = "", gate: str = "") -> None:
        """Create or update the one comment on the issue, and wait for that: status, what is waited for, pull request. A
        failure becomes a note.

        Does nothing without an issue or forge, when no pull request is to come, and at the end of a delivery that never
        commented. A cancellation, before or meanwhile, is swallowed and does not stop the comment.
        """
        state = self._runner.state
        has_ended = state.status is not None
        if has_ended and not self._has_commented:
            return
        prepared, self._has_commented = self._prepared, True
        if not (prepared.publishing.hosted and prepared.request.issue and Phase.SHIP in prepared.phases):
            return
        work = publishing.CommentInput(
            delivery=self._runner.delivery,
            contract=prepared.contract,
            workflow_id=workflow_id,
            branch=prepared.branch,
            status=state.status or "running",
            reason=state.reason or "",
            message=shorten(state.message, 500),
            waiting=waiting,
            gate=gate,
            pull_request=state.publishing.pull_request,
            tests=state.testing.verdict if has_ended else None,
            review_result=state.reviewing.result if has_ended else ReviewResult(),
        )
        commenting = workflow.start_activity(
            "comment",
            work,
            result_type=publishing.CommentResult,
            task_queue=self._queue,
            schedule_to_start_timeout=QUEUE_PATIENCE,
            schedule_to_close_timeout=COMMENT_TIMEOUTS[1 if has_ended and state.status is not Status.CANCELLED else 0],
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=RetryPolicy(initial_interval=RETRY_PAUSE, backoff_coefficient=2.0),
            summary=f"issue #{prepared.request.issue}: {'waiting' if waiting else work.status.replace('_', ' ')}",
        )
        with suppress(asyncio.CancelledError):
            await workflow.wait([commenting])
        try:
            await commenting
        except ActivityError as error:
            reason = str(getattr(error.cause, "message", error)).partition("\n")[0]
            note = f"issue #{prepared.request.issue} was not told: {reason}"
            state.notes += () if note in state.notes else (note,)

    async def publish_artifacts(
        self, plan: str, report: str, review: str, findings: str = "", screenshots: str = ""
    ) -> dict[str, str]:
        """Publish plan, report, review, findings and screenshots where the pull request can link to them; return the
        links by name.

        Empty when no forge hosts the origin, and when it fails, which becomes a note. Raises CancelledError.
        """
        if not self._prepared.publishing.hosted:
            return {}
        work = publishing.ArtifactLinksInput(
            delivery=self._runner.delivery,
            contract=self._prepared.contract,
            plan=plan,
            report=report,
            review=review,
            findings=findings,
            screenshots=screenshots,
        )
        try:
            published = await self._run_patiently(
                "publish_artifacts", work, publishing.ArtifactLinks, "plan, tests, review"
            )
        except ActivityError as error:
            if isinstance(meaning := interpret_failure(error), asyncio.CancelledError):
                raise meaning from error
            reason = str(getattr(error.cause, "message", error)).partition("\n")[0]
            self._runner.state.notes += (f"plan, tests and review are not linked: {reason}",)
            return {}
        return published.links

    async def open_pull_request(self, work: publishing.ShipInput) -> publishing.ShipResult:
        """Open the pull request, or find the one that exists, as a recorded step, and return it. Raises DeliveryStopped
        when the forge refuses or stays away for FORGE_PATIENCE."""
        caption = f"{work.branch} → {work.base}"
        step = Step.OPEN_PULL_REQUEST
        return await self._runner.run_recorded(
            step, 1, lambda: self._run_patiently(step, work, publishing.ShipResult, caption)
        )

    async def push_branch(self, work: publishing.PushInput) -> publishing.PushResult:
        """Push the branch without a pull request, as a recorded step. Raises DeliveryStopped when the forge refuses or
        stays away for FORGE_PATIENCE."""
        step = "push_branch"
        return await self._runner.run_recorded(
            step, 1, lambda: self._run_patiently(step, work, publishing.PushResult, work.branch)
        )

    async def land_commit(self, work: LandInput) -> LandResult:
        """Move the integration branch to a commit, by compare-and-swap from the commit the change was tested on, as a
        recorded step. Raises DeliveryStopped when the forge refuses or stays away for FORGE_PATIENCE."""
        caption = f"{work.commit[:7]} → {work.place.branch}"
        return await self._runner.run_recorded(
            Step.LAND, 1, lambda: self._run_patiently(Step.LAND, work, LandResult, caption)
        )

    async def _run_patiently(self, activity: str, work: Any, result: type[T], summary: str) -> T:
        """Run an activity at the forge and return its result. While the forge, or the worker that has its token, is
        away, show that and the time of the next attempt, and try again for up to FORGE_PATIENCE.

        Raises ActivityError for any other failure or when that time is over, and CancelledError.
        """
        since, pause, state = workflow.now(), FORGE_PAUSE, self._runner.state
        while True:
            raise_if_cancelled()
            try:
                handle: workflow.ActivityHandle[T] = workflow.start_activity(
                    activity,
                    work,
                    result_type=result,
                    task_queue=self._queue,
                    schedule_to_start_timeout=QUEUE_PATIENCE,
                    start_to_close_timeout=FORGE_ATTEMPT,
                    heartbeat_timeout=HEARTBEAT_TIMEOUT,
                    retry_policy=RETRY_AT_ONCE,
                    cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                    summary=summary,
                )
                return await wait_for_activity(handle)
            except ActivityError as error:
                reason = self._unavailable_reason(error)
                if not reason or workflow.now() - since > FORGE_PATIENCE:
                    raise
                raise_if_cancelled()  # a cancellation that came with the failure has been taken for nothing so far
                requested_wait = getattr(error.cause, "next_retry_delay", None)
                wait = requested_wait or pause
                next_try = (workflow.now() + wait).strftime("%H:%M:%S UTC")
                await self._runner.wait_visibly(f"{reason} (since {since:%H:%M:%S} UTC; next try at {next_try})", wait)
            finally:
                state.waiting = ""
            pause = min(2 * pause, FORGE_PAUSE_MAX)

    def _unavailable_reason(self, error: ActivityError) -> str:
        """Return a line that says what is away, the forge or the worker that has its token, for a failure that passes
        when it is back; empty for any other failure."""
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.type == ForgeUnavailable.__name__:
            return cause.message.partition("\n")[0]
        if isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_START:
            worker = "the publisher" if self._prepared.publishing.publisher else "the worker of this delivery's host"
            return f"{worker} is not there: nobody takes work from queue {self._queue}"
        return ""


UNTIL_ROOM = RetryPolicy(
    initial_interval=timedelta(seconds=5), backoff_coefficient=1.5, maximum_interval=timedelta(minutes=1)
)
"""Retries until there is room. The server tries again: however long that takes, history has one activity of it."""


async def wait_for_room(runner: StepRunner, tell_reason: Callable[[str], Awaitable[None]]) -> None:
    """Wait until there is room for one more delivery of the repository; return at once when there is, or nothing limits
    their number.

    What it waits for is shown as waiting, and passed to `tell_reason`; afterwards that is called with empty text.
    Raises DeliveryStopped when the forge refuses.
    """
    prepared = runner.state.prepared
    if prepared is None or not prepared.limits.is_shared:
        return
    runner.show_state()  # from now on other deliveries see this one in the line
    work = ConcurrencyCheckInput(
        delivery=runner.delivery,
        contract=prepared.contract,
        workflow_id=workflow.info().workflow_id,
        repository=runner.request.repository,
    )
    queue = prepared.publishing.publisher or prepared.queue
    try:
        if reason := (await _look_for_room("find_room", work, queue, "room for one more?")).reason:
            with runner.gates.show_waiting(reason):
                await tell_reason(reason)
                await _look_for_room("find_room", work.model_copy(update={"waits": True}), queue, reason)
            await tell_reason("")
    except ActivityError as error:
        raise interpret_failure(error) from error


async def wait_for_pull_request_room(state: BacklogState, opened: OpenBacklogResult, work: OpenBacklogInput) -> None:
    """Wait until fewer pull requests of the repository are open than the limit allows, for a backlog; return at once
    when there is no limit. Its state shows what is waited for. Raises ActivityError when the forge refuses."""
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
    """Run an activity that looks for room, and return its answer: the reason why there is none, or an empty one. With
    `waits` in its input the activity fails until there is room, and the server tries it again."""
    room: ConcurrencyCheckResult = await workflow.execute_activity(
        activity,
        work,
        result_type=ConcurrencyCheckResult,
        task_queue=queue,
        start_to_close_timeout=FORGE_ATTEMPT,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=UNTIL_ROOM,
        summary=shorten(summary, 100),
    )
    return room
