"""Many deliveries under one budget of the day: together they overspend it by at most one reply each."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from people_cast import BUILT, at, events, reset
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import TimeSkipper
from temporalio.worker import Worker
from workflow_cast import Cast

from perdure import treasury
from perdure.client import Perdure
from perdure.local.binary import temporal_binary
from perdure.models.ledger import Spend, Usage
from perdure.models.phases import Phase
from perdure.models.policy import TASK_QUEUE
from perdure.models.treasury import TREASURY, BudgetRule, SpentInput, Table
from perdure.models.turn import Ending, Outcome, TurnInput, TurnResult
from workflows import WORKFLOWS

RULE = "label:team-a"
REPLY_USD = 0.2


class Fleet(Cast):
    """Deliveries that take `turns` turns of $0.20 each; `paid`: what each has really paid, as in its spend log."""

    def __init__(self) -> None:
        super().__init__()
        self.phases = (Phase.BUILD,)
        self.settings = {"asks": True, "budget_usd": 1000.0, "treasury": {RULE: 5.0}}
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

        return [*super().activities(), spent]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


RUN_EVENTS = 60
"""After which a new run is suggested: every test here sees the Treasury go on in several."""


BLOCK_EVENTS, END_EVENTS = 9, 4
"""In the Treasury's history, of one that asks alone: a day of 50 deliveries of six blocks has 3,140 (benchmarks)."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose workflows' clocks can be moved on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(temporal_binary()), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    for flag in (
        "frontend.WorkflowTimeSkippingEnabled=true",
        f"limit.historyCount.suggestContinueAsNew={RUN_EVENTS}",
    ):
        command += ["--dynamic-config-value", flag]
    log = tmp_path_factory.mktemp("clock") / "server.log"
    with log.open("w") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        asyncio.run(_answers(f"127.0.0.1:{port}"))
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(20)


