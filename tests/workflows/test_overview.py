"""All that runs, read without a worker: what waits, what is stuck and why, slots in use, events by time."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from backlog_fixtures import Branch, backlog, ended, night
from temporalio import activity, workflow
from temporalio.client import (
    Client,
    Interceptor,
    ListWorkflowsInput,
    OutboundInterceptor,
    WorkflowExecutionAsyncIterator,
    WorkflowExecutionStatus,
)
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError
from temporalio.worker import Worker

from perdure.adapters.system.home import Home
from perdure.client import ListEntry, Perdure
from perdure.client.backlog import Backlog
from perdure.client.doctor import StuckWorkflow, find_stuck_workflows
from perdure.client.history.event_feed import all_events, backlog_events
from perdure.client.server import overview, slots
from perdure.client.server.overview import SILENT_S, Overview, OverviewRow, add_work_in_flight
from perdure.client.server.view import PendingActivity, RunDescription
from perdure.local.server import ensure_server, stop_server
from perdure.models.delivery.decisions import PendingDecision
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.errors import BadInput
from perdure.models.events import Event
from perdure.models.ids import BACKLOG_WORKFLOW, MORE_ATTRIBUTES
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from perdure.page.views.hosts import list_workers
from perdure.plugin import perdure_plugin
from tests.deliveries import Script, playing
from tests.processes import send
from tests.waiting import patient, until

LONG_AGO = datetime(2026, 1, 2, 12, tzinfo=UTC)
REQUEST = {"repository": "/r", "request": "Add sub", "phases": ["build"]}


@pytest.mark.parametrize("silence", [0.0, SILENT_S, SILENT_S + 1])
def test_a_worker_is_silent_where_it_was_when_asked_about_and_not_because_nobody_asked_since(silence: float) -> None:
    row = OverviewRow("d", "delivery", "calc", "build", "running", None, None, LONG_AGO, None, None)
    heard = LONG_AGO - timedelta(seconds=silence)
    work = PendingActivity("implement", 1, {"turn": 3, "doing": "pytest -q"}, "", "1@host", heard=heard)
    described = RunDescription(WorkflowExecutionStatus.RUNNING, "r", LONG_AGO, None, (work,), None)
    shown = add_work_in_flight(row, described, LONG_AGO)
    assert (shown.turn, shown.doing, shown.worker) == (3, "pytest -q", "1@host")
    assert shown.silent_since == (heard if silence > SILENT_S else None)


@pytest.mark.timeout(120)
async def test_what_waits_is_first_and_looking_at_it_gives_its_history_no_event(client: Client, fresh: str) -> None:
    asked = PendingDecision(gate="plan", target="1a2b3c4d", summary="approve the plan: Add sub", since=LONG_AGO)
    status = SearchAttributeKey.for_keyword("PerdureStatus")
    for id, memo in ((f"{fresh}-runs", {}), (fresh, {"asked": asked.model_dump(mode="json")})):
        await client.start_workflow(
            "Delivery", REQUEST, id=id, task_queue="nobody-works-here", memo=memo,
            search_attributes=TypedSearchAttributes([SearchAttributePair(status, "waiting" if memo else "running")]),
        )  # fmt: skip
    before = await client.get_workflow_handle(fresh).fetch_history()
    look = Overview(client)
    async with asyncio.timeout(patient(1)):
        while len(rows := [row for row in await look.rows() if row.id.startswith(fresh)]) < 2:
            await asyncio.sleep(0.2)
    for _ in range(3):
        await asyncio.sleep(overview.LOOK_S)
        rows = [row for row in await look.rows() if row.id.startswith(fresh)]
    assert [(row.id, row.waits) for row in rows] == [(fresh, True), (f"{fresh}-runs", False)]
    assert rows[0].pending_decision == asked
    after = await client.get_workflow_handle(fresh).fetch_history()
    assert [event.event_id for event in after.events] == [event.event_id for event in before.events]
    assert not look.trouble


@pytest.mark.timeout(120)
@pytest.mark.parametrize("knows", [True, False])
async def test_a_held_one_says_who_holds_it_since_when_where_the_server_keeps_that(
    client: Client, fresh: str, knows: bool
) -> None:
    script, begun, goes_on = Script(), asyncio.Event(), asyncio.Event()

    async def builds(work: TurnInput) -> TurnResult:
        begun.set()
        await goes_on.wait()
        if work.turn == 1:  # it is held before its second turn
            return await script.endless(work)
        return await script.builds(work)

    script.phases, script.turn = (Phase.BUILD,), builds
    script.settings = {
        "attributes": True,
        "extra_attributes": tuple(MORE_ATTRIBUTES) if knows else (),
        "labels": ("night", "api"),
    }
    began = datetime.now(UTC) - timedelta(seconds=5)
    async with playing(client, script):
        delivery = (await Perdure(client).submit(REQUEST, id=fresh)).delivery
        await begun.wait()
        await delivery.hold("lunch", by="Ada <b>")
        goes_on.set()
        look = Overview(client)

        async def held() -> OverviewRow | None:
            return next((row for row in await look.rows() if row.id == fresh and row.waits), None)

        row = await until(held)
        assert row.held == ("held by Ada <b>: lunch" if knows else "")
        assert row.since is None or began < row.since <= datetime.now(UTC)
        assert (row.since is not None) == knows
        (listed,) = [one for one in await Perdure(client).list() if one.delivery_id == fresh]
        assert sorted(listed.labels) == (["api", "night"] if knows else [])
        await delivery.resume()
        assert (await delivery.result()).status == "completed"

        async def over() -> OverviewRow | None:
            return next((row for row in await look.rows() if row.id == fresh and row.closed), None)

        assert (await until(over)).held == ""


RUNNING = TypedSearchAttributes([SearchAttributePair(SearchAttributeKey.for_keyword("PerdureStatus"), "running")])
REQUEST_OF_VIEW = {"repository": "/r", "request": "Add sub"}


async def seen(perdure: Perdure, ids: str, when: Callable[[list[ListEntry]], bool]) -> list[ListEntry]:
    """The list once it is as expected: the server's list follows with a delay."""
    async with asyncio.timeout(patient(20)):
        while not when(found := await perdure.list(limit=2, query=f"WorkflowId STARTS_WITH '{ids}'")):
            await asyncio.sleep(0.1)
    return found


