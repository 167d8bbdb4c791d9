"""Several attempts at one plan, each a delivery of its own in the same vault that runs beside this one; their verdicts
decide which one is chosen.

The attempts run as child workflows. When all have ended, the files of the best one are taken over: the delivery commits
them, tests them once more as its own, and goes on. The review of that attempt is not paid for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowHandle, ParentClosePolicy

from perdure.models.delivery import fold
from perdure.models.delivery.decisions import PendingDecision, UserMessage
from perdure.models.delivery.request import ForkedFrom, ResumePoint
from perdure.models.delivery.result import AttemptResult, DeliveryResult, Reason, Status
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.summary import UNREAD_CHARS, UNREAD_SHOWN
from perdure.models.delivery.work import AttemptWaits, PreparedWorkspace, TakeAttemptInput, TakeAttemptResult
from perdure.models.limits import TASK_QUEUE, USD_LEAST, WORKFLOW_TASK
from perdure.models.phases import Phase, Step
from perdure.models.rules.allowance import budget_usd, paid_usd, used_tokens
from perdure.models.rules.parallel_builds import attempt_workflow_id, attempts_summary, initial_attempt_state
from perdure.text import one_line
from workflows.endings import DeliveryStopped, not_delivered
from workflows.plan_tasks import SharedWithChildren, added_budget
from workflows.signals import send_signal
from workflows.step_runner import StepRunner
from workflows.steps import Steps

ChildHandle = ChildWorkflowHandle[Any, Any]


@dataclass(frozen=True)
class AttemptEnd:
    """The end of one attempt. `unread`: messages, shortened, that no turn of it has read; None: nobody knows which."""

    attempted: AttemptResult
    unread: tuple[str, ...] | None = None


class AttemptChildren:
    """Attempts that run at once, as child workflows. A message counts as heard where a turn has read it, not once it
    was sent."""

    def __init__(self, state: DeliveryState) -> None:
        self.children: dict[int, ChildHandle] = {}
        self._state = state
        self._sent_ids: dict[int, set[str]] = {}
        self._undelivered: set[tuple[int, str]] = set()

    def add(self, number: int, child: ChildHandle, messages: tuple[UserMessage, ...]) -> None:
        """Add an attempt that has started; `messages` are those that it started with."""
        self.children[number], self._sent_ids[number] = child, {message.id for message in messages}

    async def forward_until_ended(self) -> None:
        """Send the attempts what people send to the delivery, until all have ended: hold and resume, messages, and an
        equal share of added budget."""
        state, shared = self._state, SharedWithChildren(added_budget(self._state))
        while True:
            await workflow.wait_condition(
                lambda: (
                    not self._running_children()
                    or bool(self._unsent_messages())
                    or (state.hold_reason, added_budget(state)) != (shared.held, shared.extra_budget)
                )
            )
            if not (running := self._running_children()):
                return
            if state.hold_reason != shared.held:
                shared.held = state.hold_reason
                note = shared.held.removeprefix("held").removeprefix(": ").strip()
                await _signal_children(running, *(("hold", {"note": note}) if shared.held else ("resume", {})))
            for message in self._unsent_messages():
                unsent_children = {
                    number: child for number, child in running.items() if message.id not in self._sent_ids[number]
                }
                for number in unsent_children:
                    self._sent_ids[number].add(message.id)
                self._undelivered |= {
                    (number, message.id)
                    for number in await _signal_children(
                        unsent_children, "say", {"text": message.text, "id": message.id}
                    )
                }
            if (budget_now := added_budget(state)) != shared.extra_budget:
                state.budget_raises += 1
                share = _budget_share(shared.extra_budget, budget_now, len(running)) | {
                    "id": f"shared-{state.budget_raises}"
                }
                shared.extra_budget = budget_now
                await _signal_children(running, "decide", {"update": "add_budget", "said": share})

    def settle_messages(self, attempt_ends: list[AttemptEnd]) -> None:
        """Mark pending messages as read where every attempt with a commit has read them; the others stay pending for
        the delivery's next turn."""
        state, with_commit = self._state, [end for end in attempt_ends if end.attempted.head]
        read_messages = [
            message
            for message in state.pending_messages
            if with_commit and all(self._has_read(message, end) for end in with_commit)
        ]
        state.add_delivered_messages(*read_messages)
        state.pending_messages = tuple(message for message in state.pending_messages if message not in read_messages)

    def _running_children(self) -> dict[int, ChildHandle]:
        return {number: child for number, child in self.children.items() if not child.done()}

    def _unsent_messages(self) -> list[UserMessage]:
        """Return the pending messages that some running attempt was not sent."""
        return [
            message
            for message in self._state.pending_messages
            if any(message.id not in self._sent_ids[number] for number in self._running_children())
        ]

    def _has_read(self, message: UserMessage, end: AttemptEnd) -> bool:
        """Return whether an attempt has read a message; False where that is not known, as when it lists as many unread
        messages as a result can show."""
        number = end.attempted.number
        if end.unread is None or message.id not in self._sent_ids[number] or (number, message.id) in self._undelivered:
            return False
        return len(end.unread) <= UNREAD_SHOWN and one_line(message.text, UNREAD_CHARS) not in end.unread


async def wait_for_attempt(number: int, id: str, child: ChildHandle) -> AttemptEnd:
    """Wait for the end of one attempt and return it. A failed attempt is returned as well, with the reason; it raises
    nothing."""
    try:
        return _end_from_result(number, id, await child)
    except ChildWorkflowError as error:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.type == "NotDelivered" and cause.details:
            with suppress(ValidationError):
                return _end_from_result(number, id, DeliveryResult.model_validate(cause.details[0]))
        reason = str(getattr(cause, "message", "") or cause or error).partition("\n")[0]
        return AttemptEnd(AttemptResult(number=number, delivery=id, failure=reason[:200] or "it was ended"))


def _end_from_result(number: int, id: str, result: DeliveryResult) -> AttemptEnd:
    """Return the end of an attempt as its result describes it; the reason is empty where it completed."""
    is_completed = result.status is Status.COMPLETED
    attempted = AttemptResult(
        number=number,
        delivery=id,
        branch=result.branch or "",
        head=result.head_sha or "",
        failure="" if is_completed else (result.message or str(result.status)).partition("\n")[0][:200],
        tests=result.tests.status,
        review=result.review,
        cost_usd=result.usage.cost_usd,
    )
    return AttemptEnd(attempted, result.unread)


def _budget_share(
    budget_before: tuple[float, int, float], budget_now: tuple[float, int, float], share_count: int
) -> dict[str, Any]:
    """Return one attempt's part of what was added to the budget, as fields of update `add_budget`: an equal share of
    dollars and tokens, and all of the time. Parts of nothing are left out."""
    usd, tokens, time_s = (b - a for a, b in zip(budget_before, budget_now, strict=True))
    parts = {"usd": round(usd / share_count, 6), "tokens": int(tokens) // share_count, "time": f"{int(time_s)}s"}
    return {name: value for name, value in parts.items() if value and value != "0s"}


async def _signal_children(children: dict[int, ChildHandle], name: str, payload: dict[str, Any]) -> set[int]:
    """Send a signal to each child; return the numbers of those that have ended just now and did not get it."""
    return {number for number, child in children.items() if not await send_signal(child, name, payload)}


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
