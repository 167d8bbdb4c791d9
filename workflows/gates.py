"""A delivery's gates, where a person decides, and its waits: for decisions, holds, rewinds and limits. All of it is
workflow state, so that a wait survives whatever happens, at no cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from temporalio import workflow

from perdure.models.delivery.decisions import DecisionRecord, Gate, GateVerdict, PendingDecision, Question, UserMessage
from perdure.models.delivery.result import Reason
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.work import EscalationSettings
from perdure.models.limits import NOTES_KEPT
from perdure.models.phases import Step
from perdure.models.rules.allowance import Limit, reached_limit, time_left, time_over_reason
from perdure.models.rules.inbox import record_decision
from perdure.models.webui import captions
from workflows.endings import not_delivered, raise_if_cancelled

PREPARE_TIME = timedelta(hours=24)
"""Time limit before the delivery's own is known: for fetching, setup and preflight, and waiting for a worker."""

RESET_COMES = timedelta(seconds=60)
"""Longest time between the announcement of a rewind and its reset: two calls of one command."""

REMIND_AFTER, REMIND_LATER = timedelta(days=1), timedelta(weeks=1)
REMINDERS = 7
"""Number of daily reminders of a decision that nobody makes; after them come weekly ones, for ever."""


class DeliveryGates:
    """The gates of one delivery, where a person decides, and its limits, which only people can raise.

    show          brings what is seen from outside up to date
    notify        sends a notice that something waits: `waiting`, `reminder`
    announce      tells others what a person has to decide; None: it is decided
    time_waited   how long the delivery has waited, in this run
    """

    def __init__(
        self,
        state: DeliveryState,
        show: Callable[[], None],
        notify: Callable[[str], None],
        announce: Callable[[PendingDecision | None], Awaitable[None]],
    ) -> None:
        self.state, self._show, self._notify, self._announce = state, show, notify, announce
        state.budget.started = state.budget.started or workflow.now()
        self._started = state.budget.started
        self.time_waited = timedelta(0)

    async def wait_until_ready(self, *, paying: bool = False) -> None:
        """Wait until the next piece of work may begin: nobody holds the delivery, and no limit is reached. When one is,
        a person is asked to raise it.

        Raises CancelledError when the delivery was cancelled, DeliveryStopped when a limit is not raised. `paying`: the
        work is a model's reply, which costs money.
        """
        raise_if_cancelled()
        await self._wait_while_held()
        while (reached_limit := self._reached_limit(paying)) is not None:
            await self._ask_to_raise(*reached_limit)
            await self._wait_while_held()  # somebody may have thought of it while it waited

    async def ask_for_time(self) -> bool:
        """Ask a person for more time, for work that was ended because its time was over; return True once there is more
        and the work may begin. Returns False, and asks nothing, when the delivery is configured to ask nobody or is not
        prepared.

        Raises DeliveryStopped when they reject it.
        """
        state, prepared = self.state, self.state.prepared
        if prepared is None or not prepared.decisions.asks:
            return False
        if self._reached_limit(paying=False) is None:  # it failed, and there was no time for another try
            await self._ask_to_raise(Limit.TIME, time_over_reason(state, prepared))
        await self.wait_until_ready()
        return True

    async def ask_for_budget(self, limit: Limit, reason: str) -> None:
        """Ask a person to raise the limit at which a turn was stopped, and wait for the decision. Does nothing for the
        day's budget, which the Treasury grants, nor when a limit is reached already: `wait_until_ready` asks about that
        before the next turn. Raises DeliveryStopped when they reject it, or nobody is asked."""
        if limit is not Limit.DAY and self._reached_limit(paying=True) is None:
            await self._ask_to_raise(limit, reason)

    async def _ask_to_raise(self, limit: Limit, reason: str) -> None:
        """Ask a person to raise a limit that is reached, and wait for the decision. An approved limit of price is
        marked in the state: from then on the delivery goes on without known prices. Raises DeliveryStopped when they
        reject it, or the delivery is configured to ask nobody."""
        state, prepared = self.state, self.state.prepared
        if prepared is None or not prepared.decisions.asks:
            raise not_delivered(Reason.LIMITS if limit is Limit.TIME else Reason.BUDGET, reason)
        state.budget.breaches += 1
        options = ("approve", "reject") if limit is Limit.PRICE else ("add_budget", "reject")
        decided = await self.ask_person(Gate.BUDGET, str(state.budget.breaches), reason, options, limit=str(limit))
        if decided.verdict is GateVerdict.REJECTED:
            raise not_delivered(Reason.BUDGET, f"{reason}; rejected: {decided.note}")
        if limit is Limit.PRICE:
            state.budget.unpriced, state.budget.unpriced_models = True, prepared.agents.unpriced

    async def ask_to_try_again(self, reason: str, people_to_ask: EscalationSettings) -> bool:
        """Ask a person whether work that was cut off again and again is tried once more; return True, once work may
        begin, when they approve. Returns False when `people_to_ask` says that nobody is asked, or nobody decides in
        time.

        Raises DeliveryStopped when they reject it.
        """
        state = self.state
        if not people_to_ask.asks:
            return False
        state.gates.deaths += 1
        subject = f"{state.turns.checkpoint[:8] or Step.PREPARE}-{state.gates.deaths}"
        after = timedelta(seconds=people_to_ask.expiry_s) if people_to_ask.expiry_s else None
        prompt = f"{reason}; approve to try again, reject to end it"
        decided = await self.ask_person(Gate.DEATHS, subject, prompt, ("approve", "reject"), expires_after=after)
        if decided.verdict is GateVerdict.REJECTED:
            raise not_delivered(Reason.LIMITS, f"{reason}; rejected: {decided.note}")
        await self.wait_until_ready()
        return decided.verdict is GateVerdict.APPROVED

    async def ask_open_question(self) -> None:
        """Ask a person the question that an agent has left open, in this run or an earlier one, wait for the answer,
        and put it before all pending messages, so that the next turn gets it. Does nothing when no question is open."""
        state = self.state
        if (question := state.gates.question) is None:
            return
        prompt, subject = question.line, state.gates.question_id
        decided = await self.ask_person(Gate.QUESTION, subject, prompt, ("answer",), question=question)
        state.messages.pending = (
            UserMessage(id=f"answer-{subject}", text=decided.note, question=question.text),
            *state.messages.pending,
        )
        state.gates.question, state.gates.question_id = None, ""

    async def ask_person(
        self,
        gate: Gate,
        subject: str,
        prompt: str,
        options: tuple[str, ...],
        *,
        question: Question | None = None,
        limit: str = "",
        expires_after: timedelta | None = None,
    ) -> DecisionRecord:
        """Ask a person for a decision, wait for it as long as it takes, and return it. A decision that was made before
        is returned at once.

        subject        names what is decided at this gate; new for whatever has not been decided
        prompt         what is asked, in one line
        options        names of the updates that decide it
        limit          the limit that is reached, at gate budget
        expires_after  after this time the decision is recorded as expired and returned; None: never

        While it waits, the details, the memo, notices, the issue and the backlog say so, and the time does not count.
        """
        state, since = self.state, workflow.now()
        pending = PendingDecision(
            gate=gate,
            target=subject,
            summary=prompt,
            since=since,
            expires=since + expires_after if expires_after else None,
            question=question,
            options=options,
            limit=limit,
        )
        if pending.key not in state.gates.decided:
            state.gates.pending_decision = pending
            workflow.upsert_memo({"asked": pending.model_dump(mode="json")})  # readable without a worker
            with self.show_waiting(prompt):
                self._notify("waiting")
                await self._announce(pending)
                await self._wait_for_decision(pending)
            await self._announce(None)
        return state.gates.decided[pending.key]

    async def _wait_for_decision(self, pending: PendingDecision) -> None:
        """Wait until a decision is in the state, and send reminder notices meanwhile; once its time is over, record it
        as expired. Raises CancelledError when the delivery was cancelled, also where the last activity ended well
        before it heard of that: nothing else would end the wait then."""
        if workflow.cancellation_reason() is not None and workflow.patched("cancel_at_gate"):
            raise_if_cancelled()
        reminders = 0
        while pending.key not in self.state.gates.decided:
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    lambda: pending.key in self.state.gates.decided,
                    timeout=self._next_pause(pending.expires, reminders),
                    timeout_summary=captions.wait_caption(pending.summary),
                )
                return
            if pending.expires is not None and workflow.now() >= pending.expires:
                record_decision(
                    self.state, pending, DecisionRecord(verdict=GateVerdict.EXPIRED, decided_at=workflow.now())
                )
            else:
                reminders += 1
                self._notify("reminder")

    def _next_pause(self, expires: datetime | None, reminders: int) -> timedelta:
        """Return how long to wait for a decision until the next reminder is due or its time is over, whichever comes
        first."""
        pauses = [REMIND_AFTER if reminders < REMINDERS else REMIND_LATER]
        pauses += [max(expires - workflow.now(), timedelta(seconds=1))] if expires is not None else []
        return min(pauses)

    async def _wait_for_reset(self) -> None:
        """Wait for the server's reset that a rewind has announced, which ends this run. When it does not come within
        RESET_COMES, add a note and forget the rewind."""
        state = self.state
        with self.show_waiting(f"is about to be rewound to {state.gates.rewinding_to}"), suppress(TimeoutError):
            await workflow.wait_condition(lambda: not state.gates.rewinding_to, timeout=RESET_COMES)
        if state.gates.rewinding_to:
            state.notes = (*state.notes, f"the rewind to {state.gates.rewinding_to} did not happen")[-NOTES_KEPT:]
            state.gates.rewinding_to = ""

    async def _wait_while_held(self) -> None:
        """Wait for the reset of an announced rewind, if there is one, then as long as somebody holds the delivery; both
        are shown as waiting."""
        state = self.state
        if state.gates.rewinding_to:
            await self._wait_for_reset()
        if state.gates.hold_reason:
            with self.show_waiting(state.gates.hold_reason):
                await workflow.wait_condition(lambda: not state.gates.hold_reason)

    @contextmanager
    def show_waiting(self, reason: str) -> Iterator[None]:
        """Show that the delivery waits for `reason` while the block runs; afterwards remove that and the pending
        decision, and do not count the time as the delivery's. An exception in the block passes through.

        A run that is evicted from the worker's memory ends the block by GeneratorExit: nothing is shown or counted
        then.
        """
        since = workflow.now()
        self.state.waiting = reason
        self._show()
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException:
            self._end_waiting(since)
            raise
        self._end_waiting(since)

    def _end_waiting(self, since: datetime) -> None:
        """Remove the pending decision and what is waited for, from memo and state, show that, and exclude the time
        since `since` from the delivery's own."""
        if self.state.gates.pending_decision is not None:
            workflow.upsert_memo({"asked": None})
        self.state.gates.pending_decision, self.state.waiting = None, ""
        self.exclude_time(workflow.now() - since)
        self._show()

    def time_left(self) -> timedelta:
        """Return how long one piece of work may take: what is left of the delivery's time limit, and at least a second,
        so that work is ended by the limits, with their own message. Before the limits are known: what is left of
        PREPARE_TIME.

        Raises DeliveryStopped when nothing is left and the delivery is configured to ask nobody.
        """
        prepared = self.state.prepared
        if prepared is None:
            return PREPARE_TIME - (workflow.now() - self._started)
        remaining = time_left(self.state, prepared, self._started, workflow.now())
        if remaining <= timedelta(0) and not prepared.decisions.asks:
            raise not_delivered(Reason.LIMITS, time_over_reason(self.state, prepared))
        return max(remaining, timedelta(seconds=1))

    def exclude_time(self, duration: timedelta) -> None:
        """Exclude time from what counts as used: by moving the delivery's start, and by adding to `time_waited`, which
        the step in progress subtracts."""
        self.time_waited += duration
        self._started += duration
        self.state.budget.started = self._started

    def exclude_time_since(self, since: datetime) -> None:
        """Exclude the time since `since`, after which a rewind throws the work away; never more than the delivery has
        used."""
        now = workflow.now()
        self.exclude_time(max(timedelta(0), min(now - since, now - self._started)))

    def _reached_limit(self, paying: bool) -> tuple[Limit, str] | None:
        """Return the limit that is reached, and a message that says so; None when none is reached, or limits are not
        known yet."""
        prepared = self.state.prepared
        if prepared is None:
            return None
        return reached_limit(self.state, prepared, self._started, workflow.now(), paying=paying)
