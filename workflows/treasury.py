"""The keeper of budgets that many deliveries share: one run goes on for ever, in new runs as its history grows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from perdure.models import treasury
from perdure.models.decisions import understood
from perdure.models.errors import InvalidRequest
from perdure.models.ledger import Spend
from perdure.models.limits import LAST_TABLE_RUNS, LAST_TABLE_TIME, LAST_TABLE_TRY
from perdure.models.rules.granting import Granting

TREASURY_TICK = timedelta(minutes=30)
"""The Treasury's pause between looks for overdue reservations, while there are any: 5 events each time."""

SPENT_TIME = timedelta(minutes=2)
"""To read a spend log takes milliseconds where the host lives; where it does not, nothing else waits for it."""


@workflow.defn
class Treasury:
    """Takes and answers by signals, because updates are limited to 10 at once and 2,000 a run (holes.md H28)."""

    @workflow.init
    def __init__(self, table: treasury.Table | None = None) -> None:
        self.table = table or treasury.Table()
        self._granting = Granting(self.table)
        self._answers: dict[str, treasury.Granted] = {}
        self._asked: set[str] = set()
        self._early: list[Callable[[], None]] | None = [] if self.table.previous else None
        self._changed = self._looking = False

    @workflow.run
    async def run(self, table: treasury.Table | None = None) -> None:
        """Answer whoever asked, as far as there is room; look for what nobody gives back. It never ends."""
        if self._early is not None:
            await self._take_up(self.table.previous)
        clock = asyncio.create_task(self._clock())
        while True:
            await workflow.wait_condition(lambda: self._changed)
            self._changed = False
            self._granting.begin_day(workflow.now())
            await self._answer(workflow.now())
            self._granting.forget(workflow.now())
            if workflow.info().is_continue_as_new_suggested() and not (self._changed or self._looking):
                clock.cancel()
                workflow.continue_as_new(self.table)

    @workflow.signal(description="Sent by deliveries: what they have paid, and room for more")
    def reserve(self, said: treasury.Reserve) -> None:
        if self._early is not None:
            return self._early.append(lambda: self.reserve(said))
        self._granting.begin_day(workflow.now())
        answer = self._granting.hear(said, workflow.now())
        self._answers.pop(said.delivery, None)
        if answer is not None:
            self._answers[said.delivery] = answer
        if not said.ends:
            self._asked.add(said.delivery)
        self._changed = True
        return None

    @workflow.signal(description="Sent by workers as they start: the budgets of their configuration")
    def rules(self, said: treasury.Rules) -> None:
        if self._early is not None:
            return self._early.append(lambda: self.rules(said))
        self._granting.know(said.rules, sure=True)
        self._changed = True
        return None

    @workflow.signal(description='More for today: {"rule": "label:team-a", "usd": 5}')
    def add(self, said: Any = None) -> None:
        if self._early is not None:
            return self._early.append(lambda: self.add(said))
        self._granting.begin_day(workflow.now())
        try:
            self._changed = self._granting.add(understood(treasury.Add, said)) or self._changed
        except InvalidRequest as error:
            workflow.logger.warning("treasury: nothing was added: %s", error.what)
        return None

    @workflow.query(name="table", description="Budgets and reservations: perdure.models.treasury.Table")
    def _table(self) -> treasury.Table:
        return self.table

    async def _take_up(self, run_id: str) -> None:
        """Somebody ended the run before this one: go on from what it knew, and only then hear what is said."""
        note = f"it was ended, and began again at {workflow.now().astimezone(UTC):%H:%M} UTC"
        try:
            last: treasury.LastTable = await workflow.execute_activity(
                "last_table",
                treasury.LastTableInput(run_id=run_id),
                result_type=treasury.LastTable,
                schedule_to_close_timeout=LAST_TABLE_TIME,
                start_to_close_timeout=LAST_TABLE_RUNS * LAST_TABLE_TRY,  # a worker can die in the middle of it
                summary="what the run before this one knew",
            )
            table = last.table
            note += (
                " from what it knew" if last.whole else " from what it knew once: what was spent since is not counted"
            )
        except ActivityError as error:
            if workflow.cancellation_reason() is not None:
                raise asyncio.CancelledError from error
            workflow.logger.warning("treasury: the run before this one cannot be read: %s", error.cause)
            table = treasury.Table()
            note += "; what was spent before is not counted, because the run that knew it cannot be read"
        self.table, self._granting = table, Granting(table)
        early, self._early = self._early or [], None
        for hear in early:
            hear()
        self._granting.begin_day(workflow.now())
        self.table.note = note
        workflow.set_current_details(note)
        self._changed = True

    async def _answer(self, now: datetime) -> None:
        """Those whose turn it is, and those that have just asked and must wait; all at once."""
        answers = self._answers | self._granting.serve(now)
        for delivery in sorted(self._asked - answers.keys()):
            if (refused := self._granting.refused(delivery, now)) is not None:
                answers[delivery] = refused
        self._answers, self._asked = {}, set()
        await asyncio.gather(*(self._tell(delivery, answer) for delivery, answer in sorted(answers.items())))

    async def _tell(self, delivery: str, answer: treasury.Granted) -> None:
        try:
            await workflow.get_external_workflow_handle(delivery).signal("granted", answer)
        except ApplicationError:  # it has ended meanwhile
            self._granting.take_back(delivery, answer.granted, workflow.now())
            self._changed = True

    async def _clock(self) -> None:
        """Ticks while anybody holds anything; while all wait, at midnight; otherwise no event is made."""
        while True:
            await workflow.wait_condition(lambda: any(one.held or one.waits for one in self.table.leases.values()))
            now = workflow.now()
            midnight = datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), datetime.min.time(), UTC)
            if self._held():
                await workflow.sleep(min(TREASURY_TICK, midnight - now), summary="reservations that are overdue")
            else:
                with suppress(TimeoutError):
                    await workflow.wait_condition(self._held, timeout=midnight - now, timeout_summary="a new day")
            overdue = sorted(self._granting.overdue(workflow.now()).items())
            self._looking = True  # while everybody else is answered
            await asyncio.gather(*(self._found(delivery, lease) for delivery, lease in overdue))
            self._looking, self._changed = False, True

    def _held(self) -> bool:
        return any(lease.held for lease in self.table.leases.values())

    async def _found(self, delivery: str, lease: treasury.BudgetLease) -> None:
        """Find what a delivery that holds something and is silent has paid: its host's spend log knows, whatever became
        of the delivery. Where the host does not answer, what it held counts as spent."""
        paid, until = None, lease.until
        try:
            spend = await workflow.execute_activity(
                "spent",
                treasury.SpentInput(delivery=lease.key),
                result_type=Spend,
                task_queue=lease.queue,
                schedule_to_close_timeout=SPENT_TIME,
                summary=f"what {delivery} has paid"[:100],
            )
            paid = spend.paid
        except ActivityError as error:
            workflow.logger.warning("treasury: %s: what it held counts as spent: %s", delivery, error.cause)
        self._granting.found(delivery, paid, until)
