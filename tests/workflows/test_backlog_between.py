"""Messages to a backlog that come in between: while its items are begun, while it ends, before a delivery closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, ended, night, phases, until
from temporalio import activity
from temporalio.client import Client, WorkflowUpdateFailedError

from perdure.models.backlog.landing import PriorityInput, PriorityResult
from tests.deliveries import playing
from tests.waiting import patient
from tests.waiting import until as once


class Slow(Branch):
    """A delivery's priority takes its time."""

    def __init__(self, **changes: str) -> None:
        super().__init__(**changes)
        self.asked, self.answers = 0, asyncio.Event()

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn
        async def prioritise_delivery(work: PriorityInput) -> PriorityResult:
            self.asked += 1
            await self.answers.wait()
            return PriorityResult()

        others = [one for one in super().activities() if one.__name__ != "prioritise_delivery"]
        return [*others, prioritise_delivery]


def vouched(**changes: str) -> Branch:
    """Its items begin once somebody says so."""
    branch = Branch(**changes)
    branch.vouching = asyncio.Event()
    return branch


@pytest.mark.parametrize("change", ["skip", "cancel_item"])
async def test_an_item_that_is_left_out_while_another_is_begun_does_not_begin(
    client: Client, fresh: str, change: str
) -> None:
    branch = vouched(one="a", two="b")
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, proof="x"))
        await once(lambda: branch.called["vouch"])
        await handle.execute_update(change, {"item": "two"})
        assert branch.vouching is not None
        branch.vouching.set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "landed", "two": "skipped" if change == "skip" else "cancelled"}
    assert branch.landed == ["one"]


async def test_an_item_that_is_to_wait_for_another_one_since_just_now_waits(client: Client, fresh: str) -> None:
    branch = vouched(one="a", two="b")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, proof="x"))
        await once(lambda: branch.called["vouch"])
        await handle.execute_update("edit", {"item": {"id": "two", "request": "x", "depends_on": ["one"]}})
        assert branch.vouching is not None
        branch.vouching.set()
        await once(lambda: branch.seen)
        await asyncio.sleep(1)  # it would have begun by then
        assert (await until(handle, lambda _: True))["two"]["phase"] == "after"
        branch.holding["one"].set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "landed", "two": "landed"}
    assert branch.landed == ["one", "two"]


async def test_an_item_that_is_cancelled_as_it_begins_is_not_built(client: Client, fresh: str) -> None:
    branch = vouched(one="a", two="b")
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two", "depends_on": ["one"]}, proof="x"))
        await once(lambda: branch.called["vouch"])
        await handle.execute_update("cancel_item", {"item": "one"})
        assert branch.vouching is not None
        branch.vouching.set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "cancelled", "two": "blocked"}
    assert branch.landed == []


async def test_what_is_held_as_it_begins_is_held(client: Client, fresh: str) -> None:
    branch = vouched(one="a", two="b")
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, proof="x"))
        await once(lambda: branch.called["vouch"])
        await handle.signal("hold", {"note": "lunch"})
        await until(handle, lambda _: True)
        assert branch.vouching is not None
        branch.vouching.set()
        await asyncio.sleep(2)  # were it not held, both would have landed by then
        assert (await handle.query("progress"))["held"] == "held: lunch"
        assert branch.landed == []
        assert [work.step for work in branch.seen] == []
        await handle.signal("resume", {})
        progress = await ended(handle)
    assert phases(progress) == {"one": "landed", "two": "landed"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("add", {"item": {"id": "three", "request": "x"}}),
        ("retry", {"item": "two"}),
        ("skip", {"item": "two"}),
    ],
)
async def test_what_is_asked_of_a_backlog_as_it_ends_is_done(
    client: Client, fresh: str, change: str, said: dict[str, Any]
) -> None:
    branch = Branch(one="a", two="b", three="c", after="d")
    branch.fails, branch.closing = {"two"}, asyncio.Event()
    async with playing(client, branch):
        handle = await backlog(
            client, fresh, night({"id": "one"}, {"id": "two"}, {"id": "after", "depends_on": ["two"]})
        )
        await once(lambda: branch.called["close_backlog"])
        branch.fails = set()
        await handle.execute_update(change, said)
        branch.closing.set()
        progress = await ended(handle)
    found = phases(progress)
    assert {"add": found.get("three"), "retry": found["two"], "skip": found["after"]}[change] == "landed", found
    assert progress["status"] == "ended"


async def test_a_backlog_that_has_said_that_it_ended_takes_nothing_more(client: Client, fresh: str) -> None:
    """It waits for an answer that somebody still gets, and nobody is told that more will be done."""
    slow = Slow(one="a")
    slow.holding = {"one": asyncio.Event()}
    async with playing(client, slow):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await once(lambda: slow.seen)
        asked = asyncio.create_task(handle.execute_update("prioritise", {"item": "one", "priority": 5}))
        await once(lambda: slow.asked)
        slow.holding["one"].set()
        async with asyncio.timeout(patient(40)):
            while (await handle.query("progress"))["status"] != "ended":
                await asyncio.sleep(0.05)
        for change, said in (("add", {"item": {"id": "two", "request": "x"}}), ("follow", {})):
            with pytest.raises(WorkflowUpdateFailedError) as refusal:
                await handle.execute_update(change, said)
            assert "it has ended just now: nothing was changed" in str(refusal.value.cause)
        slow.answers.set()
        assert (await asked).startswith("priority 5: one")
        assert list(phases(await ended(handle))) == ["one"]


async def test_an_item_that_is_tried_again_before_its_delivery_has_closed_goes_on(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.holding, branch.real_looks = {"one": asyncio.Event()}, client
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}))
        branch.changes["two"] = {"b"}
        branch.holding["two"] = asyncio.Event()
        await once(lambda: branch.seen)
        await handle.execute_update("cancel_item", {"item": "one"})
        branch.holding["one"].set()

        async def again() -> None:
            while True:
                try:
                    await handle.execute_update("retry", {"item": "one"})
                except WorkflowUpdateFailedError:
                    continue
                return

        async with asyncio.timeout(patient(40)):
            await again()
        branch.holding["two"].set()
        progress = await ended(handle)
    assert phases(progress) == {"one": "landed", "two": "landed"}, [i["because"] for i in progress["items"]]
