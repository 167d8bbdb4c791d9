"""The Treasury: the workflow that divides the budgets which many deliveries share. One runs for ever, in new runs as
its history grows; what it grants and refuses is decided in perdure/models/rules/budget_grants.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from perdure.models.backlog.state import SignalClaim
from perdure.models.budget import treasury
from perdure.models.budget.ledger import Spend
from perdure.models.delivery.decisions import parse_input
from perdure.models.errors import InvalidRequest
from perdure.models.limits import LAST_TABLE_RUNS, LAST_TABLE_TIME, LAST_TABLE_TRY
from perdure.models.rules.budget_grants import BudgetAllocator
from perdure.text import shorten
from workflows.endings import invalid_request, require_no_more
from workflows.signals import find_signal_problems, send_signal
from workflows.unknown_messages import UnknownMessages

TREASURY_TICK = timedelta(minutes=30)
"""Pause between looks for overdue reservations, while there are any: 5 events each time."""

CLAIMS_AT_ONCE = 1000
"""Requests whose origin is asked at once: a thousand are 400 KB of a value, of which the server takes 2 MB."""

SPENT_TIMEOUT = timedelta(minutes=2)
"""Time limit for reading a spend log: it takes milliseconds where the host lives; where it does not, nothing else waits
for it."""


@workflow.defn
class Treasury(UnknownMessages):
    """Workflow that grants deliveries their reservations. It takes and answers by signals, because updates are limited
    to 10 at once and 2,000 a run."""

    @workflow.init
    def __init__(self, raw: Any = None, *extra_args: Any) -> None:
        self.table, self._argument_error = treasury.TreasuryTable(), ""
        try:
            require_no_more(extra_args)
            self.table = parse_input(treasury.TreasuryTable, raw)
        except InvalidRequest as error:
            self._argument_error = error.what
        if workflow.info().continued_run_id is None:  # whoever may start workflows may send any table
            self.table = treasury.TreasuryTable(previous=self.table.previous)
        self._granting = BudgetAllocator(self.table)
        self._answers: dict[str, treasury.BudgetGrant] = {}
        self._requesters: set[str] = set()
        self._early_signals: list[Callable[[], None]] | None = [] if self.table.previous else None
        self._changed = self._is_looking = False
        self._claimed: list[treasury.ReserveRequest] = []
        self._asked_at = (0, 0)

    @workflow.run
    async def run(self, raw: Any = None, *extra_args: Any) -> None:
        """Answer deliveries that ask for money, as far as their budgets have room, and settle reservations that nobody
        gives back. It never returns: a long history continues in a new run with the table. When the table names an
        ended run before this one, that run's table is restored first.

        Raises ApplicationError InvalidRequest when the argument is no TreasuryTable.
        """
        if self._argument_error:
            raise invalid_request(self._argument_error)
        if self._early_signals is not None:
            await self._restore_table(self.table.previous)
        clock = asyncio.create_task(self._settle_overdue())
        while True:
            await workflow.wait_condition(lambda: self._changed)
            self._changed = False
            await self._record_claimed()
            self._granting.begin_day(workflow.now())
            await self._send_answers(workflow.now())
            self._granting.delete_idle_leases(workflow.now())
            if workflow.info().is_continue_as_new_suggested() and not (self._changed or self._is_looking):
                clock.cancel()
                workflow.continue_as_new(self.table)

    @workflow.signal(description="Sent by deliveries: what they have paid, and room for more")
    def reserve(self, request: treasury.ReserveRequest) -> None:
        """Keep what a delivery says it has paid and asks for, and wake the loop, which asks who has sent it. While the
        table of the run before is being restored, the signal is kept and handled afterwards. A run that began before
        the server was asked records it at once."""
        if self._early_signals is not None:
            return self._early_signals.append(lambda: self.reserve(request))
        if workflow.patched("reserve_origin"):
            self._claimed.append(request)
        else:
            self._record_request(request)
        self._changed = True
        return None

    async def _record_claimed(self) -> None:
        """Record the requests that have come, as far as the server says that the delivery which each names has sent it.
        The others change nothing: who has sent one that is not found asks again, or is looked up once its time is
        over."""
        if not self._claimed:
            return
        requests, self._claimed = self._claimed, []
        after, self._asked_at = self._asked_at[0], (self._asked_at[1], workflow.info().get_current_history_length())
        for first in range(0, len(requests), CLAIMS_AT_ONCE):
            some = requests[first : first + CLAIMS_AT_ONCE]
            claims = [
                SignalClaim(signal="reserve", delivery=request.delivery, content=request.model_dump_json())
                for request in some
            ]
            for request, reason in zip(some, await find_signal_problems(claims, after), strict=True):
                if reason:
                    workflow.logger.warning("treasury: a request is ignored: %s", reason)
                else:
                    self._record_request(request)

    def _record_request(self, request: treasury.ReserveRequest) -> None:
        """Record in the table what a delivery has paid and asks for, and keep the answer that is due to it."""
        self._granting.begin_day(workflow.now())
        answer = self._granting.handle_request(request, workflow.now())
        self._answers.pop(request.delivery, None)
        if answer is not None:
            self._answers[request.delivery] = answer
        if not request.is_last:
            self._requesters.add(request.delivery)

    @workflow.signal(description="Sent by workers as they start: the budgets of their configuration")
    def rules(self, update: treasury.TreasuryRules) -> None:
        """Record the budgets of a worker's configuration, and wake the loop. While the table of the run before is being
        restored, the signal is kept and handled afterwards."""
        if self._early_signals is not None:
            return self._early_signals.append(lambda: self.rules(update))
        self._granting.add_rules(update.rules, is_configured=True)
        self._changed = True
        return None

    @workflow.signal(description='More for today: {"rule": "label:team-a", "usd": 5}')
    def add(self, raw: Any = None) -> None:
        """Add to a budget, for today only; input that is malformed or names no budget adds nothing, and the former is
        logged. While the table of the run before is being restored, the signal is kept and handled afterwards."""
        if self._early_signals is not None:
            return self._early_signals.append(lambda: self.add(raw))
        self._granting.begin_day(workflow.now())
        try:
            self._changed = self._granting.add_to_day(parse_input(treasury.DayBudgetIncrease, raw)) or self._changed
        except InvalidRequest as error:
            workflow.logger.warning("treasury: nothing was added: %s", error.what)
        return None

    @workflow.query(name="table", description="Budgets and reservations: perdure.models.budget.treasury.TreasuryTable")
    def _table(self) -> treasury.TreasuryTable:
        return self.table

    async def _restore_table(self, run_id: str) -> None:
        """Restore the table of an earlier run, which somebody has ended, by activity `last_table`; then handle the
        signals that came meanwhile.

        When it cannot be read, a warning is logged and the table is empty. A note in the table and in the Web UI says
        which. Raises CancelledError when this workflow was cancelled.
        """
        note = f"it was ended, and began again at {workflow.now().astimezone(UTC):%H:%M} UTC"
        try:
            last_table: treasury.LastTable = await workflow.execute_activity(
                "last_table",
                treasury.LastTableInput(run_id=run_id),
                result_type=treasury.LastTable,
                schedule_to_close_timeout=LAST_TABLE_TIME,
                start_to_close_timeout=LAST_TABLE_RUNS * LAST_TABLE_TRY,  # a worker can die in the middle of it
                summary="what the run before this one knew",
            )
            table = last_table.table
            note += (
                " from what it knew"
                if last_table.whole
                else " from what it knew once: what was spent since is not counted"
            )
        except ActivityError as error:
            if workflow.cancellation_reason() is not None:
                raise asyncio.CancelledError from error
            workflow.logger.warning("treasury: the run before this one cannot be read: %s", error.cause)
            table = treasury.TreasuryTable()
            note += "; what was spent before is not counted, because the run that knew it cannot be read"
        self.table, self._granting = table, BudgetAllocator(table)
        early_signals, self._early_signals = self._early_signals or [], None
        for handle_signal in early_signals:
            handle_signal()
        self._granting.begin_day(workflow.now())
        self.table.note = note
        workflow.set_current_details(note)
        self._changed = True

    async def _send_answers(self, now: datetime) -> None:
        """Send all answers that are due at once, and forget them: answers to requests that need no wait, grants to
        deliveries that wait and whose turn it is, and refusals to those that have just asked and get nothing yet."""
        answers = self._answers | self._granting.grant_waiting(now)
        for delivery in sorted(self._requesters - answers.keys()):
            if (refusal := self._granting.refusal_answer(delivery, now)) is not None:
                answers[delivery] = refusal
        self._answers, self._requesters = {}, set()
        await asyncio.gather(*(self._send_answer(delivery, answer) for delivery, answer in sorted(answers.items())))

    async def _send_answer(self, delivery: str, answer: treasury.BudgetGrant) -> None:
        """Send an answer to a delivery, by signal `granted`; when the delivery has ended, take back what it was granted
        instead."""
        if not await send_signal(workflow.get_external_workflow_handle(delivery), "granted", answer):
            self._granting.revoke_grant(delivery, answer.granted, workflow.now())
            self._changed = True

    async def _settle_overdue(self) -> None:
        """Settle overdue reservations, for ever. It looks every TREASURY_TICK while any money is reserved, and at
        midnight (UTC) at the latest; when deliveries only wait, at midnight. While there are neither, it makes no event
        in history."""
        while True:
            await workflow.wait_condition(
                lambda: any(reservation.reserved_usd or reservation.waits for reservation in self.table.leases.values())
            )
            now = workflow.now()
            midnight = datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), datetime.min.time(), UTC)
            if self._has_reservations():
                await workflow.sleep(min(TREASURY_TICK, midnight - now), summary="reservations that are overdue")
            else:
                with suppress(TimeoutError):
                    await workflow.wait_condition(
                        self._has_reservations, timeout=midnight - now, timeout_summary="a new day"
                    )
            overdue = sorted(self._granting.overdue_leases(workflow.now()).items())
            self._is_looking = True  # while everybody else is answered
            await asyncio.gather(*(self._settle_reservation(delivery, lease) for delivery, lease in overdue))
            self._is_looking, self._changed = False, True

    def _has_reservations(self) -> bool:
        return any(lease.reserved_usd for lease in self.table.leases.values())

    async def _settle_reservation(self, delivery: str, lease: treasury.BudgetLease) -> None:
        """Settle the overdue reservation of a delivery that has gone silent by what it has paid, which activity `spent`
        reads from the spend log of its host. When the host does not answer, a warning is logged and all that was
        reserved counts as spent."""
        paid, until = None, lease.until
        try:
            spend = await workflow.execute_activity(
                "spent",
                treasury.SpentInput(delivery=lease.key),
                result_type=Spend,
                task_queue=lease.queue,
                schedule_to_close_timeout=SPENT_TIMEOUT,
                summary=shorten(f"what {delivery} has paid", 100),
            )
            paid = spend.counted_usd
        except ActivityError as error:
            workflow.logger.warning("treasury: %s: what it held counts as spent: %s", delivery, error.cause)
        self._granting.settle_overdue(delivery, paid, until)