async def _answers(address: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await (await Client.connect(address)).count_workflows()
                return
            except Exception:  # noqa: BLE001 - its namespace takes it a moment
                await asyncio.sleep(0.1)


@asynccontextmanager
async def shared(client: Client, fleet: Fleet, usd: float) -> AsyncIterator[WorkflowHandle[Any, Any]]:
    """A Treasury of its own for the test; ended afterwards, because its id is the only one."""
    async with asyncio.timeout(150):
        fleet.settings["treasury"] = {RULE: usd}
        await treasury.put_rules(client, [BudgetRule(label="team-a", usd_per_day=usd)])
        handle = client.get_workflow_handle(TREASURY)
        try:
            yield handle
        finally:
            await handle.terminate()


@asynccontextmanager
async def at_work(client: Client, fleet: Fleet) -> AsyncIterator[None]:
    async with Worker(client, task_queue=TASK_QUEUE, workflows=WORKFLOWS, activities=fleet.activities()):
        yield


async def table_when(client: Client, what: Callable[[Table], Any]) -> Table:
    async with asyncio.timeout(30):
        while not what(table := await treasury.read_table(client)):
            await asyncio.sleep(0.05)
        return table


async def all_wait_or_have_ended(client: Client, names: list[str]) -> list[str]:
    """What those say that wait."""
    said = {}
    async with asyncio.timeout(100):
        for name in names:
            while True:
                progress = await client.get_workflow_handle(name).query("progress")
                if progress["waiting"] or progress["status"] != "running":
                    said[name] = progress["waiting"]
                    break
                await asyncio.sleep(0.2)
    return [words for words in said.values() if words]


async def test_twenty_deliveries_overspend_one_budget_by_at_most_a_reply_each_and_wait_visibly(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    async with shared(client, fleet, 5.0) as keeper, at_work(client, fleet):
        first = (await keeper.describe()).run_id
        names = [f"{fresh}-{n}" for n in range(20)]
        await asyncio.gather(*(Perdure(client).submit(BUILT, id=name) for name in names))
        told = await all_wait_or_have_ended(client, names)
        assert told
        assert all("the day's budget of label team-a is" in words for words in told), told
        assert any("perdure treasury add label:team-a --usd 5" in words for words in told)
        table = await treasury.read_table(client)
        assert table.rules[RULE].spent + table.reserved(RULE) <= 5.0 + 20 * REPLY_USD
        assert 4.0 <= fleet.total <= 5.0 + 20 * REPLY_USD
        await treasury.add(client, RULE, 100)
        results = await asyncio.gather(*(Perdure(client).delivery(name).result() for name in names))
        assert {result.status for result in results} == {"completed"}
        table = await table_when(client, lambda table: table.reserved(RULE) == 0)
        assert table.rules[RULE].spent == pytest.approx(fleet.total) == pytest.approx(20 * 5 * REPLY_USD)
        assert (await keeper.describe()).run_id != first, "no new run: half of the test shows nothing"


async def test_a_delivery_without_a_rule_leaves_no_trace_of_a_treasury(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    async with shared(client, fleet, 5.0), at_work(client, fleet):
        fleet.settings["treasury"] = {}
        await (await Perdure(client).submit(BUILT, id=fresh)).delivery.result()
        kinds = {kind for _, kind, _ in await events(client.get_workflow_handle(fresh))}
        assert not any("external" in kind for kind in kinds)
        assert (await treasury.read_table(client)).leases == {}


async def test_a_cancelled_delivery_gives_back_and_its_retry_reserves_anew(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    async with shared(client, fleet, 100.0), at_work(client, fleet):
        fleet.gate.clear()
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        await table_when(client, lambda table: table.reserved(RULE) == 1.0)
        await client.get_workflow_handle(fresh).cancel()
        fleet.gate.set()
        assert (await delivery.result()).status == "cancelled"
        table = await table_when(client, lambda table: table.reserved(RULE) == 0)
        assert table.rules[RULE].spent == pytest.approx(fleet.total)
        await delivery.retry()
        assert (await delivery.result()).status == "completed"
        table = await table_when(client, lambda table: table.rules[RULE].spent == pytest.approx(fleet.total))
        assert table.reserved(RULE) == 0


async def test_a_worker_that_dies_between_grant_and_use_loses_no_block_and_gets_no_other(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    fleet.gate.clear()
    async with shared(client, fleet, 100.0) as keeper:
        async with at_work(client, fleet):
            delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
            await table_when(client, lambda table: table.reserved(RULE) == 1.0)
            await at(client.get_workflow_handle(fresh), lambda progress: len(progress["steps"]) == 2)
        fleet.gate.set()
        async with at_work(client, fleet):
            assert (await delivery.result()).status == "completed"
            table = await table_when(client, lambda table: table.reserved(RULE) == 0)
            assert table.rules[RULE].spent == pytest.approx(fleet.total) == pytest.approx(5 * REPLY_USD)
            assert table.leases[fresh].seq == 2, "it has asked once, and once for the next block"
            assert len(await events(keeper)) <= 6 + 2 * BLOCK_EVENTS + END_EVENTS


async def test_a_rewound_delivery_pays_for_its_turns_again_and_every_reply_counts_once(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    async with shared(client, fleet, 100.0), at_work(client, fleet):
        fleet.last = 5
        fleet.turns = 9
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        async with asyncio.timeout(30):
            while fleet.total < 5 * REPLY_USD:
                await asyncio.sleep(0.05)
        handle = client.get_workflow_handle(fresh)
        first = next(number for number, kind, _ in await events(handle) if kind == "workflow_task_completed")
        fleet.last = 0
        await reset(handle, first)
        assert (await delivery.result()).status == "completed"
        table = await table_when(client, lambda table: table.reserved(RULE) == 0)
        assert table.rules[RULE].spent == pytest.approx(fleet.total) == pytest.approx((5 + 9) * REPLY_USD)


async def test_a_terminated_delivery_gives_back_what_its_spend_log_says_it_has_not_used(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    async with shared(client, fleet, 100.0) as keeper, at_work(client, fleet):
        fleet.turns, fleet.last = 5, 2
        await Perdure(client).submit(BUILT, id=fresh)
        async with asyncio.timeout(30):
            while fleet.total < 2 * REPLY_USD:
                await asyncio.sleep(0.05)
        await client.get_workflow_handle(fresh).terminate()
        table = await treasury.read_table(client)
        assert (table.rules[RULE].spent, table.reserved(RULE)) == (0.0, 1.0)
        await TimeSkipper(client).fast_forward(keeper, timedelta(hours=1, minutes=31))
        table = await table_when(client, lambda table: table.reserved(RULE) == 0)
        assert table.rules[RULE].spent == pytest.approx(2 * REPLY_USD)
        assert fleet.asked == [fresh]


async def test_what_waits_for_the_day_to_change_goes_on_at_midnight(client: Client, fleet: Fleet, fresh: str) -> None:
    async with shared(client, fleet, 0.5) as keeper, at_work(client, fleet):
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        handle = client.get_workflow_handle(fresh)
        await at(handle, lambda progress: "goes on tomorrow 00:00 UTC" in progress["waiting"])
        paid = fleet.total
        assert 0.5 <= paid <= 0.5 + REPLY_USD
        await TimeSkipper(client).fast_forward(keeper, timedelta(hours=24))
        assert (await delivery.result()).status == "completed"
        table = await table_when(client, lambda table: table.reserved(RULE) == 0)
        assert table.rules[RULE].spent == pytest.approx(fleet.total - paid), "of the new day"


async def test_without_a_treasury_a_delivery_waits_visibly_until_a_worker_starts_one(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    async with shared(client, fleet, 5.0) as keeper, at_work(client, fleet):
        await keeper.terminate()
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        handle = client.get_workflow_handle(fresh)
        await at(handle, lambda progress: "the treasury does not answer" in progress["waiting"])
        assert fleet.total == 0.0
        await treasury.put_rules(client, [BudgetRule(label="team-a", usd_per_day=5.0)])
        await TimeSkipper(client).fast_forward(handle, timedelta(minutes=2))
        assert (await delivery.result()).status == "completed"
