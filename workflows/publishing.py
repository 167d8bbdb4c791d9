"""Steps at the forge, in their order: looked at, told, published.

It runs where the forge's token is. A forge that is away is waited for, visibly: by then the work is done and paid for.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType

from perdure.models import publishing
from perdure.models.errors import ForgeUnavailable
from perdure.models.landing import Landed, LandInput
from perdure.models.limits import FORGE_PAUSE, FORGE_PAUSE_MAX, HEARTBEAT_TIMEOUT, RETRY_PAUSE
from perdure.models.phases import Phase, Step
from perdure.models.result import ReviewResult, Status
from perdure.models.work import (
    Prepared,
)
from workflows.endings import finished, heed_cancellation, interpret
from workflows.stage import Stage

FORGE_PATIENCE = timedelta(days=7)
"""The patience with a forge: what is to be published is done and paid for. Longer than any outage known."""

FORGE_ATTEMPT = timedelta(minutes=15)
"""One attempt at a forge: a push of a large repository over a slow line, and a dozen small requests."""

QUEUE_PATIENCE = timedelta(seconds=20)
"""For somebody to take work meant for one worker, who takes it in milliseconds unless all slots are full; then the
delivery says whom it waits for."""

TELL_TIMEOUT = (timedelta(minutes=1), timedelta(minutes=10))
"""To comment on an issue, at the start and for good at the end: the delivery's own result waits for it."""


T = TypeVar("T")

AT_ONCE = RetryPolicy(
    initial_interval=RETRY_PAUSE, backoff_coefficient=1.0, non_retryable_error_types=[ForgeUnavailable.__name__]
)
"""A death is redone at once; a forge that is away is waited for here, where a person can see it."""


