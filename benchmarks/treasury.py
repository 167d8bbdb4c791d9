"""What a fleet's budget costs: events in the Treasury's history, with many deliveries at once on a real server.

`make bench-treasury`: DELIVERIES deliveries (50) of TURNS turns (30) at $0.10 a turn under one budget that is enough
for half of them; when all that are left wait, more is added. Workflows, server and signals are real, the activities
only say what they cost. Printed are events by what they are about, events a block, the overspend against the promise
(one reply a delivery), and what a day of blocks comes to. The exit code is 1 when the promise is broken, or when a day
in which each of the deliveries uses BLOCKS_EACH blocks (6: more than its own budget of $5) has 5,000 events or more.
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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "workflows"))

from temporalio.client import Client
from temporalio.worker import Worker
from workflow_cast import Cast

from perdure import treasury
from perdure.client import Perdure
from perdure.local.binary import temporal_binary
from perdure.models.ledger import Spend, Usage
from perdure.models.phases import Phase
from perdure.models.policy import TASK_QUEUE, TREASURY_TICK
from perdure.models.treasury import TREASURY, BudgetRule, Table
from perdure.models.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.plugin import perdure_plugin
from workflows import WORKFLOWS

DELIVERIES = int(os.environ.get("DELIVERIES", "50"))
TURNS = int(os.environ.get("TURNS", "30"))
REPLY_USD, BLOCKS_EACH, MOST_EVENTS = 0.1, 6, 5000
RULE = "label:fleet"


class Fleet(Cast):
    def __init__(self, usd: float) -> None:
        super().__init__()
        self.phases, self.turn = (Phase.BUILD,), self.works
        self.settings = {"asks": True, "budget_usd": 1000.0, "treasury": {RULE: usd}}
        self.paid: dict[str, float] = {}

    async def works(self, work: TurnInput) -> TurnResult:
        paid = self.paid[work.delivery] = round(self.paid.get(work.delivery, 0) + REPLY_USD, 6)
        done = Outcome(ending=Ending.DONE, summary="built") if work.turn >= TURNS else None
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
        await treasury.add(client, RULE, 3 * usd)
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


async def settled(client: Client) -> Table:
    """Every delivery has ended or waits: nobody holds anything."""
    async with asyncio.timeout(540):
        while True:
            table = await treasury.read_table(client)
            open_ones = [lease for lease in table.leases.values() if lease.held or lease.waits]
            if len(table.leases) == DELIVERIES and open_ones and all(lease.waits for lease in open_ones):
                await asyncio.sleep(2)
                return await treasury.read_table(client)
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
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            code = asyncio.run(main(f"127.0.0.1:{port}"))
        finally:
            server.kill()
            server.wait(20)
    sys.stdout.flush()
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit
