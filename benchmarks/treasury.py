"""What a fleet's budget costs: events in the Treasury's history, with many deliveries at once on a real server.

`make bench-treasury`: DELIVERIES deliveries (50) of TURNS turns (30) at $0.10 a turn under one budget that is enough
for half of them; when all that are left wait, more is added. Workflows, server and signals are real, the activities
only say what they cost. Printed are events by what they are about, events a block, the overspend against the promise
(one reply a delivery), and what a day of blocks comes to. The exit code is 1 when the promise is broken, or when a day
in which each of the deliveries uses BLOCKS_EACH blocks (6: more than its own budget of $5) has 5,000 events or more.

`--day` measures such a day instead of computing it: the deliveries begin evenly over 24 hours, take two hours and 60
turns each, and the Treasury's clock is moved on with them, ten minutes at a time. The exit code is 1 when its history
has 5,000 events or more, over all its runs.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from temporalio import activity
from temporalio.client import Client
from temporalio.testing import TimeSkipper
from temporalio.worker import Worker

from perdure.client import Perdure
from perdure.client import budgets as treasury
from perdure.local.places import temporal_binary
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.budget.treasury import TREASURY, BudgetRule, SpentInput, TreasuryTable
from perdure.models.delivery.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from perdure.plugin import perdure_plugin
from tests.deliveries import Script
from workflows import WORKFLOWS
from workflows.treasury import TREASURY_TICK

DELIVERIES = int(os.environ.get("DELIVERIES", "50"))
TURNS = int(os.environ.get("TURNS", "30"))
REPLY_USD, BLOCKS_EACH, MOST_EVENTS = 0.1, 6, 5000
SLOT, SLOTS, SLOTS_EACH, TURNS_A_SLOT = timedelta(minutes=10), 144, 12, 5
DAY_USD = round(DELIVERIES * SLOTS_EACH * TURNS_A_SLOT * REPLY_USD, 2)
RULE = "label:fleet"


class Fleet(Script):
    def __init__(self, usd: float) -> None:
        super().__init__()
        self.phases, self.turn = (Phase.BUILD,), self.works
        self.settings = {"asks": True, "budget_usd": 1000.0, "treasury": {RULE: usd}}
        self.paid: dict[str, float] = {}
        self.turns = TURNS

    async def works(self, work: TurnInput) -> TurnResult:
        paid = self.paid[work.delivery] = round(self.paid.get(work.delivery, 0) + REPLY_USD, 6)
        done = Outcome(ending=Ending.DONE, summary="built") if work.turn >= self.turns else None
        usage = Usage(cost_usd=REPLY_USD)
        return TurnResult(checkpoint="c", summary="on", usage=usage, spend=Spend(usd=paid), outcome=done)


async def main(address: str) -> int:
    client = await connected(address)
    usd = DELIVERIES * TURNS * REPLY_USD / 2
    fleet, names = Fleet(usd), [f"d{n}" for n in range(DELIVERIES)]
    await treasury.put_rules(client, [BudgetRule(label="fleet", usd_per_day=usd)])
    async with Worker(client, task_queue=TASK_QUEUE, workflows=WORKFLOWS, activities=fleet.activities()):
        request = {"repository": "/r", "request": "Add sub", "phases": ["build"]}
        await asyncio.gather(*(Perdure(client).submit(request, id=name) for name in names))
        table = await settled(client)
        over = round(sum(fleet.paid.values()) - usd, 6)
        spent, waiting = len(fleet.paid), sum(1 for lease in table.leases.values() if lease.waits)
        print(f"{DELIVERIES} deliveries, ${usd:.2f} for ${2 * usd:.2f} of work: {spent} began, {waiting} wait")
        most = DELIVERIES * REPLY_USD
        print(f"overspent by ${max(over, 0.0):.2f}; promised: at most a reply a delivery, ${most:.2f}")
        await treasury.add_to_budget(client, RULE, 3 * usd)
        await asyncio.gather(*(Perdure(client).delivery(name).result() for name in names))
    kinds = await counted(client)
    asks = kinds["reserve"] - DELIVERIES
    answers = kinds["signal_external_workflow_execution_initiated"]
    total = sum(count for name, count in kinds.items() if name not in ("reserve", "runs"))
    ends = 4 * DELIVERIES
    per_block = (total - ends) / max(asks, 1)
    print(f"{total} events in {kinds['runs']} runs: {asks} questions, {answers} answers, {DELIVERIES} ends")
    print(f"{per_block:.1f} events a block here, where many ask at once; 9 for one that asks alone")
    ticks = 5 * int(86400 / TREASURY_TICK.total_seconds())
    day = DELIVERIES * (BLOCKS_EACH * 9 + 4) + ticks
    print(f"a day of {DELIVERIES} deliveries of {BLOCKS_EACH} blocks, asking alone: {day} events (limit {MOST_EVENTS})")
    return int(over > most or day >= MOST_EVENTS or per_block > 9.5)


class Day(Fleet):
    """A turn is taken when it is allowed, so that all deliveries go on in the same ten minutes."""

    def __init__(self) -> None:
        super().__init__(usd=DAY_USD)
        self.turns = TURNS_A_SLOT * SLOTS_EACH
        self.allowed: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()

    async def works(self, work: TurnInput) -> TurnResult:
        while self.allowed[work.delivery] <= self.taken[work.delivery]:
            activity.heartbeat()
            await asyncio.sleep(0.01)
        self.taken[work.delivery] += 1
        return await super().works(work)

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn
        async def spent(work: SpentInput) -> Spend:
            """Asked of one that has not used up its block within the hour."""
            return Spend(usd=self.paid.get(work.delivery, 0.0))

        return [*super().activities(), spent]


async def a_day(address: str) -> int:
    client = await connected(address)
    day, most = Day(), TURNS_A_SLOT * SLOTS_EACH
    due = Counter(n * SLOTS // DELIVERIES for n in range(DELIVERIES))
    running: dict[str, int] = {}
    await treasury.put_rules(client, [BudgetRule(label="fleet", usd_per_day=DAY_USD)])
    keeper, request = client.get_workflow_handle(TREASURY), {"repository": "/r", "request": "Add sub"}
    async with Worker(client, task_queue=TASK_QUEUE, workflows=WORKFLOWS, activities=day.activities()):
        begun = 0
        for slot in range(SLOTS + SLOTS_EACH):
            for _ in range(due[slot]):
                running[f"d{begun}"] = 0
                await Perdure(client).submit({**request, "phases": ["build"]}, id=f"d{begun}")
                begun += 1
            for name in running:
                day.allowed[name] += TURNS_A_SLOT
            async with asyncio.timeout(120):
                while any(day.taken[name] < day.allowed[name] for name in running):
                    await asyncio.sleep(0.02)
            for name in [name for name in running if day.taken[name] == most]:
                await Perdure(client).delivery(name).result()
                del running[name]
            await TimeSkipper(client).fast_forward(keeper, SLOT)
        table = await treasury.read_budget_table(client)
    kinds = await counted(client)
    for clock in ("workflow_execution_time_skipping_transitioned", "workflow_execution_options_updated"):
        del kinds[clock]  # of moving it on: no real day has these
    runs, asks = kinds.pop("runs"), kinds.pop("reserve") - DELIVERIES
    total, hours = kinds.total(), (SLOTS + SLOTS_EACH) * SLOT.total_seconds() / 3600
    print(f"{begun} deliveries of {most} turns, ${sum(day.paid.values()):.2f}, in {hours:.0f} hours of the Treasury")
    print(f"{total} events in {runs} runs, {asks} questions: {total / DELIVERIES:.0f} a delivery (limit {MOST_EVENTS})")
    for kind, count in kinds.most_common(8):
        print(f"  {count:6} {kind}")
    print(f"reserved at the end: ${table.reserved(RULE):.2f}")
    return int(total >= MOST_EVENTS or table.reserved(RULE) > 0)


async def connected(address: str) -> Client:
    end = time.monotonic() + 60
    while True:
        try:
            client = await Client.connect(address, plugins=[perdure_plugin()])
            await client.count_workflows()
            return client
        except Exception:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.1)


async def settled(client: Client) -> TreasuryTable:
    """Every delivery has ended or waits: nobody holds anything."""
    async with asyncio.timeout(540):
        while True:
            table = await treasury.read_budget_table(client)
            open_ones = [lease for lease in table.leases.values() if lease.reserved_usd or lease.waits]
            if len(table.leases) == DELIVERIES and open_ones and all(lease.waits for lease in open_ones):
                await asyncio.sleep(2)
                return await treasury.read_budget_table(client)
            await asyncio.sleep(0.5)


async def counted(client: Client) -> Counter[str]:
    """Events by kind over all runs; `reserve`: signals of deliveries, `runs`: runs."""
    kinds: Counter[str] = Counter()
    async for run in client.list_workflows(f"WorkflowId = '{TREASURY}'"):
        kinds["runs"] += 1
        async for event in client.get_workflow_handle(TREASURY, run_id=run.run_id).fetch_history_events():
            kind = (event.WhichOneof("attributes") or "").removesuffix("_event_attributes")
            kinds[kind] += 1
            if kind == "workflow_execution_signaled":
                kinds["reserve"] += event.workflow_execution_signaled_event_attributes.signal_name == "reserve"
    return kinds


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(temporal_binary()), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    command += ["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"]
    what = a_day if "--day" in sys.argv else main
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            code = asyncio.run(what(f"127.0.0.1:{port}"))
        finally:
            server.kill()
            server.wait(20)
    sys.stdout.flush()
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit
