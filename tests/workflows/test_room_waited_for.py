"""A delivery and a backlog wait until there is room among others of the repository, and say so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, night, until
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from activities.concurrency_limit import _list_other_deliveries
from perdure.models.backlog.landing import OpenBacklogInput
from perdure.models.backlog.state import OpenBacklogResult
from perdure.models.concurrency_limit import ConcurrencyCheckInput, ConcurrencyCheckResult, limit_reason
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from tests.deliveries import BUILT, Script, at, playing
from tests.waiting import patient

NONE = "3 pull requests are open (limit 3)"


class Full:
    """No room so many times that somebody asks to be let in."""

    def __init__(self, times: int) -> None:
        self.times, self.asked = times, list[Any]()

    def answer(self, work: Any) -> ConcurrencyCheckResult:
        self.asked.append(work)
        words = NONE if self.times > 0 else ""
        if work.waits:
            self.times -= 1
            if words:
                raise ApplicationError(words, type="NoRoom")
        return ConcurrencyCheckResult(reason=words)

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn
        async def find_room(work: ConcurrencyCheckInput) -> ConcurrencyCheckResult:
            return self.answer(work)

        @activity.defn
        async def backlog_room(work: OpenBacklogInput) -> ConcurrencyCheckResult:
            return self.answer(work)

        return [find_room, backlog_room]


class Limited(Script):
    def __init__(self, full: Full) -> None:
        super().__init__()
        self.full = full
        self.asks(Phase.BUILD, is_shared=True)

    def activities(self) -> list[Callable[..., Any]]:
        return [*super().activities(), *self.full.activities()]


class LimitedBranch(Branch):
    def __init__(self, full: Full, **changes: str) -> None:
        super().__init__(**changes)
        self.full = full

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn
        async def open_backlog(work: OpenBacklogInput) -> OpenBacklogResult:
            return OpenBacklogResult(
                base="main",
                base_sha="b",
                branch="perdure/night",
                queue=TASK_QUEUE,
                frees_waiting_slots=True,
                limits_pull_requests=True,
            )

        kept = [one for one in super().activities() if getattr(one, "__name__", "") != "open_backlog"]
        return [*kept, open_backlog, *self.full.activities()]


@pytest.mark.story
async def test_a_delivery_waits_for_room_before_it_pays_for_anything_and_says_why(client: Client, fresh: str) -> None:
    script = Limited(Full(1))
    async with playing(client, script):
        handle = await client.start_workflow("Delivery", BUILT, id=fresh, task_queue=TASK_QUEUE)
        shown = await at(handle, lambda progress: progress.get("waiting") == NONE)
        assert not script.seen
        assert shown["phase"] is None
        result: dict[str, Any] = await asyncio.wait_for(handle.result(), patient(40))
        events = (await handle.describe()).history_length
    assert result["status"] == "completed"
    assert [work.waits for work in script.full.asked] == [False, True, True]
    assert script.full.asked[0].repository == BUILT["repository"]
    assert events < 60


@pytest.mark.story
async def test_where_no_limit_is_set_nobody_asks(client: Client, fresh: str) -> None:
    script = Limited(Full(1))
    script.asks(Phase.BUILD)
    async with playing(client, script):
        handle = await client.start_workflow("Delivery", BUILT, id=fresh, task_queue=TASK_QUEUE)
        await asyncio.wait_for(handle.result(), patient(40))
    assert script.full.asked == []


@pytest.mark.story
async def test_a_backlog_begins_nothing_until_there_is_room_for_its_pull_request(client: Client, fresh: str) -> None:
    branch = LimitedBranch(Full(2), one="a")
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await at(handle, lambda progress: progress.get("waiting") == NONE)
        assert (await until(handle, lambda _: True))["one"]["phase"] == "ready"
        await until(handle, lambda at: at["one"] == "landed")
    assert [work.waits for work in branch.full.asked] == [False, True, True, True]


@pytest.mark.story
async def test_an_item_says_why_it_stands_where_others_of_the_repository_run(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.settings["is_shared"] = True
    room = Full(2)
    made = branch.activities
    branch.activities = lambda: [*made(), *room.activities()]  # type: ignore[method-assign]
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        async with asyncio.timeout(patient(40)):
            while (shown := (await until(handle, lambda _: True))["one"]).get("because") != NONE:
                await asyncio.sleep(0.05)
        assert shown["phase"] == "building"
        progress: dict[str, Any] = await asyncio.wait_for(handle.result(), patient(40))
    assert progress["items"][0]["phase"] == "landed"


@workflow.defn(name="TwoItems", sandboxed=False)
class TwoItems:
    """A parent of deliveries that nobody works on: they are listed, and have shown nothing."""

    @workflow.run
    async def run(self, ids: list[str]) -> None:
        for id in ids:
            await workflow.start_child_workflow("Delivery", {}, id=id, task_queue="nobody")
        await workflow.wait_condition(lambda: False)


async def test_of_two_items_that_are_not_prepared_the_older_one_goes_first(client: Client, fresh: str) -> None:
    first, second = f"{fresh}/first", f"{fresh}/second"
    async with Worker(client, task_queue=fresh, workflows=[TwoItems]):
        handle: Any = await client.start_workflow("TwoItems", [first, second], id=fresh, task_queue=fresh)
        async with asyncio.timeout(patient(60)):
            while not await _list_other_deliveries(client, "/r.git", second, "") or not await _list_other_deliveries(
                client, "/r.git", first, ""
            ):
                await asyncio.sleep(0.05)
        assert limit_reason(1, None, await _list_other_deliveries(client, "/r.git", first, ""), 0) == ""
        assert "before this one (limit 1)" in limit_reason(
            1, None, await _list_other_deliveries(client, "/r.git", second, ""), 0
        )
        await handle.terminate()
