"""A backlog that delivers itself: order, landing one at a time, failures that stay where they belong, and its end."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from backlog_fixtures import Branch, backlog, ended, night, phases, until
from notice_fixtures import telling
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer

from perdure.client.backlog import Backlog
from perdure.local.places import temporal_binary
from perdure.models.errors import InvalidRequest
from perdure.plugin import perdure_plugin
from tests.deliveries import at, playing, reset
from tests.engine import until as until_true
from tests.receiver import Receiver, genuine
from workflows import WORKFLOWS


async def test_all_items_land_once_what_depends_on_others_after_them(client: Client, fresh: str) -> None:
    branch = Branch(api="a", page="p", docs="d")
    async with playing(client, branch):
        request = night({"id": "page", "depends_on": ["api"]}, {"id": "api"}, {"id": "docs"}, parallel=2)
        progress = await ended(await backlog(client, fresh, request))
    assert phases(progress) == {"page": "landed", "api": "landed", "docs": "landed"}
    assert sorted(branch.landed) == ["api", "docs", "page"]
    assert branch.landed.index("api") < branch.landed.index("page")
    assert branch.most <= 2
    assert progress["pull_request"] == "http://forge/1"
    assert branch.proposals[0].unlanded == {}


async def test_a_conflict_is_mended_by_the_delivery_that_has_it(client: Client, fresh: str) -> None:
    branch = Branch(one="same", two="same")
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night({"id": "one"}, {"id": "two"})))
    assert phases(progress) == {"one": "landed", "two": "landed"}
    mended = [work for work in branch.seen if work.step == "fix_landing"]
    assert [work.materials["conflict"] for work in mended] == ["s"]
    assert [what for _, what in branch.rebases].count("conflict") == 1


async def test_items_that_all_change_the_same_lines_all_land_without_a_person(client: Client, fresh: str) -> None:
    """Whoever was overtaken once, while it mended, mends the next conflict in its turn: nobody lands meanwhile."""
    names = [f"item{number}" for number in range(4)]
    branch = Branch(**dict.fromkeys(names, "same"))
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night(*({"id": name} for name in names), parallel=4)))
    assert set(phases(progress).values()) == {"landed"}, progress
    assert max(branch.rebases.count((name, "conflict")) for name in names) == 2, "somebody was overtaken"


async def test_red_as_it_lands_goes_back_to_its_own_delivery_and_others_land_meanwhile(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a", two="b")
    branch.red = {"one": 1, "two": 1}
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night({"id": "one"}, {"id": "two"})))
    assert phases(progress) == {"one": "landed", "two": "landed"}
    assert any(work.step == "fix_landing" and "report" in work.materials for work in branch.seen)


async def test_somebody_who_pushes_in_between_loses_nothing_and_the_item_lands_on_theirs(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a")
    branch.moves = 2
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night({"id": "one"})))
    assert branch.landed == ["somebody", "somebody", "one"]
    assert phases(progress) == {"one": "landed"}


async def test_a_failure_blocks_what_depends_on_it_and_nothing_else(client: Client, fresh: str) -> None:
    branch = Branch(schema="s", export="e", docs="d", more="m")
    branch.fails = {"schema"}
    items = ({"id": "schema"}, {"id": "export", "depends_on": ["schema"]}, {"id": "more", "depends_on": ["export"]})
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night(*items, {"id": "docs"})))
    assert phases(progress) == {"schema": "failed", "export": "blocked", "more": "blocked", "docs": "landed"}
    because = {item["id"]: item.get("because", "") for item in progress["items"]}
    assert because["export"].startswith("blocked by schema (tests are red")
    assert because["more"].startswith("blocked by schema")


async def test_a_failed_item_that_is_retried_lands_and_so_does_what_was_blocked(client: Client, fresh: str) -> None:
    branch = Branch(schema="s", export="e", docs="d")
    branch.fails, branch.holding = {"schema"}, {"docs": asyncio.Event()}
    request = night({"id": "schema"}, {"id": "export", "depends_on": ["schema"]}, {"id": "docs"})
    async with playing(client, branch):
        handle = await backlog(client, fresh, request)
        await until(handle, lambda at: at["export"] == "blocked")
        branch.fails = set()
        assert await handle.execute_update("retry", {"item": "schema"}) == "goes on: schema"
        await until(handle, lambda at: at["export"] == "landed")
        branch.holding["docs"].set()
        progress = await ended(handle)
    assert set(phases(progress).values()) == {"landed"}


async def test_a_skipped_item_lets_others_go_on(client: Client, fresh: str) -> None:
    branch = Branch(schema="s", export="e", docs="d")
    branch.fails, branch.holding = {"schema"}, {"docs": asyncio.Event()}
    request = night({"id": "schema"}, {"id": "export", "depends_on": ["schema"]}, {"id": "docs"})
    async with playing(client, branch):
        handle = await backlog(client, fresh, request)
        await until(handle, lambda at: at["export"] == "blocked")
        await handle.execute_update("skip", {"item": "schema", "note": "not tonight"})
        await until(handle, lambda at: at["export"] == "landed")
        branch.holding["docs"].set()
        progress = await ended(handle)
    assert phases(progress) == {"schema": "skipped", "export": "landed", "docs": "landed"}


async def test_items_are_added_edited_and_cancelled_while_it_runs(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b", three="c")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two", "depends_on": ["one"]}))
        await until(handle, lambda at: at["one"] == "building")
        await handle.execute_update("add", {"item": {"id": "three", "request": "Do three"}})
        await handle.execute_update("edit", {"item": {"id": "two", "request": "Do two at once"}})
        with pytest.raises(WorkflowUpdateFailedError) as refusal:
            await handle.execute_update("edit", {"item": {"id": "one", "request": "Other"}})
        assert isinstance(refusal.value.cause, ApplicationError)
        assert refusal.value.cause.type == "NotCounted"
        await until(handle, lambda at: (at["two"], at["three"]) == ("landed", "landed"))
        await handle.execute_update("cancel_item", {"item": "one"})
        branch.holding["one"].set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "cancelled", "two": "landed", "three": "landed"}


async def test_a_cancelled_backlog_cancels_what_runs(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await until(handle, lambda at: at["one"] == "building")
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await ended(handle)
        (one,) = (await handle.query("progress"))["items"]
        assert (one["phase"], one["because"]) == ("cancelled", "its backlog was cancelled")
        branch.holding["one"].set()
        with pytest.raises(WorkflowFailureError):
            await ended(client.get_workflow_handle(f"{fresh}/one"))


async def test_a_terminated_delivery_is_found_out_at_once(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two", "depends_on": ["one"]}))
        await until(handle, lambda at: at["one"] == "building")
        await until(handle, lambda _: branch.seen)  # it has begun
        await client.get_workflow_handle(f"{fresh}/one").terminate("by hand")
        branch.holding["one"].set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "failed", "two": "blocked"}
    assert len(branch.looks) == 1


async def test_an_item_that_is_refused_before_it_begins_says_why(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.refused = {"one": "there is no such repository"}
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night({"id": "one"}, {"id": "two", "depends_on": ["one"]})))
    items = {item["id"]: item for item in progress["items"]}
    assert (items["one"]["phase"], items["one"]["because"]) == ("failed", "there is no such repository")
    assert items["two"]["because"] == "blocked by one (there is no such repository)"
    assert branch.looks == []


async def test_a_backlog_that_is_held_begins_nothing_until_it_goes_on(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, parallel=1))
        await until(handle, lambda at: at["one"] == "building")
        await handle.signal("hold", {"note": "lunch"})
        branch.holding["one"].set()
        child = client.get_workflow_handle(f"{fresh}/one")
        await at(child, lambda progress: progress["held"])
        await handle.signal("resume", {})
        progress = await ended(handle)
    assert phases(progress) == {"one": "landed", "two": "landed"}


async def test_the_same_backlog_again_attaches_and_another_one_is_refused(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.holding = {"one": asyncio.Event()}
    request = night({"id": "one"})
    async with playing(client, branch):
        handle = await backlog(client, fresh, request)
        assert (await handle.execute_update("attach", request))["items"] == 1
        with pytest.raises(WorkflowUpdateFailedError) as refusal:
            await handle.execute_update("attach", night({"id": "two"}))
        assert "taken" in str(refusal.value.cause)
        branch.holding["one"].set()
        await ended(handle)


async def test_a_bad_backlog_is_refused_at_once(client: Client, fresh: str) -> None:
    async with playing(client, Branch()):
        handle = await backlog(client, fresh, night({"id": "one", "depends_on": ["two"]}))
        with pytest.raises(WorkflowFailureError) as refusal:
            await ended(handle)
    assert "two" in str(refusal.value.cause)


async def test_a_backlog_begun_again_adopts_what_runs_and_what_has_landed(client: Client, fresh: str) -> None:
    """Whoever terminated it, or reset it to before its deliveries began: nothing is built or landed a second time."""
    branch = Branch(one="a", two="b")
    branch.holding = {"two": asyncio.Event()}
    branch.real_looks = client
    request = night({"id": "one"}, {"id": "two"})
    async with playing(client, branch):
        handle = await backlog(client, fresh, request)
        await until(handle, lambda at: at == {"one": "landed", "two": "building"})
        await handle.terminate("by hand")
        again = await backlog(client, fresh, request)
        await until(again, lambda at: at["one"] == "landed")
        branch.holding["two"].set()
        progress = await ended(again)
    assert phases(progress) == {"one": "landed", "two": "landed"}
    assert sorted(branch.landed) == ["one", "two"]
    built = [work.delivery for work in branch.seen if work.step == "implement"]
    assert len(built) == len(set(built)) == 2


async def test_a_rewound_backlog_does_not_begin_its_deliveries_a_second_time(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.holding = {"two": asyncio.Event()}
    branch.real_looks = client
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}))
        await until(handle, lambda at: at == {"one": "landed", "two": "building"})
        await reset(handle, await first_task(handle))
        branch.holding["two"].set()
        progress = await ended(client.get_workflow_handle(fresh))
    assert phases(progress) == {"one": "landed", "two": "landed"}
    assert sorted(branch.landed) == ["one", "two"]


@pytest.mark.story
async def test_an_item_costs_its_backlog_fewer_than_forty_events(client: Client, fresh: str) -> None:
    names = [f"item{number}" for number in range(24)]
    branch = Branch(**{name: name for name in names})
    async with playing(client, branch):
        handle = await backlog(client, fresh, night(*({"id": name} for name in names), parallel=8))
        progress = await ended(handle)
        events = (await handle.describe()).history_length
        metadata = await handle.query("__temporal_workflow_metadata")
    assert "24 landed" in metadata.current_details, "made when somebody looks"
    assert set(phases(progress).values()) == {"landed"}
    assert events < 40 * len(names), events


async def first_task(handle: Any) -> int:
    """The event with which its first workflow task ended."""
    async for event in handle.fetch_history_events():
        if event.HasField("workflow_task_completed_event_attributes"):
            return int(event.event_id)
    raise AssertionError("it never began")


@pytest.mark.story
async def test_a_backlog_goes_on_in_new_runs_while_its_deliveries_run(fresh: str) -> None:
    suggested = ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=30"]
    server = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(temporal_binary()), dev_server_extra_args=suggested, ui=False
    )
    names = ["one", "two", "three", "four", "five"]
    branch = Branch(**{name: "same" if name in ("one", "two") else name for name in names})
    branch.holding = {"five": asyncio.Event()}
    async with server:
        branch.real_looks = client = await Client.connect(
            server.client.service_client.config.target_host, plugins=[perdure_plugin()]
        )
        async with playing(client, branch):
            handle = await backlog(client, fresh, night(*({"id": name} for name in names), gates=["plan"]))
            await until(handle, lambda at: [at[name] for name in names[:4]] == ["landed"] * 4)
            first = (await handle.describe()).run_id
            assert (await handle.execute_update("attach", {}))["items"] == 5
            assert await handle.execute_update("prioritise", {"item": "five", "priority": 3}) == "priority 3: five"
            branch.holding["five"].set()
            progress = await ended(client.get_workflow_handle(fresh))
            runs = [run.run_id async for run in client.list_workflows(f"WorkflowId = '{fresh}'")]
    assert set(phases(progress).values()) == {"landed"}
    assert sorted(branch.landed) == sorted(names)
    assert progress["run_id"] in runs
    assert len(runs) >= 3, (first, runs)


ITEMS = 1000
EVENTS_MOST = 40
"""Of the backlog, over all its runs, for an item."""

GROWTH_MOST = 100_000_000
"""Bytes, of this process, from the first third on: its lists of what was seen, and a tenth of what a leak of a kilobyte
an event would be."""


def item(number: int) -> dict[str, Any]:
    after = {"depends_on": [f"item{number - 100}", f"item{number - 99}"]} if number >= 100 else {}
    return {"id": f"item{number}", "touches": [f"src/part{number % 97}/**", f"tests/test_part{number}.py"], **after}


@pytest.mark.slow
@pytest.mark.timeout(3000)
async def test_a_thousand_items_cost_few_events_each_and_no_memory(client: Client, fresh: str) -> None:
    names = [f"item{number}" for number in range(ITEMS)]
    branch = Branch(**{name: name for name in names})
    branch.real_looks, branch.price = client, 0.0  # a price would be counted over all of them
    memory = []
    async with playing(client, branch, within=2900):
        handle = await backlog(client, fresh, night(*map(item, range(ITEMS)), parallel=20))
        result = asyncio.create_task(handle.result())
        while not result.done():
            await asyncio.wait([result], timeout=5)
            memory.append((len(branch.landed), psutil.Process(os.getpid()).memory_info().rss))
            print(len(branch.landed), memory[-1][1] // 1_000_000, "MB", flush=True)
        progress = result.result()
    assert {one["phase"] for one in progress["items"]} == {"landed"}
    assert sorted(branch.landed) == sorted(names), "each once"
    runs = [run async for run in client.list_workflows(f"WorkflowId = '{fresh}'")]
    events, failed = 0, 0
    for run in runs:
        history = await history_of(client.get_workflow_handle(fresh, run_id=run.run_id))
        events += len(history)
        failed += sum(event.HasField("workflow_task_failed_event_attributes") for event in history)
        failed += sum(event.HasField("workflow_task_timed_out_event_attributes") for event in history)
    print(f"{events / ITEMS:.1f} events an item, {len(runs)} runs, {failed} tasks failed or timed out")
    assert len(runs) > 5
    assert events < EVENTS_MOST * ITEMS, events
    first = next(rss for landed, rss in memory if landed > ITEMS / 3)
    assert memory[-1][1] - first < GROWTH_MOST, memory


async def history_of(handle: WorkflowHandle[Any, Any]) -> list[Any]:
    return [event async for event in handle.fetch_history_events()]


GONE = "branch main is not on the remote any more"


async def test_one_that_cannot_begin_says_why_and_begins_once_that_is_out_of_the_way(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a")
    branch.unopened = ("ForgeRefused", GONE)
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        with pytest.raises(WorkflowFailureError) as failed:
            await ended(handle)
        assert str(failed.value.cause) == f"BacklogFailed: {GONE}"
        known = Backlog(client, fresh)
        for progress in (await known.progress(), await known.result()):
            assert (progress.status, progress.message, progress.waiting) == ("failed", GONE, "")
        metadata = await handle.query("__temporal_workflow_metadata")
        assert GONE in metadata.current_details
        branch.unopened = None
        assert await known.retry() == f"{fresh} runs again"
        assert phases((await known.result()).model_dump()) == {"one": "landed"}


async def test_a_mistake_in_it_that_shows_only_as_it_opens_is_told_as_one(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.unopened = ("InvalidRequest", "branch: 'a b' cannot be a branch's name")
    async with playing(client, branch):
        await backlog(client, fresh, night({"id": "one"}))
        with pytest.raises(InvalidRequest, match="'a b' cannot be a branch's name"):
            await Backlog(client, fresh).result()
        assert (await Backlog(client, fresh).progress()).status == "failed"


async def test_one_that_was_terminated_is_not_shown_as_running(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await until(handle, lambda at: at["one"] == "building")
        await handle.terminate("by hand")
        assert (await Backlog(client, fresh).progress()).status == "terminated"
        branch.holding["one"].set()
        with suppress(RPCError):  # a busy worker may not have started it
            await client.get_workflow_handle(f"{fresh}/one").terminate()


ITEMS_OF_TOLD = ({"id": "schema", "issue": 13}, {"id": "export", "depends_on": ["schema"]}, {"id": "docs", "issue": 14})


async def test_its_end_is_told_with_its_numbers_and_its_pull_request(
    client: Client, fresh: str, tmp_path: Path
) -> None:
    branch = Branch(schema="s", export="e", docs="d")
    branch.fails, branch.notifies, branch.lists, branch.found = {"schema"}, True, True, (13, 14)
    async with Receiver.open() as receiver, telling(client, branch, tmp_path, receiver.url):
        handle = await backlog(client, fresh, night(*ITEMS_OF_TOLD))
        progress = dict(await handle.result())
        (told,) = await until_true(lambda: receiver.of("ended"))
        assert genuine(told)
        assert told.json["words"].startswith("1 failed · 1 blocked · 1 landed")
        assert told.json["links"]["pull_request"] == progress["pull_request"] == "http://forge/1"
        assert (told.json["delivery_id"], told.json["result"]["backlog_id"]) == (fresh, fresh)
        assert [item["phase"] for item in told.json["result"]["items"]] == ["failed", "blocked", "landed"]
        assert told.json["text"].startswith("*Ended: 1 failed · 1 blocked · 1 landed")
        assert branch.issues == (14,), "what landed is done, what failed is not"
        assert told.json["request"] == "3 items: schema, export, docs"
        listed = {pair.key.name: pair.value for pair in (await handle.describe()).typed_search_attributes}
        assert listed["PerdureTitle"] == told.json["request"]
    history = await handle.fetch_history()
    await Replayer(workflows=WORKFLOWS, plugins=[perdure_plugin()]).replay_workflow(history)


async def test_a_cancelled_one_is_told_and_one_that_nobody_wants_to_hear_of_is_not(
    client: Client, fresh: str, tmp_path: Path
) -> None:
    branch = Branch(schema="s", export="e", docs="d")
    branch.holding, branch.notifies = {"schema": asyncio.Event()}, True
    async with Receiver.open() as receiver, telling(client, branch, tmp_path, receiver.url):
        handle = await backlog(client, fresh, night(ITEMS_OF_TOLD[0]))
        await until(handle, lambda at: at["schema"] == "building")
        await handle.cancel()
        branch.holding["schema"].set()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        (told,) = await until_true(lambda: receiver.of("ended"))
        assert told.json["result"]["status"] == "cancelled"
        branch.notifies = False
        await (await backlog(client, f"{fresh}-2", night(ITEMS_OF_TOLD[2]))).result()
        assert len(receiver.of("ended")) == 1


async def test_the_issues_that_are_open_when_it_begins_are_its_items(client: Client, fresh: str) -> None:
    branch = Branch(**{"issue-7": "a", "issue-8": "b"})
    branch.found = (7, 8)
    async with playing(client, branch):
        progress = dict(await (await backlog(client, fresh, {"repository": "/r", "issues": "label:bug"})).result())
        branch.found = ()
        nothing = dict(
            await (await backlog(client, f"{fresh}-2", {"repository": "/r", "issues": "label:bug"})).result()
        )
    assert [(item["id"], item["phase"]) for item in progress["items"]] == [("issue-7", "landed"), ("issue-8", "landed")]
    assert branch.issues == (7, 8)
    assert (nothing["status"], nothing["message"]) == ("ended", "nothing landed")


@pytest.mark.parametrize("land", ["branch", "stack"])
async def test_an_issue_that_was_built_the_night_before_is_left_out_and_named(
    client: Client, fresh: str, land: str
) -> None:
    branch = Branch(**{"issue-8": "b"})
    branch.found, branch.proposed = (8,), {7: 31}
    async with playing(client, branch):
        handle = await backlog(client, fresh, {"repository": "/r", "issues": "label:bug", "land": land})
        progress = await ended(handle)
    assert [(item["id"], item["phase"]) for item in progress["items"]] == [("issue-8", "landed")]
    assert progress["notes"] == ["#7 is left out: #31 is open for it"]
