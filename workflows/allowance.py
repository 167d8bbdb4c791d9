"""A delivery's reservation in the budgets that deliveries share. It reserves a block of money at the workflow Treasury,
begins turns within it, and requests the next block before it is used up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import timedelta

from temporalio import workflow

from perdure.models.budget.ledger import LimitReached
from perdure.models.budget.treasury import TREASURY, BudgetGrant, ReserveRequest
from perdure.models.delivery.state import DeliveryState
from perdure.models.rules.allowance import Limit, paid_usd
from workflows.signals import send_signal

LOW_SHARE = 0.25
"""Share of a block that is left when the next one is requested: a turn takes seconds, an answer milliseconds."""

GRANT_SHOWN_AFTER = timedelta(seconds=10)
"""Time after which a missing answer is shown as waiting. An answer takes a fraction of a second."""

GRANT_RETRY_PAUSE, GRANT_RETRY_PAUSE_MAX = timedelta(minutes=1), timedelta(hours=1)
"""Pause before a request without an answer is sent again, at first and at most: there may be no Treasury."""


NO_ANSWER = "the treasury does not answer: it begins when a worker starts"


class Allowance:
    """The reservation of one delivery. When no shared budget covers the delivery, no method does anything that leaves a
    trace in history.

    show_waiting  context manager that shows that the delivery waits, and for what
    notify        sends a notice of an event to those who have subscribed
    """

    def __init__(
        self,
        delivery: str,
        state: DeliveryState,
        show_waiting: Callable[[str], AbstractContextManager[None]],
        notify: Callable[[str], None],
    ) -> None:
        self.delivery, self.state, self._show_waiting, self._notify = delivery, state, show_waiting, notify

    async def wait_for_grant(self) -> bool:
        """Wait until the reservation covers another turn; return True when the delivery was shown as waiting for it.

        Returns False at once when no shared budget covers the delivery, or money is left; when little is left, it
        requests the next block without waiting. When the Treasury refuses, or does not answer within GRANT_SHOWN_AFTER,
        the delivery is shown as waiting, people are notified once, and the request is sent again from time to time.
        """
        if not self._is_shared():
            return False
        if self._has_room():
            if self._is_low() and self._is_answered():
                await self._request_block()
            return False
        answered = True
        while answered and not self._has_room() and not self.state.budget.reservation.why:  # an answer can be too small
            answered = await self._wait_for_answer(GRANT_SHOWN_AFTER)
        waited, notified, patience = False, False, GRANT_RETRY_PAUSE
        while not self._has_room():
            with self._show_waiting(self.state.budget.reservation.why or NO_ANSWER):
                if not notified and (self.state.budget.reservation.why or waited):  # a Treasury may just be starting
                    self._notify("waiting")
                    notified = True
                await self._wait_for_answer(patience)
            waited = True
            patience = min(2 * patience, GRANT_RETRY_PAUSE_MAX)
        return waited

    async def reserve_for_turn(self, reached: LimitReached) -> None:
        """Record what was spent when a turn was stopped at a limit. When the limit is a shared budget, request a
        reservation for the most that the turn's next model request can cost, which was not sent; do not wait for the
        answer."""
        self.state.spending.spend = reached.spend
        if reached.limit == Limit.DAY and reached.usd:
            self.state.budget.reservation = self.state.budget.reservation.model_copy(
                update={"needs": round(reached.usd, 6), "why": ""}
            )
            await self._request_block()

    def clear_turn_need(self) -> None:
        """Remove the amount that a stopped turn needed from the state, if there is one: the turn was carried out, and
        the next turn requests what it needs itself."""
        if self.state.budget.reservation.needs:
            self.state.budget.reservation = self.state.budget.reservation.model_copy(update={"needs": 0.0})

    async def release(self) -> None:
        """Give what was not used back to the Treasury, because the delivery ends, and reset the reservation in the
        state. Does nothing when nothing was ever requested. A cancellation that comes meanwhile is ignored: it does not
        change how the delivery ends."""
        if self._is_shared() and self.state.budget.reservation.seq:
            sending = asyncio.create_task(self._send_reserve(is_end=True))
            with suppress(asyncio.CancelledError):
                await workflow.wait([sending])
            with suppress(asyncio.CancelledError):
                await sending
            self.state.budget.reservation = self.state.budget.reservation.for_retry()

    def _is_shared(self) -> bool:
        """Return True when a shared budget covers the delivery; False also when it is not prepared yet."""
        return self.state.prepared is not None and bool(self.state.prepared.limits.shared_budgets)

    def apply_grant(self, answer: BudgetGrant) -> None:
        """Record an answer of the Treasury in the state: the new ceiling, until when it holds, and the reason when it
        refuses. An answer older than the last one is ignored."""
        purse = self.state.budget.reservation
        if answer.seq < purse.answered:
            return
        self.state.budget.reservation = purse.model_copy(
            update={
                "seq": max(purse.seq, answer.seq),
                "answered": answer.seq,
                "ceiling": answer.ceiling,
                "until": answer.until,
                "granted": answer.granted or purse.granted,
                "booked": max(purse.booked, purse.reported_usd) if answer.seq >= purse.seq else purse.booked,
                "why": answer.why,
            }
        )

    def _has_room(self) -> bool:
        """Return True when the reservation is valid now, is not used up, and covers what the next turn is known to
        need."""
        purse = self.state.budget.reservation
        if purse.until is None or workflow.now() >= purse.until:
            return False
        return round(self._paid(), 6) < purse.ceiling and round(self._paid() + purse.needs, 6) <= purse.ceiling

    def _is_low(self) -> bool:
        """Return True when at most LOW_SHARE of a block is left."""
        purse = self.state.budget.reservation
        return purse.ceiling - self._paid() <= purse.granted * LOW_SHARE

    def _paid(self) -> float:
        """Return the dollars that the delivery's own turns have cost; a plan's tasks reserve for themselves."""
        return max(paid_usd(self.state) - self.state.children.usd, 0.0)

    def _is_answered(self) -> bool:
        """Return True when the newest request was answered, and not refused."""
        return (
            self.state.budget.reservation.answered >= self.state.budget.reservation.seq
            and not self.state.budget.reservation.why
        )

    def _last_answer(self) -> tuple[object, ...]:
        """Return the newest answer's number, ceiling, end of validity and reason, to be compared for noticing the next
        one."""
        purse = self.state.budget.reservation
        return purse.answered, purse.ceiling, purse.until, purse.why

    async def _wait_for_answer(self, patience: timedelta) -> bool:
        """Wait until the Treasury's answer changes, and return True. After `patience` send the request again, and
        return False.

        When the last request was granted, a new one is sent first. After a refusal it waits, instead of `patience`,
        until the refusal ends: the Treasury answers by itself once there is money.
        """
        answer_before = self._last_answer()  # taken first: the answer can come while the request is still being sent
        if self._is_answered():
            await self._request_block()
        purse = self.state.budget.reservation
        if purse.why and purse.until is not None and purse.answered >= purse.seq:
            patience = max(purse.until - workflow.now(), timedelta(0)) + GRANT_RETRY_PAUSE
        try:
            await workflow.wait_condition(
                lambda: self._last_answer() != answer_before,
                timeout=patience,
                timeout_summary="room in a budget that deliveries share",
            )
            return True
        except TimeoutError:
            await self._send_reserve()
            return False

    async def _request_block(self) -> None:
        """Request a block of money from the Treasury under a new number, which is recorded in the state; do not wait
        for the answer."""
        self.state.budget.reservation = self.state.budget.reservation.model_copy(
            update={"seq": self.state.budget.reservation.seq + 1}
        )
        await self._send_reserve()

    async def _send_reserve(self, *, is_end: bool = False) -> None:
        """Send signal `reserve` to the Treasury under the number in the state: what the delivery has paid, what it
        needs, and whether it ends. Record in the state what was reported as paid. When no Treasury runs, the signal is
        lost, without an error."""
        prepared, settled = self.state.prepared, round(self._paid(), 6)
        assert prepared is not None
        purse = self.state.budget.reservation = self.state.budget.reservation.model_copy(
            update={"reported_usd": settled}
        )
        request = ReserveRequest(
            delivery=workflow.info().workflow_id,
            seq=purse.seq,
            rules=prepared.limits.shared_budgets,
            settled=settled,
            booked=purse.booked,
            key=self.delivery,
            queue=prepared.queue,
            is_last=is_end,
            needs=0.0 if is_end else purse.needs,
        )
        # Where no Treasury runs, the signal is lost: the next one hears it when it is sent again.
        await send_signal(workflow.get_external_workflow_handle(TREASURY), "reserve", request, raises_cancel=not is_end)
