"""Several attempts at one plan, each a delivery of its own in the same vault; their verdicts decide which one is
chosen.

The attempts run as child workflows. When all have ended, the files of the best one are taken over: the delivery commits
them, tests them once more as its own, and goes on. The review of that attempt is not paid for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

from perdure.models import fold
from perdure.models.attempts import AttemptWaits, TakeAttemptInput, TakeAttemptResult
from perdure.models.decisions import PendingDecision
from perdure.models.forking import ForkedFrom
from perdure.models.limits import TASK_QUEUE, USD_LEAST, WORKFLOW_TASK
from perdure.models.phases import Phase, Step
from perdure.models.request import ResumePoint
from perdure.models.result import AttemptResult, DeliveryResult, Reason, Status
from perdure.models.rules.allowance import budget_usd, paid_usd, used_tokens
from perdure.models.rules.attempts import attempt_workflow_id, attempts_summary, initial_attempt_state
from perdure.models.work import PreparedWorkspace
from workflows.attempt_children import AttemptChildren, ChildHandle, wait_for_attempt
from workflows.endings import DeliveryStopped, not_delivered
from workflows.signals import send_signal
from workflows.step_runner import StepRunner
from workflows.steps import Steps

SAME_ATTEMPT_PAUSE = timedelta(minutes=1)
"""Pause between looks for the end of the same attempt, started by a run before a rewind: what that one makes counts no
more."""

_PHASES = (Phase.BUILD, Phase.TEST, Phase.REVIEW)


class PlanAttempts:
    """The attempts of one delivery at its plan. `tell_backlog`: tells the delivery's backlog what it waits for; None:
    it has no backlog."""

    def __init__(self, runner: StepRunner, steps: Steps, tell_backlog: Callable[[str], Awaitable[None]] | None) -> None:
        self._runner, self._steps, self._tell_backlog = runner, steps, tell_backlog
        self._wait_text = ""
        self._wait_reasons: dict[int, str] = {}
        if runner.request.forked is not None and runner.request.forked.attempt:
            runner.gates.tell_backlog = self._tell_plan_delivery

    @property
    def _prepared(self) -> PreparedWorkspace:
        assert self._runner.state.prepared is not None
        return self._runner.state.prepared

    async def build_best(self) -> bool:
        """Run all attempts at the plan at once and take over the files of the best one; return True where one was
        chosen.

        Returns False, and runs none, where the plan is built once, or where attempts are made only after the delivery's
        own change has failed. Attempts that an earlier run has compared are not made again. Raises DeliveryStopped
        where every attempt changed nothing, none made a commit, or too little money is left for so many.
        """
        if self._prepared.attempts < 2:
            return False
        self._runner.state.planned_checkpoint = self._runner.state.planned_checkpoint or self._runner.state.checkpoint
        if self._prepared.after_red:
            return False
        if not self._runner.state.attempts:
            await self._take_over_best(await self._run_attempts(range(1, self._prepared.attempts + 1)))
        attempts = self._runner.state.attempts
        if any(attempt.chosen for attempt in attempts):
            return True
        if all(attempt.failure.startswith("the agent changed nothing") for attempt in attempts):
            raise DeliveryStopped(Status.NO_CHANGES, None, attempts_summary(attempts))
        raise not_delivered(
            Reason.LIMITS, f"none of {len(attempts)} attempts made a commit: {attempts_summary(attempts)}"
        )

    async def try_others(self, reason: str) -> bool:
        """Run the other attempts after the delivery's own change has failed for `reason`; return True where one of them
        is better and its files were taken over.

        Returns False, and runs none, where that is not configured, where they were run before, and where the change
        already stands on what others landed: the plan's checkpoint is from before that.
        """
        state, prepared = self._runner.state, self._prepared
        if (
            prepared.attempts < 2
            or not prepared.after_red
            or state.attempts
            or not state.planned_checkpoint
            or state.landings
        ):
            return False
        own = AttemptResult(
            number=1,
            delivery=workflow.info().workflow_id,
            branch=prepared.branch,
            head=state.head,
            failure=reason.partition("\n")[0][:200],
            tests=state.tests.status if state.tests is not None else AttemptResult(number=1).tests,
            review=state.review_result if state.reviewed_commit == state.head else AttemptResult(number=1).review,
            cost_usd=state.usage.cost_usd,
        )
        await self._take_over_best([own, *await self._run_attempts(range(2, prepared.attempts + 1))], own=1)
        return not state.head

    async def commit_best(self) -> None:
        """Make a commit of the files of the chosen attempt. The review it had, if any, counts as the review of this
        commit."""
        state, steps = self._runner.state, self._steps
        number = next(attempt.number for attempt in state.attempts if attempt.chosen)
        await steps.commit(Step.IMPLEMENT, number, state.title or self._prepared.title)
        if state.review:
            state.reviewed_commit = steps.reviewed_before = state.head

    async def _run_attempts(self, numbers: Iterable[int]) -> list[AttemptResult]:
        """Start these attempts, forward what people send, wait until all have ended, and return their results.

        The money that is left is shared equally. The time they take is not counted as the delivery's. A cancellation
        cancels them. Raises DeliveryStopped where less than USD_LEAST would be left for each.
        """
        runner, since, numbers = self._runner, workflow.now(), tuple(numbers)
        remaining_usd = round(budget_usd(runner.state, self._prepared) - paid_usd(runner.state), 6)
        usd = round(remaining_usd / len(numbers), 6)
        if usd < USD_LEAST:
            raise not_delivered(Reason.BUDGET, f"${remaining_usd:.2f} are left, too little for {len(numbers)} attempts")
        ids = {number: attempt_workflow_id(workflow.info().workflow_id, number) for number in numbers}
        runner.state.attempt_ids = (*runner.state.attempt_ids, *ids.values())
        self._wait_text = f"for {len(numbers)} attempts at its plan, each judged by itself: perdure list"
        workflow.set_signal_handler("attempt_waits", self._record_wait)
        self._show_wait()
        attempt_children = AttemptChildren(runner.state)
        for number, id in ids.items():
            sent_messages = runner.state.pending_messages
            attempt_children.add(number, await self._start_attempt(number, id, usd, len(numbers)), sent_messages)
        children = attempt_children.children
        try:
            await attempt_children.forward_until_ended()
        except asyncio.CancelledError:
            for child in children.values():
                child.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*children.values(), return_exceptions=True)
            raise
        finally:
            self._wait_text = runner.state.waiting = ""
        runner.gates.exclude_time(workflow.now() - since)
        attempt_ends = [await wait_for_attempt(number, ids[number], child) for number, child in children.items()]
        attempt_children.settle_messages(attempt_ends)
        return [end.attempted for end in attempt_ends]

    async def _start_attempt(self, number: int, id: str, usd: float, share_count: int) -> ChildHandle:
        """Start one attempt as a child delivery that goes on from the plan's checkpoint, with `usd` dollars and its
        share of the tokens; return its handle.

        Waits first for the end of an attempt of the same id that a run before this one started.
        """
        state, prepared = self._runner.state, self._prepared
        tokens = prepared.budget_tokens + state.extra_tokens if prepared.budget_tokens else 0
        changes: dict[str, Any] = {
            "phases": tuple(phase for phase in prepared.phases if phase in _PHASES),
            "checkpoint": state.planned_checkpoint,
            "time_s": max(self._runner.gates.time_left().total_seconds(), 1.0),
            "on_failure": "none",
            "attempts": 1,
            "after_red": False,
            "limited": False,
            "landing": "",
        }
        resume_state = initial_attempt_state(state, prepared.model_copy(update=changes), number, prepared.attempts)
        forked = ForkedFrom(
            delivery=workflow.info().workflow_id,
            at="implement:1",
            checkpoint=state.planned_checkpoint,
            queue=prepared.queue,
            attempt=number,
        )
        request_changes: dict[str, Any] = {
            "phases": changes["phases"],
            "gates": (),
            "push": False,
            "proof": None,
            "attempts": None,
            "after_red": None,
            "landing": None,
            "budget_usd": usd,
            "tokens": max((tokens - used_tokens(state.usage, state.spend)) // share_count, 1) if tokens else None,
            "resume": ResumePoint(run_id="", state=resume_state.model_dump(mode="json", exclude_defaults=True)),
            "forked": forked,
        }
        request = self._runner.request.model_copy(update=request_changes)
        while True:
            try:
                return await workflow.start_child_workflow(
                    "Delivery",
                    request.model_dump(mode="json", exclude_defaults=True),
                    id=id,
                    task_queue=TASK_QUEUE,
                    task_timeout=WORKFLOW_TASK,
                    parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    result_type=DeliveryResult,
                    static_summary=f"attempt {number} of {prepared.attempts} at the plan",
                )
            except WorkflowAlreadyStartedError:
                await workflow.sleep(SAME_ATTEMPT_PAUSE, summary="the same attempt, begun before, is not over yet")

    async def _record_wait(self, signal: AttemptWaits) -> None:
        """Record that an attempt waits for a person, or goes on (no reason given), show that, and tell the backlog. The
        person decides it at the attempt."""
        self._wait_reasons.pop(signal.number, None)
        if signal.waiting_for:
            self._wait_reasons[signal.number] = signal.waiting_for
        self._show_wait()
        if self._tell_backlog is not None:
            await self._tell_backlog("; ".join(self._wait_lines()))

    def _show_wait(self) -> None:
        """Show that the delivery waits for its attempts, and which of them wait for a person; nothing while none are
        run."""
        if self._wait_text:
            self._runner.state.waiting = "; ".join([self._wait_text, *self._wait_lines()])[:500]
            self._runner.refresh_details()

    def _wait_lines(self) -> list[str]:
        """Return a line for each attempt that waits for a person."""
        id = workflow.info().workflow_id
        return [
            f"{attempt_workflow_id(id, number)} waits: {reason}"
            for number, reason in sorted(self._wait_reasons.items())
        ]

    async def _tell_plan_delivery(self, pending: PendingDecision | None) -> None:
        """Send signal `attempt_waits` to the delivery whose plan this is: this attempt waits for a person; None: it
        goes on."""
        forked = self._runner.request.forked
        assert forked is not None
        signal = AttemptWaits(number=forked.attempt, waiting_for=pending.summary[:200] if pending is not None else "")
        await send_signal(workflow.get_external_workflow_handle(forked.delivery), "attempt_waits", signal)

    async def _take_over_best(self, attempts: list[AttemptResult], own: int = 0) -> None:
        """Have the best of these attempts chosen, its files restored and the result recorded, by activity
        `take_attempt`. `own`: number of the delivery's own change among them; 0: it is none of them."""
        state = self._runner.state
        work = TakeAttemptInput(
            delivery=self._runner.delivery,
            contract=self._prepared.contract,
            checkpoint=state.checkpoint,
            base=self._prepared.head,
            attempts=tuple(attempts),
            own_number=own,
        )
        fold.apply_attempt(state, await self._runner.run_step("take_attempt", work, TakeAttemptResult))