async def start(client: Client, id: str) -> None:
    await client.start_workflow("Delivery", REQUEST_OF_VIEW, id=id, task_queue=TASK_QUEUE, search_attributes=RUNNING)


async def test_a_delivery_that_was_terminated_is_not_listed_as_running(
    client: Client, perdure: Perdure, fresh: str
) -> None:
    await start(client, fresh)
    await seen(perdure, fresh, lambda found: [one.status for one in found] == ["running"])
    await client.get_workflow_handle(fresh).terminate()
    (ended,) = await seen(perdure, fresh, lambda found: bool(found and found[0].closed))
    assert ended.status == "terminated"


async def test_a_delivery_with_several_runs_takes_one_place_in_the_list(
    client: Client, perdure: Perdure, fresh: str
) -> None:
    for id in (f"{fresh}-other", *3 * [f"{fresh}-again"]):
        await start(client, id)
        await client.get_workflow_handle(id).terminate()
    found = await seen(perdure, fresh, lambda found: len(found) == 2)
    assert {one.delivery_id for one in found} == {f"{fresh}-again", f"{fresh}-other"}


async def test_the_newest_is_the_one_that_was_started_last_whatever_runs_or_ended_since(
    client: Client, perdure: Perdure, fresh: str
) -> None:
    names = [f"{fresh}-{n}" for n in range(5)]
    for name in names:
        await start(client, name)
    for name in (names[4], names[2], names[1]):  # the newest has ended first, and older ones run on or ended later
        await client.get_workflow_handle(name).terminate()

    def order(count: int) -> list[str]:
        return [f"{fresh}-{n}" for n in (4, 3, 2, 1, 0)[:count]]

    async with asyncio.timeout(patient(20)):
        for limit in (1, 2, 4, 10):
            found: list[str] = []
            while found != order(limit):
                query = f"WorkflowId STARTS_WITH '{fresh}'"
                found = [one.delivery_id for one in await perdure.list(limit=limit, query=query)]
                await asyncio.sleep(0.1)
    for name in (names[0], names[3]):
        await client.get_workflow_handle(name).terminate()


class CountedLists(Interceptor):
    """Counts the lists that its client asks the server for."""

    def __init__(self) -> None:
        self.count = 0

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        counted = self

        class Counting(OutboundInterceptor):
            def list_workflows(self, input: ListWorkflowsInput) -> WorkflowExecutionAsyncIterator:
                counted.count += 1
                return super().list_workflows(input)

        return Counting(next)


