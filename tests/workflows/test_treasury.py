"""Many deliveries under one budget of the day: together they overspend it by at most one reply each."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fleet_fixtures import REPLY_USD, RULE, Fleet, at_work, clock_server, shared
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.testing import TimeSkipper
from temporalio.worker import Worker

from activities.notify import NoticeActivities
from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host
from perdure.client import Perdure
from perdure.client import budgets as treasury
from perdure.models.budget.treasury import TREASURY, BudgetRule, TreasuryTable
from perdure.models.errors import PerdureError
from perdure.models.limits import TASK_QUEUE
from tests.attack.stranger_client import TenLines
from tests.deliveries import BUILT, at, events, reset
from tests.engine import until
from tests.homes import origin_activities
from tests.receiver import Receiver
from tests.waiting import patient
from workflows.treasury import Treasury

FIRST_EVENTS, BLOCK_EVENTS, END_EVENTS = 8, 10, 5
"""In the Treasury's history, of one that asks alone; one of each is the question who has sent the request."""

TASK_EVENTS = 3
"""A workflow task more: on a busy machine the answer to that question takes longer than one."""


NO_WORKFLOW_IDS = ("", "x" * 1_001, "ж" * 501)
"""Temporal takes none of them as a workflow's id."""

TIMER = "timer_started_event_attributes"
ANSWER = "signal_external_workflow_execution_initiated_event_attributes"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with clock_server(tmp_path_factory.mktemp("clock") / "server.log") as address:
        yield address


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


async def table_when(client: Client, what: Callable[[TreasuryTable], Any]) -> TreasuryTable:
    async with asyncio.timeout(patient(30)):
        while True:
            with contextlib.suppress(PerdureError):  # one that has just begun answers nobody
                if what(table := await treasury.read_budget_table(client)):
                    return table
            await asyncio.sleep(0.05)


async def wakes_at_midnight(keeper: WorkflowHandle[Any, Any]) -> bool:
    timers = [event async for event in keeper.fetch_history_events() if event.HasField(TIMER)]
    lasts = timers[-1].timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
    wakes = timers[-1].event_time.ToDatetime() + lasts
    return abs(wakes - wakes.replace(hour=12, minute=0)) > timedelta(hours=11, minutes=58)


async def all_wait_or_have_ended(client: Client, names: list[str]) -> list[str]:
    """What those say that wait for more of the day's budget; before that, they may wait for the treasury's answer."""

    def settled(progress: dict[str, Any]) -> bool:
        return "the day's budget" in progress["waiting"] or progress["status"] != "running"

    return [words for name in names if (words := (await at(client.get_workflow_handle(name), settled))["waiting"])]


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
        assert any("perdure budget --shared label:team-a --add 5" in words for words in told)
        table = await treasury.read_budget_table(client)
        assert table.rules[RULE].spent + table.reserved(RULE) <= 5.0 + 20 * REPLY_USD
        assert 4.0 <= fleet.total <= 5.0 + 20 * REPLY_USD
        await treasury.add_to_budget(client, RULE, 100)
        results = await asyncio.gather(*(Perdure(client).delivery(name).result() for name in names))
        assert {result.status for result in results} == {"completed"}
        table = await table_when(client, lambda table: table.reserved(RULE) == 0)
        assert table.rules[RULE].spent == pytest.approx(fleet.total) == pytest.approx(20 * 5 * REPLY_USD)
        assert (await keeper.describe()).run_id != first, "no new run: half of the test shows nothing"