class Publishing:
    """One delivery's dealings with its forge; does nothing where the origin has none."""

    def __init__(self, stage: Stage, *, begun: bool = False) -> None:
        """`begun`: this run goes on with what another one has told the issue of."""
        self._stage, self._begun = stage, begun
        stage.people.comment = self._tell_waiting

    @property
    def _prepared(self) -> Prepared:
        assert self._stage.state.prepared is not None
        return self._stage.state.prepared

    @property
    def _queue(self) -> str:
        return self._prepared.publisher or self._prepared.queue

    async def check_access(self) -> None:
        """Check that it could be published at all, before a cent is spent. Raises Stopped."""
        if not self._prepared.hosted:
            return
        work = publishing.CheckInput(delivery=self._stage.delivery, contract=self._prepared.contract)
        try:
            checked = await self._patiently("check_access", work, publishing.Checked, "may we publish there?")
        except ActivityError as error:
            raise interpret(error) from error
        self._stage.state.notes = checked.notes

    async def _tell_waiting(self, words: str) -> None:
        """Tell the issue where a person has to decide, and that they did (empty `words`)."""
        prepared = self._stage.state.prepared
        if prepared is not None and prepared.comments_at_gates:
            await self.tell(workflow.info().workflow_id, words)
            heed_cancellation()

    async def tell(self, workflow_id: str, waiting: str = "") -> None:
        """Bring the one comment on the issue up to date. Nothing depends on it: a forge that refuses it is noted.

        A cancellation that comes now, or came before, does not keep the issue from being told.
        """
        state = self._stage.state
        ended = state.status is not None
        if ended and not self._begun:
            return
        prepared, self._begun = self._prepared, True
        if not (prepared.hosted and prepared.issue and Phase.SHIP in prepared.phases):
            return
        work = publishing.CommentInput(
            delivery=self._stage.delivery,
            contract=prepared.contract,
            workflow_id=workflow_id,
            branch=prepared.branch,
            status=state.status or "running",
            reason=state.reason or "",
            message=state.message[:500],
            waiting=waiting,
            pull_request=state.pull_request,
            tests=state.tests if ended else None,
            review_result=state.review_result if ended else ReviewResult(),
        )
        telling = workflow.start_activity(
            "comment",
            work,
            result_type=publishing.Commented,
            task_queue=self._queue,
            schedule_to_start_timeout=QUEUE_PATIENCE,
            schedule_to_close_timeout=TELL_TIMEOUT[1 if ended and state.status is not Status.CANCELLED else 0],
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=RetryPolicy(initial_interval=RETRY_PAUSE, backoff_coefficient=2.0),
            summary=f"issue #{prepared.issue}: {'waiting' if waiting else work.status.replace('_', ' ')}",
        )
        with suppress(asyncio.CancelledError):
            await workflow.wait([telling])
        try:
            await telling
        except ActivityError as error:
            words = str(getattr(error.cause, "message", error)).partition("\n")[0]
            note = f"issue #{prepared.issue} was not told: {words}"
            state.notes += () if note in state.notes else (note,)

    async def show_artifacts(
        self, plan: str, report: str, review: str, findings: str = "", screenshots: str = ""
    ) -> dict[str, str]:
        """Put what was written where the pull request can link to it; without links when that fails."""
        if not self._prepared.hosted:
            return {}
        work = publishing.ArtifactsInput(
            delivery=self._stage.delivery,
            contract=self._prepared.contract,
            plan=plan,
            report=report,
            review=review,
            findings=findings,
            screenshots=screenshots,
        )
        try:
            shown = await self._patiently("publish_artifacts", work, publishing.Artifacts, "plan, tests, review")
        except ActivityError as error:
            if isinstance(meaning := interpret(error), asyncio.CancelledError):
                raise meaning from error
            words = str(getattr(error.cause, "message", error)).partition("\n")[0]
            self._stage.state.notes += (f"plan, tests and review are not linked: {words}",)
            return {}
        return shown.links

    async def open_pull_request(self, work: publishing.ShipInput) -> publishing.Shipped:
        """Exactly one. Raises Stopped where the forge says no."""
        caption = f"{work.branch} → {work.base}"
        step = Step.OPEN_PULL_REQUEST
        return await self._stage.recorded(step, 1, lambda: self._patiently(step, work, publishing.Shipped, caption))

    async def push_branch(self, work: publishing.PushInput) -> publishing.Pushed:
        """The branch alone. Raises Stopped where the forge says no."""
        step = "push_branch"
        return await self._stage.recorded(step, 1, lambda: self._patiently(step, work, publishing.Pushed, work.branch))

    async def land(self, work: LandInput) -> Landed:
        """The integration branch, moved from where the change was tested. Raises Stopped where the forge says no."""
        caption = f"{work.commit[:7]} → {work.place.branch}"
        return await self._stage.recorded(Step.LAND, 1, lambda: self._patiently(Step.LAND, work, Landed, caption))

    async def _patiently(self, activity: str, work: Any, result: type[T], summary: str) -> T:
        """An attempt at a time; between them the delivery says what it waits for and when it tries again."""
        since, pause, state = workflow.now(), FORGE_PAUSE, self._stage.state
        while True:
            heed_cancellation()
            try:
                doing: workflow.ActivityHandle[T] = workflow.start_activity(
                    activity,
                    work,
                    result_type=result,
                    task_queue=self._queue,
                    schedule_to_start_timeout=QUEUE_PATIENCE,
                    start_to_close_timeout=FORGE_ATTEMPT,
                    heartbeat_timeout=HEARTBEAT_TIMEOUT,
                    retry_policy=AT_ONCE,
                    cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                    summary=summary,
                )
                return await finished(doing)
            except ActivityError as error:
                words = self._away(error)
                if not words or workflow.now() - since > FORGE_PATIENCE:
                    raise
                asked = getattr(error.cause, "next_retry_delay", None)
                wait = asked or pause
                again = (workflow.now() + wait).strftime("%H:%M:%S UTC")
                await self._stage.wait(f"{words} (since {since:%H:%M:%S} UTC; next try at {again})", wait)
            finally:
                state.waiting = ""
            pause = min(2 * pause, FORGE_PAUSE_MAX)

    def _away(self, error: ActivityError) -> str:
        """Name what is not there, when waiting for it may help; empty otherwise."""
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.type == ForgeUnavailable.__name__:
            return cause.message.partition("\n")[0]
        if isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_START:
            whose = "the publisher" if self._prepared.publisher else "the worker of this delivery's host"
            return f"{whose} is not there: nobody takes work from queue {self._queue}"
        return ""