async def test_a_list_is_one_call_while_fewer_run_than_it_shows(client: Client, perdure: Perdure, fresh: str) -> None:
    lists = CountedLists()
    counting = Perdure(Client(**{**client.config(), "interceptors": [lists]}))
    names = [f"{fresh}-{n}" for n in range(4)]
    for name in names:
        await start(client, name)
        await client.get_workflow_handle(name).terminate()
    await start(client, fresh)
    await seen(perdure, fresh, lambda found: [entry.delivery_id for entry in found] == [fresh, names[3]])
    await seen(perdure, fresh, lambda found: bool(found[-1].closed))
    for limit in (2, 1):
        lists.count = 0
        listed = await counting.list(limit=limit, query=f"WorkflowId STARTS_WITH '{fresh}'")
        assert ([entry.delivery_id for entry in listed], lists.count) == ([fresh, names[3]][:limit], 1)
    await client.get_workflow_handle(fresh).terminate()


REQUEST_OF_STUCK = {"repository": "/r", "request": "Add sub"}


@workflow.defn(name="Delivery")
class Broken:
    """A release that cannot replay what it finds."""

    @workflow.run
    async def run(self, raw: object) -> None:
        raise RuntimeError("there is no step lunch")


async def found(client: Client, *ids: str, **why: str) -> dict[str, StuckWorkflow]:
    """The server's list follows with a delay, and so does its word for why (`why`: how that of one of them begins)."""
    async with asyncio.timeout(patient(30)):
        while True:
            seen = {one.id: one async for one in find_stuck_workflows(client)}
            if all(id in seen and seen[id].reason.startswith(why.get(id, "")) for id in ids):
                return seen
            await asyncio.sleep(0.1)


def doctor(address: str, home: str) -> set[str]:
    """The lines of `perdure doctor` about deliveries, without how often a task has failed by now."""
    env = {"PATH": os.environ["PATH"], "HOME": home, "PERDURE_HOME": home, "TEMPORAL_ADDRESS": address}
    ran = subprocess.run(
        [sys.executable, "-m", "perdure.cli", "doctor", "--json"],
        env=env,
        capture_output=True,
        timeout=patient(60),
        check=False,
    )
    found = json.loads(ran.stdout)
    return {uncounted(one["text"]) for one in found if one["name"] == "deliveries" and one["fix"]}


def uncounted(text: str) -> str:
    """A line without the number that grows from look to look."""
    return re.sub(r"failed \d+ times", "failed N times", text)


async def test_a_workflow_whose_task_fails_and_one_on_a_queue_of_nobody_are_named(
    client: Client, server: str, fresh: str, tmp_path: Path
) -> None:
    lost, broken, well = f"{fresh}-lost", f"{fresh}-broken", f"{fresh}-well"
    start = client.start_workflow
    await start("Delivery", REQUEST_OF_STUCK, id=lost, task_queue="perdur")
    await start("Delivery", REQUEST_OF_STUCK, id=broken, task_queue=fresh, task_timeout=timedelta(seconds=5))
    await start("Delivery", REQUEST_OF_STUCK, id=well, task_queue=TASK_QUEUE)  # no worker yet: it only waits
    async with Worker(client, task_queue=fresh, workflows=[Broken]):
        seen = await found(client, lost, broken, **{broken: "its workflow task has failed"})
        told = await asyncio.to_thread(doctor, server, str(tmp_path))
    assert seen[lost].reason == "waits on task queue perdur, from which nobody takes work"
    assert {uncounted(f"{one.id} {one.reason}") for one in (seen[lost], seen[broken])} <= told
    assert seen[broken].reason.startswith("its workflow task has failed ")
    assert seen[broken].reason.endswith("there is no step lunch")
    assert well not in seen
    for id in (lost, broken, well):
        await client.get_workflow_handle(id).terminate()


OFTEN = timedelta(seconds=1)


