"""Carries out one step of a delivery: schedules its activities, waits for gates and budget before them, records and
times it, and shows it in the Web UI. It does not decide which step comes next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ActivityHandle

from perdure.models.budget.ledger import SpendingLimits
from perdure.models.delivery import fold
from perdure.models.delivery.decisions import PendingDecision, UserMessage
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import Reason, StepRecord
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.summary import delivery_status
from perdure.models.delivery.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.delivery.work import CloseInput, CloseResult, EscalationSettings, PrepareInput, TestInput
from perdure.models.ids import CHANGE, TITLE, WAITING, delivery_key, short_run_id
from perdure.models.limits import (
    CLOSE_TIMEOUT,
    HEARTBEAT_TIMEOUT,
    MESSAGE_BYTES_PER_TURN,
    TASK_QUEUE,
)
from perdure.models.phases import Phase, Step
from perdure.models.rules.allowance import Limit, spending_limits
from perdure.models.webui import captions
from perdure.models.webui.details import render_delivery_details
from perdure.text import shorten
from workflows.allowance import Allowance
from workflows.endings import (
    ENDINGS,
    DeliveryStopped,
    cut_off_reason,
    interpret_failure,
    is_out_of_time,
    not_delivered,
    people_to_ask,
    reached_limit,
)
from workflows.gates import DeliveryGates
from workflows.host_queue import ENDLESS, HostQueue
from workflows.notification import DeliveryNotices
from workflows.signals import set_search_attributes

T = TypeVar("T")


class StepRunner:
    """Runs the steps of one delivery and keeps its state up to date. `announce`: as in DeliveryGates."""

    def __init__(
        self,
        delivery: str,
        request: DeliveryRequest,
        state: DeliveryState,
        announce: Callable[[PendingDecision | None], Awaitable[None]],
    ) -> None:
        self.delivery, self.request, self.state = delivery, request, state
        self.notices = DeliveryNotices(delivery, request, state, self.show_state)
        self.gates = DeliveryGates(state, self.show_state, self.notices.send_notice, announce)
        self.allowance = Allowance(delivery, state, self.gates.show_waiting, self.notices.send_notice)
        self._host_queue = HostQueue(state, self.gates, self.refresh_details)
        self._waiting_since = ("", workflow.now())

    async def run_step(self, step: str, work: Any, result: type[T], *, attempt: int = 1, queue: str | None = None) -> T:
        """Run a step that is one activity, record it, and return its result; before it, wait until the delivery may go
        on.

        Raises DeliveryStopped, CancelledError or ApplicationError InvalidRequest, as the activity's final failure
        means. `queue`: the task queue; None: that of the delivery's host.
        """
        caption = captions.step_caption(step, attempt, self.state, getattr(work, "subject", ""))
        return await self.run_recorded(step, attempt, lambda: self._run_activity(step, work, result, caption, queue))

    async def run_unrecorded(self, activity: str, work: Any, result: type[T], summary: str) -> T:
        """Run an activity that is too small to be a step of its own, and return its result: it takes milliseconds and
        has no record. Before it, wait until the delivery may go on. Raises as `run_step`: DeliveryStopped,
        CancelledError or ApplicationError InvalidRequest."""
        await self.gates.wait_until_ready()
        return await self._run_activity(activity, work, result, summary)

    async def _run_activity(
        self, activity: str, work: Any, result: type[T], summary: str, queue: str | None = None
    ) -> T:
        """Run an activity within the time that is left, and return its result. When it was stopped by a limit, or cut
        off too often, a person is asked; it is run again when they give more time or money, or approve another try.

        Raises what its final failure means for the delivery: DeliveryStopped, CancelledError or ApplicationError
        InvalidRequest.
        """
        while True:
            try:
                return await self._host_queue.run_activity(activity, work, result, queue or self.queue, summary)
            except ActivityError as error:
                if isinstance(work, TurnInput) and (limit := reached_limit(error)) is not None:
                    await self.allowance.reserve_for_turn(limit)
                    await self.gates.ask_for_budget(Limit(limit.limit), limit.reason)
                    work = work.model_copy(update={"spending_limits": await self._wait_for_budget()})
                    continue
                if is_out_of_time(error) and await self.gates.ask_for_time():
                    continue
                reason = isinstance(work, PrepareInput | TurnInput | TestInput) and cut_off_reason(error)
                if reason and await self.gates.ask_to_try_again(reason, self._people_to_ask(work, error)):
                    work = work.model_copy(update={"approved_retries": work.approved_retries + 1})
                    continue
                raise interpret_failure(error) from error

    def _people_to_ask(self, work: Any, error: ActivityError) -> EscalationSettings:
        """Return whether people are asked about work that was cut off again and again: for a failed `prepare` as its
        error's details say, else as the delivery was prepared. For `prepare`, also record whether notices are sent of a
        delivery that is not prepared."""
        if isinstance(work, PrepareInput):
            people = people_to_ask(error)
            self.notices.notifies_unprepared = people.notifies
            return people
        prepared = self.state.prepared
        return prepared.escalation if prepared is not None else EscalationSettings()

    async def run_recorded(self, step: str, attempt: int, action: Callable[[], Awaitable[T]]) -> T:
        """Wait until the delivery may go on, run `action` as a recorded step, and return its result; a `summary` of the
        result goes into the record.

        It waits while somebody holds the delivery, and while a limit is reached, which a person is asked to raise.
        Before anything is recorded it raises CancelledError when the delivery was cancelled, DeliveryStopped when a
        limit is not raised. An error of the action is recorded and raised, an ActivityError as what it means for the
        delivery.
        """
        await self.gates.wait_until_ready()
        with self._keep_record(step, attempt):
            output = await action()
        self._end_record("done", summary=getattr(output, "summary", ""))
        return output

    async def run_turns(self, step: Step, attempt: int, materials: dict[str, str], effort: str = "") -> Outcome:
        """Run an agentic step, one activity a turn, until it ends, and return its outcome. A step that an earlier run
        was cut off in goes on there; one that has ended already is not run again: its outcome is returned.

        Raises DeliveryStopped when the step ended otherwise than done, or not within its turns. `effort`: the effort to
        ask of the model, when it is not that of the step's settings.
        """
        if (earlier_outcome := self.state.outcome_of(step, attempt)) is not None:
            return earlier_outcome
        with self._keep_record(step, attempt):
            outcome, model = await self._run_to_outcome(step, attempt, materials, effort)
        if outcome.ending is Ending.DONE:
            self.state.end_step(step, outcome)
            differences = (f"effort {effort}" if effort else "", f"with {model}" if model else "")
            self._end_record("done", summary=" · ".join(part for part in (*differences, outcome.summary) if part))
            return outcome
        self._end_record("failed", summary=outcome.summary)
        self.state.turns.resume_at = None
        self.state.turns.sample = short_run_id(workflow.info().run_id)  # a retry has to ask for new replies
        reason, part = ENDINGS[outcome.ending]
        message = outcome.summary if outcome.summary.startswith(part) else f"{part}: {outcome.summary}"
        raise not_delivered(reason, message if outcome.summary else part)

    async def _run_to_outcome(
        self, step: Step, attempt: int, materials: dict[str, str], effort: str
    ) -> tuple[Outcome, str]:
        """Run turns until one has the step's outcome; return it, and the name of the second model when the step has
        switched to one, else empty text.

        Before each turn it waits for the answer to an open question, and for money and time; after it, its result is
        applied to the state. Raises DeliveryStopped when the step does not end within its turns.
        """
        state, last_summary = self.state, ""
        assert state.prepared is not None
        turns_done = (
            state.turns.resume_at[2] if state.turns.resume_at and state.turns.resume_at[:2] == (step, attempt) else 0
        )
        for turn in range(turns_done + 1, turns_done + 1 + (limit := state.prepared.limits.turns_per_step)):
            await self.gates.ask_open_question()
            budget_room = await self._wait_for_budget()
            prepared = state.prepared  # a rewind may have changed it meanwhile
            work = TurnInput(
                delivery=self.delivery,
                step=step,
                attempt=attempt,
                turn=turn,
                checkpoint=state.turns.checkpoint,
                contract=prepared.contract,
                materials=materials if turn == 1 else {},
                messages=self._next_messages(),
                delivered_messages=state.messages.delivered if turn == 1 else (),
                started_run_suffix=short_run_id(workflow.info().original_execution_run_id),
                sample=state.turns.sample,
                spending_limits=budget_room if prepared.agents.proxied or prepared.limits.shared_budgets else None,
                effort=effort,
            )
            model = prepared.agents.models.get(step, "") + (f", effort {effort}" if effort else "")
            caption = captions.turn_caption(attempt, turn, last_summary, model)
            result = await self._run_activity(step, work, TurnResult, caption)
            last_summary = result.summary
            self.gates.exclude_time(timedelta(seconds=result.waited_s))
            self._record_turn(step, attempt, turn, result)
            self.allowance.clear_turn_need()
            if result.outcome is not None:
                return result.outcome, result.model
        raise not_delivered(Reason.LIMITS, f"{step} did not end within {limit} turns")

    async def _wait_for_budget(self) -> SpendingLimits:
        """Wait until the next turn may begin, within the delivery's limits and the budgets it shares, and return the
        most that it may spend. Raises DeliveryStopped when a limit is not raised, CancelledError when the delivery was
        cancelled."""
        await self.gates.wait_until_ready(paying=True)
        while await self.allowance.wait_for_grant():
            await self.gates.wait_until_ready(paying=True)
        assert self.state.prepared is not None
        return spending_limits(self.state, self.state.prepared)

    def _next_messages(self) -> tuple[UserMessage, ...]:
        """Return the pending messages for the next turn, the oldest first, as many as fit into one turn; the first one
        always. None is removed from the state."""
        bytes_left, messages = MESSAGE_BYTES_PER_TURN, list[UserMessage]()
        for message in self.state.messages.pending:
            bytes_left -= len(message.text.encode()) + len(message.question.encode())
            if messages and bytes_left < 0:
                break
            messages.append(message)
        return tuple(messages)

    @contextmanager
    def _keep_record(self, step: str, attempt: int) -> Iterator[None]:
        """Record that a step begins and, when the block raises, how it ended: `failed` or `cancelled`. The error is
        raised again, an ActivityError as what it means for the delivery. The end of a block that does not raise is
        recorded by the caller."""
        self._begin_record(step, attempt)
        try:
            yield
        except (ActivityError, ApplicationError, DeliveryStopped, asyncio.CancelledError) as error:
            meaning = interpret_failure(error) if isinstance(error, ActivityError) else error
            summary = shorten(str(meaning).partition("\n")[0], 100) if isinstance(meaning, DeliveryStopped) else ""
            self._end_record("cancelled" if isinstance(meaning, asyncio.CancelledError) else "failed", summary=summary)
            raise meaning from error.__cause__ if meaning is error else error

    def _record_turn(self, step: Step, attempt: int, turn: int, result: TurnResult) -> None:
        """Apply a turn's result to the state, and count the turn and its cost in the step's record; a cost that is not
        known makes the sum unknown."""
        fold.apply_turn(self.state, step, attempt, turn, result)
        record = self.state.steps[-1]
        cost = result.usage.cost_usd
        is_known = record.cost_usd is not None and cost is not None
        self._update_record(
            turns=record.turns + 1, cost_usd=round((record.cost_usd or 0) + (cost or 0), 6) if is_known else None
        )

    async def close_delivery(self, *, keep: bool) -> CloseResult:
        """Give back worktree and ports, and write the receipt, by activity `close`; return its result. A failure does
        not raise: the result's message says so.

        A cancellation that comes now is swallowed: it must not cost the receipt. `keep`: the worktree stays for a
        person to look at.
        """
        closing: ActivityHandle[CloseResult] = workflow.start_activity(
            "close",
            CloseInput(delivery=self.delivery, keep=keep, tasks=tuple(map(delivery_key, self.state.children.ids))),
            result_type=CloseResult,
            task_queue=self.queue,
            schedule_to_close_timeout=CLOSE_TIMEOUT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=ENDLESS,
            summary="tidy up, write the receipt",
        )
        try:
            with suppress(asyncio.CancelledError):
                await workflow.wait([closing])
            return await closing
        except ActivityError as error:
            state, message = self.state, f"could not tidy up: {error.cause}"
            return CloseResult(message=message, receipt=state.receipt, spend=state.spending.spend)

    def state_for_next_run(self) -> DeliveryState:
        """Return the state as another run begins from it. When a rewind has made this run, mark it in the state first,
        so that a retry goes on with this run's replies."""
        info = workflow.info()
        if info.run_id != info.original_execution_run_id:
            self.state.turns.sample = short_run_id(info.run_id)
        return self.state

    @property
    def queue(self) -> str:
        """Return the task queue of the delivery's host; the common one before it is prepared."""
        return self.state.prepared.queue if self.state.prepared else TASK_QUEUE

    def enter_phase(self, phase: Phase | None) -> None:
        """Record a phase, or None for none, and show it in the Web UI's details and, as search attributes, in lists and
        filters."""
        self.state.phase = phase
        self.show_state()

    def refresh_details(self) -> None:
        """Bring the details of the Web UI up to date, which costs no event."""
        workflow.set_current_details(
            render_delivery_details(self.state, self.request, self.delivery, workflow.info().workflow_id)
        )

    def show_state(self) -> None:
        """Bring the Web UI's details and the search attributes up to date. Each call is an event, so it is called at
        phases and waits only; without an event before the delivery is prepared or when the server lacks the attributes:
        then only details change."""
        state = self.state
        self.refresh_details()
        if state.prepared is None or not state.prepared.visibility.attributes:
            return
        values = {
            "PerdureRepository": self.request.repository,
            "PerdurePhase": state.phase or "",
            "PerdureStatus": delivery_status(state),
            "PerdureBranch": state.prepared.branch,
            "PerdurePullRequest": state.publishing.pull_request.url if state.publishing.pull_request else "",
        }
        self._waiting_since = (
            self._waiting_since if state.waiting == self._waiting_since[0] else (state.waiting, workflow.now())
        )
        later = {
            CHANGE: captions.format_change(state),
            WAITING: captions.format_waiting(*self._waiting_since),
            TITLE: captions.delivery_title(state, self.request),
        }
        set_search_attributes(
            values,
            state.spending.spend.usd,
            later,
            state.prepared.visibility.labels,
            state.prepared.visibility.extra_attributes,
        )

    async def wait_visibly(self, reason: str, pause: timedelta) -> None:
        """Wait for `pause` and show why. The time does not count as the delivery's: an outage of the forge must not use
        that up. The reason stays in the state afterwards."""
        self.state.waiting = reason
        self.show_state()
        await workflow.sleep(pause, summary=shorten(reason, 100))
        self.gates.exclude_time(pause)

    def record_verdict(self, summary: str) -> None:
        """Mark the newest step as failed in its record when its verdict is negative (red tests, or blockers of a
        review), though the step ran to its end; else do nothing."""
        if (failure := fold.negative_verdict(self.state, self.state.steps[-1].step, summary)) is not None:
            self._update_record(status="failed", summary=failure)

    def record_commit(self, commit: str, summary: str) -> None:
        """Record the commit that the newest step made, and its summary."""
        self._update_record(commit=commit, summary=summary)

    def _begin_record(self, step: str, attempt: int) -> None:
        """Add a record for a step that begins now to the state, remember when, and show it in the Web UI."""
        started = workflow.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        self.state.steps.append(StepRecord(step=step, attempt=attempt, started_at=started))
        self._since = workflow.now() - self.gates.time_waited
        self.refresh_details()

    def _end_record(self, status: str, *, summary: str = "") -> None:
        """Record how the newest step ended, and its duration, without the time it waited for people."""
        seconds = round((workflow.now() - self.gates.time_waited - self._since).total_seconds(), 1)
        self._update_record(status=status, duration_s=seconds, summary=summary)

    def _update_record(self, **changes: Any) -> None:
        self.state.steps[-1] = self.state.steps[-1].model_copy(update=changes)
