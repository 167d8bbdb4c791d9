"""A delivery's side of a fleet's budget: it reserves a block, begins turns within it, and asks for the next in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import timedelta

from temporalio import workflow

from perdure.models.ledger import Reached
from perdure.models.rules.allowance import Limit, paid
from perdure.models.state import DeliveryState
from perdure.models.treasury import TREASURY, Granted, Reserve
from workflows.telling import tell

BLOCK_AHEAD = 0.25
"""Of a block, left when the next one is asked for: a turn takes seconds, an answer milliseconds."""

GRANT_SOON = timedelta(seconds=10)
"""The answer takes a fraction of a second; only what takes longer is shown as waiting."""

GRANT_AGAIN, GRANT_AGAIN_MOST = timedelta(minutes=1), timedelta(hours=1)
"""The wait of a delivery that heard nothing before it asks again, first and at last: there may be no Treasury."""


UNHEARD = "the treasury does not answer: it begins when a worker starts"


class Allowance:
    """The reservation of one delivery. Without a rule that covers it nothing here leaves a trace in history.

    waits   shows that the delivery waits, and for what, as a context
    tell    says so to those who want to hear of it
    """

    def __init__(
        self,
        delivery: str,
        state: DeliveryState,
        waits: Callable[[str], AbstractContextManager[None]],
        tell: Callable[[str], None],
    ) -> None:
        self.delivery, self.state, self._waits, self._notify = delivery, state, waits, tell
        self._listening = False

    async def waited(self) -> bool:
        """Return when there is room for another turn: False at once or nearly so, True when it had to wait for it."""
        if not self._listen():
            return False
        if self._room():
            if self._is_low() and self._is_answered():
                await self._ask()
            return False
        heard = True
        while heard and not self._room() and not self.state.purse.why:  # an answer can be worth less than a reply was
            heard = await self._heard(GRANT_SOON)
        waited, told, patience = False, False, GRANT_AGAIN
        while not self._room():
            with self._waits(self.state.purse.why or UNHEARD):
                if not told and (self.state.purse.why or waited):  # without a Treasury there may be one in a minute
                    self._notify("waiting")
                    told = True
                await self._heard(patience)
            waited = True
            patience = min(2 * patience, GRANT_AGAIN_MOST)
        return waited

    async def refused(self, reached: Reached) -> None:
        """A request was not sent where what is reserved does not cover the most that it can cost: ask for that."""
        self.state.spend = reached.spend
        if reached.limit == Limit.DAY and reached.usd:
            self.state.purse = self.state.purse.model_copy(update={"needs": round(reached.usd, 6), "why": ""})
            await self._ask()

    def covered(self) -> None:
        """A turn was carried out: the next one asks for what it needs itself."""
        if self.state.purse.needs:
            self.state.purse = self.state.purse.model_copy(update={"needs": 0.0})

    async def give_back(self) -> None:
        """It ends: what was not used is there for others, and whatever happens now does not change how it ends."""
        if self._listen() and self.state.purse.seq:
            telling = asyncio.create_task(self._tell(ends=True))
            with suppress(asyncio.CancelledError):
                await workflow.wait([telling])
            with suppress(asyncio.CancelledError):
                await telling
            self.state.purse = self.state.purse.again()

    def _listen(self) -> bool:
        prepared = self.state.prepared
        if prepared is None or not prepared.treasury:
            return False
        if not self._listening:
            workflow.set_signal_handler("granted", self._hear)
            self._listening = True
        return True

    def _hear(self, answer: Granted) -> None:
        purse = self.state.purse
        if answer.seq < purse.answered:
            return
        self.state.purse = purse.model_copy(
            update={
                "seq": max(purse.seq, answer.seq),
                "answered": answer.seq,
                "ceiling": answer.ceiling,
                "until": answer.until,
                "granted": answer.granted or purse.granted,
                "booked": max(purse.booked, purse.told) if answer.seq >= purse.seq else purse.booked,
                "why": answer.why,
            }
        )

    def _room(self) -> bool:
        purse = self.state.purse
        if purse.until is None or workflow.now() >= purse.until:
            return False
        return round(self._paid(), 6) < purse.ceiling and round(self._paid() + purse.needs, 6) <= purse.ceiling

    def _is_low(self) -> bool:
        purse = self.state.purse
        return purse.ceiling - self._paid() <= purse.granted * BLOCK_AHEAD

    def _paid(self) -> float:
        """By its own turns: a plan's tasks reserve for themselves."""
        return max(paid(self.state) - self.state.tasks_usd, 0.0)

    def _is_answered(self) -> bool:
        return self.state.purse.answered >= self.state.purse.seq and not self.state.purse.why

    def _answer(self) -> tuple[object, ...]:
        purse = self.state.purse
        return purse.answered, purse.ceiling, purse.until, purse.why

    async def _heard(self, patience: timedelta) -> bool:
        """Wait for an answer, and ask again without one. Who was told why there is none is told when there is."""
        before = self._answer()  # the answer can come while the question is still on its way
        if self._is_answered():
            await self._ask()
        purse = self.state.purse
        if purse.why and purse.until is not None and purse.answered >= purse.seq:
            patience = max(purse.until - workflow.now(), timedelta(0)) + GRANT_AGAIN
        try:
            await workflow.wait_condition(
                lambda: self._answer() != before,
                timeout=patience,
                timeout_summary="room in a budget that deliveries share",
            )
            return True
        except TimeoutError:
            await self._tell()
            return False

    async def _ask(self) -> None:
        self.state.purse = self.state.purse.model_copy(update={"seq": self.state.purse.seq + 1})
        await self._tell()

    async def _tell(self, *, ends: bool = False) -> None:
        prepared, told = self.state.prepared, round(self._paid(), 6)
        assert prepared is not None
        purse = self.state.purse = self.state.purse.model_copy(update={"told": told})
        said = Reserve(
            delivery=workflow.info().workflow_id,
            seq=purse.seq,
            rules=prepared.treasury,
            settled=told,
            booked=purse.booked,
            key=self.delivery,
            queue=prepared.queue,
            ends=ends,
            needs=0.0 if ends else purse.needs,
        )
        # Where there is none the next one hears it again.
        await tell(workflow.get_external_workflow_handle(TREASURY), "reserve", said, heeds=not ends)