@pytest.mark.timeout(120)
async def test_slots_in_use_are_counted_and_a_worker_that_left_has_none(
    client: Client, fresh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On whichever page the server has them: it remembers all that were there before, in an order of its own."""
    monkeypatch.setattr(slots, "_PAGE", 50)
    over = asyncio.Event()

    @activity.defn
    async def lasts() -> None:
        await over.wait()

    said = Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=OFTEN)
    address = client.service_client.config.target_host
    working = await Client.connect(address, namespace=client.namespace, runtime=said)

    async def counted() -> list[tuple[int, int]]:
        found = [one for one in await list_workers(client, Home(tmp_path)) if one.identity == fresh]
        return [(slot.used, slot.all) for one in found for slot in one.slots if slot.queue == fresh]

    async def used() -> bool:
        return await counted() == [(2, 3)]

    async def left() -> bool:
        found = await list_workers(client, Home(tmp_path))
        return [(one.slots, one.state) for one in found if one.identity == fresh] == [((), "leaving")]

    async with Worker(working, task_queue=fresh, activities=[lasts], max_concurrent_activities=3, identity=fresh):
        for number in range(2):
            await client.start_activity(
                lasts, id=f"{fresh}-{number}", task_queue=fresh, schedule_to_close_timeout=timedelta(seconds=100)
            )
        await until(used, 30)
        over.set()
    await until(left, 30)


def places(told: list[Event]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in told:
        found.setdefault(event.delivery or event.backlog or "", []).append(event.offset)
    return found


async def test_a_backlogs_events_are_its_own_and_its_deliveries_each_once_while_they_happen_and_afterwards(
    client: Client, fresh: str
) -> None:
    branch, since = Branch(schema="s", export="e", more="m"), datetime.now(UTC)
    branch.fails = {"more"}
    request = night({"id": "schema"}, {"id": "export", "depends_on": ["schema"]}, {"id": "more"})
    async with playing(client, branch):
        handle = await backlog(client, fresh, request)
        following = asyncio.create_task(read_all(client, fresh))
        await ended(handle)
        async with asyncio.timeout(patient(60)):
            followed = await following
        size = (await handle.describe()).history_length
        told = [event async for event in backlog_events(client, fresh)]
        assert (await handle.describe()).history_length == size, "looking costs no event"
    assert set(places(told)) == {fresh, f"{fresh}/schema", f"{fresh}/export", f"{fresh}/more"}
    assert places(told) == {id: list(range(len(offsets))) for id, offsets in places(told).items()}
    assert places(followed) == places(told)
    assert sorted(followed, key=str) == sorted(told, key=str)
    begun = [event.item for event in told if event.type == "item" and event.data["event"] == "begins"]
    assert sorted(map(str, begun)) == ["export", "more", "schema"]
    assert {event.item for event in told if event.delivery} == {"schema", "export", "more"}
    assert [str(event.type) for event in told if event.delivery is None][-1] == "ended"
    everything = [event async for event in all_events(client, since)]
    assert [event for event in everything if event.backlog == fresh] == told


async def read_all(client: Client, id: str) -> list[Event]:
    return [event async for event in backlog_events(client, id, follow=True)]


async def test_decisions_and_a_retry_are_events_of_the_backlog(client: Client, fresh: str) -> None:
    branch = Branch(schema="s")
    branch.fails = {"schema"}
    async with playing(client, branch):
        await ended(await backlog(client, fresh, night({"id": "schema"})))
        branch.fails = set()
        await Backlog(client, fresh).retry("schema", by="someone")
        await Backlog(client, fresh).result()
        told = [event async for event in backlog_events(client, fresh)]
    own = [str(event.type) for event in told if event.delivery is None]
    assert own[0] == "started"
    assert own.count("ended") == 2
    assert own.count("continued") == 1


async def test_events_of_an_unknown_id_are_refused_in_words(client: Client, fresh: str) -> None:
    with pytest.raises(BadInput, match=f"no delivery or backlog {fresh}"):
        await read_all(client, fresh)


async def test_following_ends_with_the_error_when_the_server_is_gone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    server = await ensure_server(home, say=lambda _: None)
    try:
        client = await Client.connect(server.address, namespace=server.namespace, plugins=[perdure_plugin()])
        await client.start_workflow(BACKLOG_WORKFLOW, night({"id": "a"}), id="night", task_queue="nobody")
        events = backlog_events(client, "night", follow=True)
        assert (await anext(events)).type == "started"
        following = asyncio.create_task(anext(events))
    finally:
        await asyncio.to_thread(send, server.pid, signal.SIGKILL)
        await stop_server(home)  # the Web UI's proxy with it
    async with asyncio.timeout(patient(60)):
        with pytest.raises(RPCError):
            await following
