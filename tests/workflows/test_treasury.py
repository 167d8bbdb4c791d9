"""Many deliveries under one budget of the day: together they overspend it by at most one reply each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from fleet_cast import REPLY_USD, RULE, Fleet, at_work, clock_server, shared
from people_cast import BUILT, at, events, reset
from temporalio.client import Client
from temporalio.testing import TimeSkipper

from perdure import treasury
from perdure.client import Perdure
from perdure.models.treasury import BudgetRule, Table

BLOCK_EVENTS, END_EVENTS = 9, 4
"""In the Treasury's history, of one that asks alone: a day of 50 deliveries of six blocks has 3,140 (benchmarks)."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with clock_server(tmp_path_factory.mktemp("clock") / "server.log") as address:
        yield address


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


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


async def test_nonsense_is_not_counted_and_stops_nobody(client: Client, fleet: Fleet, fresh: str) -> None:
    async with shared(client, fleet, 5.0) as keeper, at_work(client, fleet):
        for name, said in (
            ("reserve", {"delivery": "x"}),
            ("reserve", {"delivery": "x", "seq": 1, "rules": {}, "settled": 0}),
            ("reserve", {"delivery": "x", "seq": 1, "rules": {"label:b": -1}, "settled": 0}),
            ("rules", "none"),
            ("add", {"rule": RULE, "usd": -5}),
            ("add", {"rule": "label:b", "usd": 5}),
            ("granted", {}),
        ):
            await keeper.signal(name, said)
        submitted = await Perdure(client).submit(BUILT, id=fresh)
        await client.get_workflow_handle(fresh).signal("granted", {"seq": "x"})
        assert (await submitted.delivery.result()).status == "completed"
        table = await table_when(client, lambda table: table.reserved(RULE) == 0)
        assert table.leases.keys() == {fresh}
        assert table.rules.keys() == {RULE}
        assert table.rules[RULE].limit == 5.0


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
        assert table.rules[RULE].spent == pytest.approx(fleet.total)
        assert fleet.total >= (5 + 9) * REPLY_USD - 1e-6


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
