"""A delivery's questions to people. All of it is workflow state: a wait survives whatever happens, at no cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

from temporalio import workflow

from perdure.models.decisions import Asked, Decided, Gate, Question, Said, Verdict
from perdure.models.limits import NOTES_KEPT
from perdure.models.phases import Step
from perdure.models.result import Reason
from perdure.models.rules.allowance import Limit, breach, time_left, time_over
from perdure.models.rules.inbox import count
from perdure.models.state import DeliveryState
from perdure.models.webui import captions
from perdure.models.work import Asking
from workflows.endings import heed_cancellation, not_delivered

PREPARE_TIME = timedelta(hours=24)
"""Before a delivery's own time limit is known: fetching, setup and preflight, and waiting for a worker."""

RESET_COMES = timedelta(seconds=60)
"""Between the word of a rewind and its reset: two calls of one command."""

REMIND_AFTER, REMIND_LATER = timedelta(days=1), timedelta(weeks=1)
REMINDERS = 7
"""A gate that nobody has heard of waits for ever: it reminds daily for a week, then weekly."""


class People:
    """The questions of one delivery to people, and its limits, which only they can raise.

    show    brings what is seen from outside up to date
    waited  how long it has waited, in this run
    tell    says to those who want to hear of it that something waits: waiting, reminder
    comment  says where the request came from what it waits for; empty: it goes on
    backlog  says so to the backlog it is part of; None: it goes on
    """

    def __init__(self, state: DeliveryState, show: Callable[[], None], tell: Callable[[str], None]) -> None:
        self.state, self._show, self._tell = state, show, tell
        state.started = state.started or workflow.now()
        self.comment: Callable[[str], Awaitable[None]] = _nothing
        self.backlog: Callable[[Asked | None], Awaitable[None]] = _nothing
        self._started = state.started
        self.waited = timedelta(0)

    async def ready(self, *, paying: bool = False) -> None:
        """Before anything else begins: nobody cancelled or holds it, and no limit is reached, or somebody raised it.

        paying  it is a model's reply, which costs money
        """
        heed_cancellation()
        await self._unheld()
        while (over := self._breach(paying)) is not None:
            await self._over(*over)
            await self._unheld()  # somebody may have thought of it while it waited

    async def more_time(self) -> bool:
        """Ask for more time, if need be, for work that did not end in it; True where there is more now."""
        state, prepared = self.state, self.state.prepared
        if prepared is None or not prepared.asks:
            return False
        if self._breach(paying=False) is None:  # it failed, and another try had no room before the end
            await self._over(Limit.TIME, time_over(state, prepared))
        await self.ready()
        return True

    async def more_money(self, limit: Limit, words: str) -> None:
        """Ask for more of a limit, for a turn that was stopped there. Of a day's it is reserved elsewhere."""
        if limit is not Limit.DAY and self._breach(paying=True) is None:
            await self._over(limit, words)

    async def _over(self, limit: Limit, words: str) -> None:
        """A limit is reached: a person allows more, or it ends here."""
        state, prepared = self.state, self.state.prepared
        if prepared is None or not prepared.asks:
            raise not_delivered(Reason.LIMITS if limit is Limit.TIME else Reason.BUDGET, words)
        state.breaches += 1
        options = ("approve", "reject") if limit is Limit.PRICE else ("add_budget", "reject")
        decided = await self.ask(Gate.BUDGET, str(state.breaches), words, options, limit=str(limit))
        if decided.verdict is Verdict.REJECTED:
            raise not_delivered(Reason.BUDGET, f"{words}; rejected: {decided.note}")
        state.unpriced = state.unpriced or limit is Limit.PRICE

    async def goes_on(self, words: str, asking: Asking) -> bool:
        """True when work that was cut off again and again is tried once more, as a person says; false where nobody is
        asked, or nobody has answered in time."""
        state = self.state
        if not asking.asks:
            return False
        state.deaths += 1
        of = f"{state.checkpoint[:8] or Step.PREPARE}-{state.deaths}"
        after = timedelta(seconds=asking.expiry_s) if asking.expiry_s else None
        asked = f"{words}; approve to try again, reject to end it"
        decided = await self.ask(Gate.DEATHS, of, asked, ("approve", "reject"), expires_after=after)
        if decided.verdict is Verdict.REJECTED:
            raise not_delivered(Reason.LIMITS, f"{words}; rejected: {decided.note}")
        await self.ready()
        return decided.verdict is Verdict.APPROVED

    async def answered(self) -> None:
        """Put what an agent asked to a person, also by the run that goes on after this one; its next turn gets the
        answer."""
        state = self.state
        if (question := state.question) is None:
            return
        words, of = f"question: {question.text}"[:200], state.question_of
        decided = await self.ask(Gate.QUESTION, of, words, ("answer",), question=question)
        state.said = (Said(id=f"answer-{of}", text=decided.note, about=question.text), *state.said)
        state.question, state.question_of = None, ""

    async def ask(
        self,
        gate: Gate,
        of: str,
        words: str,
        options: tuple[str, ...],
        *,
        question: Question | None = None,
        limit: str = "",
        expires_after: timedelta | None = None,
    ) -> Decided:
        """The decision, waited for as long as it takes. `of` is new for whatever has not been decided."""
        state, since = self.state, workflow.now()
        asked = Asked(
            gate=gate,
            of=of,
            words=words,
            since=since,
            expires=since + expires_after if expires_after else None,
            question=question,
            options=options,
            limit=limit,
        )
        if asked.key not in state.decided:
            state.asked = asked
            workflow.upsert_memo({"asked": asked.model_dump(mode="json")})  # read by those whom no worker answers
            with self.waits(words):
                self._tell("waiting")
                await self.comment(words)
                await self.backlog(asked)
                await self._decision(asked)
            await self.comment("")
            await self.backlog(None)
        return state.decided[asked.key]

    async def _decision(self, asked: Asked) -> None:
        reminded = 0
        while asked.key not in self.state.decided:
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    lambda: asked.key in self.state.decided,
                    timeout=self._until(asked.expires, reminded),
                    timeout_summary=captions.of_wait(asked.words),
                )
                return
            if asked.expires is not None and workflow.now() >= asked.expires:
                count(self.state, asked, Decided(verdict=Verdict.EXPIRED, at=workflow.now()))
            else:
                reminded += 1
                self._tell("reminder")

    def _until(self, expires: datetime | None, reminded: int) -> timedelta:
        pauses = [REMIND_AFTER if reminded < REMINDERS else REMIND_LATER]
        pauses += [max(expires - workflow.now(), timedelta(seconds=1))] if expires is not None else []
        return min(pauses)

    async def _left(self) -> None:
        """A reset is on its way, which ends this run here. Where it does not come, it goes on and says so."""
        state = self.state
        with self.waits(f"is about to be rewound to {state.leaving}"), suppress(TimeoutError):
            await workflow.wait_condition(lambda: not state.leaving, timeout=RESET_COMES)
        if state.leaving:
            state.notes = (*state.notes, f"the rewind to {state.leaving} did not happen")[-NOTES_KEPT:]
            state.leaving = ""

    async def _unheld(self) -> None:
        state = self.state
        if state.leaving:
            await self._left()
        if state.held:
            with self.waits(state.held):
                await workflow.wait_condition(lambda: not state.held)

    @contextmanager
    def waits(self, words: str) -> Iterator[None]:
        """It waits, seen from outside, and not on the delivery's time. A run that leaves the worker's memory does so
        by GeneratorExit: it says nothing more here."""
        since = workflow.now()
        self.state.waiting = words
        self._show()
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException:
            self._waited(since)
            raise
        self._waited(since)

    def _waited(self, since: datetime) -> None:
        if self.state.asked is not None:
            workflow.upsert_memo({"asked": None})
        self.state.asked, self.state.waiting = None, ""
        self.give_back(workflow.now() - since)
        self._show()

    def time_left(self) -> timedelta:
        """For one piece of work: at least a second, so that it is the limits that end it, in their own words."""
        prepared = self.state.prepared
        if prepared is None:
            return PREPARE_TIME - (workflow.now() - self._started)
        left = time_left(self.state, prepared, self._started, workflow.now())
        if left <= timedelta(0) and not prepared.asks:
            raise not_delivered(Reason.LIMITS, time_over(self.state, prepared))
        return max(left, timedelta(seconds=1))

    def give_back(self, waited: timedelta) -> None:
        """Waiting is not the delivery's time, nor that of the step in which it waits."""
        self.waited += waited
        self._started += waited
        self.state.started = self._started

    def forget(self, since: datetime) -> None:
        """It was rewound to what it did then: of its time no more is used than there was."""
        now = workflow.now()
        self.give_back(max(timedelta(0), min(now - since, now - self._started)))

    def _breach(self, paying: bool) -> tuple[Limit, str] | None:
        prepared = self.state.prepared
        if prepared is None:
            return None
        return breach(self.state, prepared, self._started, workflow.now(), paying=paying)


async def _nothing(_: object) -> None:
    """Tell nobody."""
