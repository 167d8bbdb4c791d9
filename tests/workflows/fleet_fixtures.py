"""Deliveries under one budget of the day, and a server whose clocks can be moved on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.workflow_lookup import last_table
from perdure.client import budgets as treasury
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.budget.treasury import TREASURY, BudgetRule, SpentInput
from perdure.models.delivery.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.delivery.work import CloseInput, CloseResult
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from tests.deliveries import Script
from tests.homes import origin_activities
from tests.temporal_server import bare_server
from tests.waiting import patient
from workflows import WORKFLOWS

RULE = "label:team-a"
REPLY_USD = 0.2

RUN_EVENTS = 60
"""After which a new run is suggested: every test here sees the Treasury go on in several."""


class Fleet(Script):
    """Deliveries that take `turns` turns of $0.20 each; `paid`: what each has really paid, as in its spend log."""

    def __init__(self) -> None:
        super().__init__()
        self.phases = (Phase.BUILD,)
        self.settings = {"asks": True, "budget_usd": 1000.0, "shared_budgets": {RULE: 5.0}}
        self.paid: dict[str, float] = {}
        self.turns = 5
        self.turn = self.works
        self.last = 0
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def total(self) -> float:
        return round(sum(self.paid.values()), 6)

    async def works(self, work: TurnInput) -> TurnResult:
        await self.gate.wait()
        if self.last and work.turn > self.last:
            await asyncio.Event().wait()
        paid = self.paid[work.delivery] = round(self.paid.get(work.delivery, 0) + REPLY_USD, 6)
        done = Outcome(ending=Ending.DONE, summary="built") if work.turn >= self.turns else None
        usage = Usage(cost_usd=REPLY_USD)
        return TurnResult(checkpoint=f"c{work.turn}", summary="on", usage=usage, spend=Spend(usd=paid), outcome=done)

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn
        async def spent(work: SpentInput) -> Spend:
            self.asked.append(work.delivery)
            return Spend(usd=self.paid.get(work.delivery, 0.0))

        @activity.defn(name="close")
        async def close(work: CloseInput) -> CloseResult:
            return CloseResult(spend=Spend(usd=self.paid.get(work.delivery, 0.0)))

        others = [one for one in super().activities() if one.__name__ != "close"]
        return [*others, spent, close, last_table, *origin_activities()]


@contextmanager
def clock_server(log: Path) -> Iterator[str]:
    """A server whose workflows' clocks can be moved on; its address."""
    settings = ("frontend.WorkflowTimeSkippingEnabled=true", f"limit.historyCount.suggestContinueAsNew={RUN_EVENTS}")
    with bare_server(log, *settings) as address:
        yield address


@asynccontextmanager
async def shared(client: Client, fleet: Fleet, usd: float) -> AsyncIterator[WorkflowHandle[Any, Any]]:
    """A Treasury of its own for the test; ended afterwards, because its id is the only one."""
    async with asyncio.timeout(patient(150)):
        fleet.settings["shared_budgets"] = {RULE: usd}
        await client.start_workflow(
            treasury.TREASURY_WORKFLOW, id=TREASURY, task_queue=TASK_QUEUE
        )  # not from the last test's
        await treasury.put_rules(client, [BudgetRule(label="team-a", usd_per_day=usd)])
        handle = client.get_workflow_handle(TREASURY)
        try:
            yield handle
        finally:
            with suppress(RPCError):  # it was ended
                await handle.terminate()


@asynccontextmanager
async def at_work(client: Client, fleet: Fleet, *more: Callable[..., Any]) -> AsyncIterator[None]:
    doing = [*fleet.activities(), *more]
    async with Worker(client, task_queue=TASK_QUEUE, workflows=WORKFLOWS, activities=doing):
        yield
