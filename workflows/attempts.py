"""Run several attempts at one plan, each a child delivery in the same vault, choose the best by their verdicts, and
take over its files: at once (`build_best`), or only after the delivery's own change has failed (`try_others`).

`commit_best` here commits the files as the delivery's own; the delivery then tests them once more and goes on. The
review of that attempt is not paid for again. Used by `workflows.delivery` alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError

from perdure.models.delivery import fold
from perdure.models.delivery.decisions import PendingDecision, UserMessage
from perdure.models.delivery.request import ForkedFrom, ResumePoint
from perdure.models.delivery.result import AttemptResult, DeliveryResult, Reason, Status
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.summary import UNREAD_SHOWN, shorten_message
from perdure.models.delivery.work import AttemptWaits, PreparedWorkspace, TakeAttemptInput, TakeAttemptResult
from perdure.models.limits import USD_LEAST
from perdure.models.phases import Phase, Step
from perdure.models.rules.allowance import budget_usd, paid_usd, used_tokens
from perdure.models.rules.parallel_builds import (
    attempt_workflow_id,
    attempts_budget_reason,
    attempts_summary,
    initial_attempt_state,
)
from perdure.models.webui.captions import delivery_title
from perdure.text import shorten
from workflows.children import Child, Children, Relay, budget_signal, message_signal
from workflows.endings import DeliveryStopped, not_delivered
from workflows.signals import send_signal, title_attribute
from workflows.step_runner import StepRunner
from workflows.steps import Steps


@dataclass(frozen=True)
class AttemptEnd:
    """The end of one attempt. `unread`: messages, shortened, that no turn of it has read; None: nobody knows which."""

    attempted: AttemptResult
    unread: tuple[str, ...] | None = None


def settle_messages(state: DeliveryState, attempt_ends: list[AttemptEnd], relay: Relay[int]) -> None:
    """Mark those pending messages as read that every attempt with a commit has read; the others, and all of them when
    no attempt has a commit, stay pending for the delivery's next turn."""
    with_commit = [end for end in attempt_ends if end.attempted.head]
    read_messages = [
        message
        for message in state.messages.pending
        if with_commit and all(_has_read(message, end, relay) for end in with_commit)
    ]
    state.messages.add_delivered(*read_messages)
    state.messages.pending = tuple(message for message in state.messages.pending if message not in read_messages)


def _has_read(message: UserMessage, end: AttemptEnd, relay: Relay[int]) -> bool:
    """Return True when an attempt has read a message; False when it has not, or that is not known, as when it lists as
    many unread messages as a result can show."""
    if end.unread is None or not relay.has_sent(end.attempted.number, message):
        return False
    return len(end.unread) <= UNREAD_SHOWN and shorten_message(message.text) not in end.unread


async def wait_for_attempt(number: int, child: Child) -> AttemptEnd:
    """Wait for the end of one attempt and return it. When the attempt failed, the returned end says why;
    ChildWorkflowError is not raised."""
    try:
        return _end_from_result(number, child.id, await child)
    except ChildWorkflowError as error:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.type == "NotDelivered" and cause.details:
            with suppress(ValidationError):
                return _end_from_result(number, child.id, DeliveryResult.model_validate(cause.details[0]))
        reason = str(getattr(cause, "message", "") or cause or error).partition("\n")[0]
        failure = shorten(reason, 200) or "it was ended"
        return AttemptEnd(AttemptResult(number=number, delivery=child.id, failure=failure))


def _end_from_result(number: int, id: str, result: DeliveryResult) -> AttemptEnd:
    """Return the end of an attempt as its result describes it; `failure` is empty when it completed, else one line that
    says why not."""
    is_completed = result.status is Status.COMPLETED
    attempted = AttemptResult(
        number=number,
        delivery=id,
        branch=result.branch or "",
        head=result.head_sha or "",
        failure="" if is_completed else shorten((result.message or str(result.status)).partition("\n")[0], 200),
        tests=result.tests.status,
        review=result.review,
        cost_usd=result.usage.cost_usd,
    )
    return AttemptEnd(attempted, result.unread)


_PHASES = (Phase.BUILD, Phase.TEST, Phase.REVIEW)