async def test_a_delivery_without_a_rule_leaves_no_trace_of_a_treasury(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    async with shared(client, fleet, 5.0), at_work(client, fleet):
        fleet.settings["shared_budgets"] = {}
        await (await Perdure(client).submit(BUILT, id=fresh)).delivery.result()
        kinds = {kind for _, kind, _ in await events(client.get_workflow_handle(fresh))}
        assert not any("external" in kind for kind in kinds)
        assert (await treasury.read_budget_table(client)).leases == {}


async def test_nonsense_is_not_counted_and_stops_nobody(client: Client, fleet: Fleet, fresh: str) -> None:
    async with shared(client, fleet, 5.0) as keeper, at_work(client, fleet):
        for name, said in (
            ("reserve", {"delivery": "x"}),
            ("reserve", {"delivery": "x", "seq": 1, "rules": {}, "settled": 0}),
            ("reserve", {"delivery": "x", "seq": 1, "rules": {"label:b": -1}, "settled": 0}),
            *(("reserve", {"delivery": id, "seq": 1, "rules": {RULE: 5}, "settled": 0}) for id in NO_WORKFLOW_IDS),
            ("reserve", {"delivery": fresh, "seq": 1, "rules": {RULE: 5}, "settled": 0, "queue": "x" * 1_001}),
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


async def test_what_a_client_says_in_the_name_of_a_delivery_or_of_the_treasury_changes_no_budget(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    fleet.turns = 10
    async with shared(client, fleet, 1.0) as keeper, at_work(client, fleet):
        fleet.gate.clear()
        delivery, handle = (await Perdure(client).submit(BUILT, id=fresh)).delivery, client.get_workflow_handle(fresh)
        before = await table_when(client, lambda table: table.reserved(RULE) > 0)
        made_up = {"delivery": fresh, "rules": {RULE: 1.0}, "settled": 1e6, "seq": 10**9}
        for more in ({}, {"is_last": True}, {"delivery": f"{fresh}-other"}):
            await keeper.signal("reserve", made_up | more)
        answer = {"seq": 10**9, "ceiling": 1e6, "granted": 1e6, "until": "2999-01-01T00:00:00Z"}
        await handle.signal("granted", answer)
        async with Worker(client, task_queue=f"{fresh}-his", workflows=[TenLines]):
            for id, name, content in ((TREASURY, "reserve", made_up), (fresh, "granted", answer)):
                call = {"signals": id, "name": name, "content": content}
                await client.execute_workflow("Delivery", call, id=f"{fresh}-his-{name}", task_queue=f"{fresh}-his")
        assert await treasury.read_budget_table(client) == before
        fleet.gate.set()
        waits = await at(handle, lambda progress: "the day's budget" in progress["waiting"])
        assert waits["usage"]["cost_usd"] <= 1.0 + REPLY_USD
        table = await treasury.read_budget_table(client)
        assert table.leases.keys() == {fresh}
        assert table.rules[RULE].spent <= 1.0 + REPLY_USD
        await handle.terminate()
        assert delivery.id == fresh


async def test_a_treasury_can_be_cancelled_while_it_answers_a_delivery_that_is_gone(client: Client, fresh: str) -> None:
    async def cancel_one(id: str) -> None:
        keeper = await client.start_workflow("Treasury", id=id, task_queue=TASK_QUEUE)
        request = {"delivery": f"{id}-gone", "seq": 1, "rules": {RULE: 5.0}, "settled": 0}
        call = {"signals": id, "name": "reserve", "content": request}
        await client.execute_workflow("Delivery", call, id=f"{id}-gone", task_queue=TASK_QUEUE)
        while not any(event.HasField(ANSWER) for event in [event async for event in keeper.fetch_history_events()]):
            await asyncio.sleep(0.05)
        await keeper.cancel()
        with pytest.raises(WorkflowFailureError):
            await keeper.result()

    worker = Worker(client, task_queue=TASK_QUEUE, workflows=[TenLines, Treasury], activities=origin_activities())
    async with worker, asyncio.timeout(patient(30)):
        await asyncio.gather(*(cancel_one(f"{fresh}-{n}") for n in range(10)))


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
            assert len(await events(keeper)) <= FIRST_EVENTS + 2 * BLOCK_EVENTS + END_EVENTS + TASK_EVENTS


async def test_a_rewound_delivery_pays_for_its_turns_again_and_every_reply_counts_once(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    async with shared(client, fleet, 100.0), at_work(client, fleet):
        fleet.last = 5
        fleet.turns = 9
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        async with asyncio.timeout(patient(30)):
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
        async with asyncio.timeout(patient(30)):
            while fleet.total < 2 * REPLY_USD:
                await asyncio.sleep(0.05)
        await client.get_workflow_handle(fresh).terminate()
        table = await treasury.read_budget_table(client)
        assert (table.rules[RULE].spent, table.reserved(RULE)) == (0.0, 1.0)
        await TimeSkipper(client).fast_forward(keeper, timedelta(hours=1, minutes=31))
        table = await table_when(client, lambda table: table.reserved(RULE) == 0)
        assert table.rules[RULE].spent == pytest.approx(2 * REPLY_USD)
        assert fleet.asked == [fresh]


@pytest.mark.story
async def test_what_waits_for_the_day_to_change_tells_it_once_and_goes_on_at_midnight(
    client: Client, fleet: Fleet, fresh: str, tmp_path: Path
) -> None:
    fleet.settings["notifies"] = True
    async with Receiver.open() as receiver, shared(client, fleet, 0.5) as keeper:
        host = Host.from_environment(Home(tmp_path), {"PERDURE_WEBHOOK_URL": receiver.url})
        notices = NoticeActivities(host)
        async with at_work(client, fleet, notices.notice_addresses, notices.notify):
            delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
            handle = client.get_workflow_handle(fresh)
            await at(handle, lambda progress: "goes on tomorrow 00:00 UTC" in progress["waiting"])
            paid = fleet.total
            assert 0.5 <= paid <= 0.5 + REPLY_USD
            (told,) = await until(lambda: receiver.of("waiting"))
            assert told.json["words"].startswith("the day's budget of label team-a is spent: $0.60 of $0.50")
            assert told.json["text"].startswith("*Waiting: the day")
            assert (told.json["gate"], told.json["decisions"]) == (None, [])
            skip = TimeSkipper(client)
            if datetime.now(UTC).hour < 23:  # it began to tick when somebody held something
                await skip.fast_forward(keeper, timedelta(minutes=31))
                assert await wakes_at_midnight(keeper), "nobody does any more, and it ticks"
            await skip.fast_forward(handle, timedelta(hours=25))  # it asks again: that is the same wait
            await skip.fast_forward(keeper, timedelta(hours=26))
            assert (await delivery.result()).status == "completed"
            table = await table_when(client, lambda table: table.reserved(RULE) == 0)
            assert table.rules[RULE].spent == pytest.approx(fleet.total - paid), "of the new day"
            await until(lambda: receiver.of("ended"))
            assert len(receiver.told) == 2
        await host.close()


@pytest.mark.story
async def test_without_a_treasury_a_delivery_waits_visibly_until_a_worker_starts_one(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    async with shared(client, fleet, 5.0) as keeper, at_work(client, fleet):
        await keeper.terminate()
        delivery = (await Perdure(client).submit(BUILT, id=fresh)).delivery
        handle = client.get_workflow_handle(fresh)
        await at(handle, lambda progress: "the treasury does not answer" in progress["waiting"])
        assert fleet.total == 0.0
        assert (await treasury.read_budget_table(client)).note == treasury.ENDED
        rules = [BudgetRule(label="team-a", usd_per_day=5.0)]
        keeping = asyncio.create_task(
            treasury.keep_treasury_running(client, rules, timedelta(seconds=0.1))
        )  # as a worker does
        await table_when(client, lambda table: RULE in table.rules)
        keeping.cancel()
        await TimeSkipper(client).fast_forward(handle, timedelta(minutes=2))
        assert (await delivery.result()).status == "completed"


async def test_one_that_was_ended_goes_on_from_what_it_knew_and_so_do_those_who_had_reserved(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    """Ended twice, the second time before it has read what the first one knew; heard in between."""
    async with shared(client, fleet, 2.5) as keeper:
        async with at_work(client, fleet):
            before = (await Perdure(client).submit(BUILT, id=f"{fresh}-before")).delivery
            assert (await before.result()).status == "completed"
            fleet.turns, fleet.last = 9, 2
            holds = (await Perdure(client).submit(BUILT, id=fresh)).delivery
            async with asyncio.timeout(patient(30)):
                while fleet.paid.get(fresh) != 2 * REPLY_USD:
                    await asyncio.sleep(0.05)
            known = await table_when(client, lambda table: table.leases[fresh].seq == 2)
            assert known.reserved(RULE) > 0
        await keeper.terminate()
        await treasury.add_to_budget(client, RULE, 0.05)
        await keeper.terminate()
        await treasury.put_rules(client, [BudgetRule(label="team-a", usd_per_day=2.5)])
        fleet.gate.clear()
        fleet.last = 0
        async with at_work(client, fleet):
            table = await table_when(client, lambda table: "from what it knew" in table.note)
            assert (table.rules, table.leases) == (known.rules, known.leases)
            fleet.gate.set()
            await at(client.get_workflow_handle(fresh), lambda progress: "the day's budget" in progress["waiting"])
            assert 2.4 <= fleet.total <= 2.5 + 2 * REPLY_USD
            await keeper.terminate()
            await treasury.add_to_budget(client, RULE, 5)
            assert (await holds.result()).status == "completed"
            table = await table_when(client, lambda table: table.reserved(RULE) == 0)
            assert table.rules[RULE].spent == pytest.approx(fleet.total) == pytest.approx(14 * REPLY_USD)


@pytest.mark.story
async def test_one_whose_run_before_cannot_be_read_says_so_and_begins_anew(
    client: Client, fleet: Fleet, fresh: str
) -> None:
    async with shared(client, fleet, 5.0) as keeper, at_work(client, fleet):
        await keeper.terminate()
        table = TreasuryTable(previous=str(uuid.uuid4()))
        await client.start_workflow(treasury.TREASURY_WORKFLOW, table, id=TREASURY, task_queue=TASK_QUEUE)
        await treasury.put_rules(client, [BudgetRule(label="team-a", usd_per_day=5.0)])
        assert (await (await Perdure(client).submit(BUILT, id=fresh)).delivery.result()).status == "completed"
        table = await table_when(client, lambda table: table.reserved(RULE) == 0)
        assert "what was spent before is not counted" in table.note
        assert table.rules[RULE].spent == pytest.approx(fleet.total)