class PlanAttempts:
    """The attempts of one delivery at its plan; and, in a delivery that is itself an attempt, what it tells the one
    with the plan.

    tell_backlog  tells the delivery's backlog, if any, what the delivery waits for
    """

    def __init__(self, runner: StepRunner, steps: Steps, tell_backlog: Callable[[str], Awaitable[None]]) -> None:
        self._runner, self._steps, self._tell_backlog = runner, steps, tell_backlog
        self._wait_text = ""
        self._wait_reasons: dict[int, str] = {}

    @property
    def _prepared(self) -> PreparedWorkspace:
        assert self._runner.state.prepared is not None
        return self._runner.state.prepared

    async def build_best(self) -> bool:
        """Run all attempts at the plan at once and take over the files of the best one; return True when one was
        chosen.

        Returns False, and runs none, when the plan is built once only, or attempts are made only after the delivery's
        own change has failed; for the latter the plan's checkpoint is recorded. Attempts that an earlier run has
        compared are not made again. Raises DeliveryStopped when every attempt changed nothing, none made a commit, or
        too little money is left for so many.
        """
        if self._prepared.building.attempts < 2:
            return False
        self._runner.state.children.planned_checkpoint = (
            self._runner.state.children.planned_checkpoint or self._runner.state.turns.checkpoint
        )
        if self._prepared.building.after_red:
            return False
        if not self._runner.state.children.attempts:
            await self._take_over_best(await self._run_attempts(range(1, self._prepared.building.attempts + 1)))
        attempts = self._runner.state.children.attempts
        if any(attempt.chosen for attempt in attempts):
            return True
        if all(attempt.failure.startswith("the agent changed nothing") for attempt in attempts):
            raise DeliveryStopped(Status.NO_CHANGES, None, attempts_summary(attempts))
        raise not_delivered(
            Reason.LIMITS, f"none of {len(attempts)} attempts made a commit: {attempts_summary(attempts)}"
        )

    async def try_others(self, reason: str) -> bool:
        """Run the other attempts after the delivery's own change has failed for `reason`; return True when one of them
        is better and its files were taken over, and False when none is.

        Also returns False, and runs none, when that is not configured, attempts were run before, or the change already
        stands on what others landed: the plan's checkpoint is from before that. Raises DeliveryStopped when too little
        money is left.
        """
        state, prepared = self._runner.state, self._prepared
        if (
            prepared.building.attempts < 2
            or not prepared.building.after_red
            or state.children.attempts
            or not state.children.planned_checkpoint
            or state.landing.turn_requests
        ):
            return False
        own = AttemptResult(
            number=1,
            delivery=workflow.info().workflow_id,
            branch=prepared.branch,
            head=state.building.head,
            failure=shorten(reason.partition("\n")[0], 200),
            tests=state.testing.verdict.status if state.testing.verdict is not None else AttemptResult(number=1).tests,
            review=state.reviewing.result
            if state.reviewing.reviewed_commit == state.building.head
            else AttemptResult(number=1).review,
            cost_usd=state.spending.usage.cost_usd,
        )
        await self._take_over_best([own, *await self._run_attempts(range(2, prepared.building.attempts + 1))], own=1)
        return not state.building.head

    async def commit_best(self) -> None:
        """Commit the files of the chosen attempt, which are in the worktree. The attempt's review, if it had one, is
        recorded as the review of this commit."""
        state, steps = self._runner.state, self._steps
        number = next(attempt.number for attempt in state.children.attempts if attempt.chosen)
        await steps.commit(Step.IMPLEMENT, number, state.planning.title or self._prepared.request.title)
        if state.reviewing.review:
            state.reviewing.reviewed_commit = steps.reviewed_before = state.building.head

    async def _run_attempts(self, numbers: Iterable[int]) -> list[AttemptResult]:
        """Start these attempts as children, send them what people send the delivery, wait until all have ended, and
        return their results; mark messages that they have read.

        The money that is left is shared equally. The time they take does not count as the delivery's. A cancellation
        cancels them and is raised. Raises DeliveryStopped when less than USD_LEAST would be left for each.
        """
        runner, since, numbers = self._runner, workflow.now(), tuple(numbers)
        remaining_usd = round(budget_usd(runner.state, self._prepared) - paid_usd(runner.state), 6)
        usd = round(remaining_usd / len(numbers), 6)
        if usd < USD_LEAST:
            raise not_delivered(Reason.BUDGET, attempts_budget_reason(remaining_usd, len(numbers)))
        ids = {number: attempt_workflow_id(workflow.info().workflow_id, number) for number in numbers}
        runner.state.children.ids = (*runner.state.children.ids, *ids.values())
        self._wait_text = f"for {len(numbers)} attempts at its plan, each judged by itself: perdure list"
        self._show_wait()
        children = Children[int]()
        relay = Relay(runner.state, children, message_signal, budget_signal)
        title = title_attribute(
            delivery_title(runner.state, runner.request), self._prepared.visibility.extra_attributes
        )
        requests = {number: self._attempt_request(number, usd, len(numbers)) for number in numbers}
        for number in numbers:  # what is sent or added from here on, while they start, reaches all of them by the relay
            relay.record_sent(number, runner.state.messages.pending)
        try:
            for number, id in ids.items():
                await children.start(
                    number,
                    "Delivery",
                    [requests[number]],
                    id=id,
                    summary=f"attempt {number} of {self._prepared.building.attempts} at the plan",
                    title=title,
                    result_type=DeliveryResult,
                )
            await relay.relay_until_ended()
        finally:
            self._wait_text = runner.state.waiting = ""
        runner.gates.exclude_time(workflow.now() - since)
        attempt_ends = [await wait_for_attempt(number, child) for number, child in children.handles.items()]
        settle_messages(runner.state, attempt_ends, relay)
        return [end.attempted for end in attempt_ends]

    def _attempt_request(self, number: int, usd: float, share_count: int) -> dict[str, Any]:
        """Return the request of one attempt, as JSON: a delivery that goes on from the plan's checkpoint and only
        builds, tests and reviews, with `usd` dollars, one of `share_count` equal shares of the tokens, if these are
        limited, and the time that is left."""
        state, prepared = self._runner.state, self._prepared
        tokens = prepared.limits.budget_tokens + state.budget.extra_tokens if prepared.limits.budget_tokens else 0
        phases = tuple(phase for phase in prepared.phases if phase in _PHASES)
        piece_changes: dict[str, dict[str, Any]] = {
            "limits": {"time_s": max(self._runner.gates.time_left().total_seconds(), 1.0), "is_shared": False},
            "building": {"attempts": 1, "after_red": False},
            "publishing": {"on_failure": "none", "landing": ""},
        }
        own = prepared.with_changes(piece_changes, phases=phases, checkpoint=state.children.planned_checkpoint)
        resume_state = initial_attempt_state(state, own, number, prepared.building.attempts)
        forked = ForkedFrom(
            delivery=workflow.info().workflow_id,
            at="implement:1",
            checkpoint=state.children.planned_checkpoint,
            queue=prepared.queue,
            attempt=number,
        )
        request_changes: dict[str, Any] = {
            "phases": phases,
            "gates": (),
            "push": False,
            "proof": None,
            "attempts": None,
            "after_red": None,
            "landing": None,
            "budget_usd": usd,
            "tokens": max((tokens - used_tokens(state.spending.usage, state.spending.spend)) // share_count, 1)
            if tokens
            else None,
            "resume": ResumePoint(run_id="", state=resume_state.model_dump(mode="json", exclude_defaults=True)),
            "forked": forked,
        }
        request = self._runner.request.model_copy(update=request_changes)
        return request.model_dump(mode="json", exclude_defaults=True)

    async def record_wait(self, signal: AttemptWaits) -> None:
        """Handle signal `attempt_waits`: record that an attempt waits for a person or, without a reason, goes on; show
        that, and tell the backlog. The person decides at the attempt, not here."""
        self._wait_reasons.pop(signal.number, None)
        if signal.waiting_for:
            self._wait_reasons[signal.number] = signal.waiting_for
        self._show_wait()
        await self._tell_backlog("; ".join(self._wait_lines()))

    def _show_wait(self) -> None:
        """Show that the delivery waits for its attempts, and which of them wait for a person; do nothing while none
        run."""
        if self._wait_text:
            self._runner.state.waiting = shorten("; ".join([self._wait_text, *self._wait_lines()]), 500)
            self._runner.refresh_details()

    def _wait_lines(self) -> list[str]:
        """Return one line for each attempt that waits for a person, with its workflow id and the reason."""
        id = workflow.info().workflow_id
        return [
            f"{attempt_workflow_id(id, number)} waits: {reason}"
            for number, reason in sorted(self._wait_reasons.items())
        ]

    async def tell_plan_delivery(self, pending: PendingDecision | None) -> None:
        """Send signal `attempt_waits` to the delivery whose plan this delivery is an attempt at: this one waits for a
        person, or goes on when `pending` is None. Does nothing when this is no attempt."""
        forked = self._runner.request.forked
        if forked is None or not forked.attempt:
            return
        waiting_for = shorten(pending.summary, 200) if pending is not None else ""
        signal = AttemptWaits(number=forked.attempt, waiting_for=waiting_for)
        await send_signal(workflow.get_external_workflow_handle(forked.delivery), "attempt_waits", signal)

    async def _take_over_best(self, attempts: list[AttemptResult], own: int = 0) -> None:
        """Choose the best of these attempts and restore its files in the worktree, by activity `take_attempt`, and
        record the result in the state. `own`: the number of the delivery's own change among them; 0: it is none of
        them."""
        state = self._runner.state
        work = TakeAttemptInput(
            delivery=self._runner.delivery,
            contract=self._prepared.contract,
            checkpoint=state.turns.checkpoint,
            base=self._prepared.head,
            attempts=tuple(attempts),
            own_number=own,
        )
        fold.apply_attempt(state, await self._runner.run_step("take_attempt", work, TakeAttemptResult))
