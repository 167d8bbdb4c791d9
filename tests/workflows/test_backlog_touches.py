"""Files that a backlog learns from plans, and items that take the place of a decomposed one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, ended, night, phases, until
from temporalio import activity
from temporalio.client import Client

from perdure.client.backlog import Backlog
from perdure.models.backlog.request import BacklogItem
from perdure.models.delivery.decisions import CheckPlanResult
from perdure.models.delivery.turn import Outcome, TurnInput, TurnResult
from perdure.models.ids import delivery_key
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase, Step
from perdure.models.rules import scheduling
from tests.deliveries import playing, waiting
from tests.waiting import patient

SHIPPED = (Phase.PLAN, Phase.BUILD, Phase.TEST, Phase.REVIEW, Phase.SHIP)


class Planned(Branch):
    """Items whose plans name files; `begins`: those that build when the event is set, by item."""

    def __init__(self, **plans: str) -> None:
        super().__init__(**plans)
        self.plans_of = {item: files.split() for item, files in plans.items()}
        self.begins: dict[str, asyncio.Event] = {}
        self.reviews: dict[str, asyncio.Event] = {}

    async def plays(self, work: TurnInput) -> TurnResult:
        if work.step is Step.IMPLEMENT and (event := self.begins.get(self.item(work.delivery))):
            await event.wait()
        if work.step is Step.REVIEW and (event := self.reviews.get(self.item(work.delivery))):
            await event.wait()
        return await super().plays(work)

    def outcome(self, work: TurnInput) -> Outcome:
        made = super().outcome(work)
        if work.step is Step.PLAN:
            return made.model_copy(update={"data": made.data | {"touches": self.plans_of[self.item(work.delivery)]}})
        return made


async def test_an_item_does_not_begin_beside_one_whose_plan_names_the_same_files(client: Client, fresh: str) -> None:
    branch = Planned(first="docs/a.md", app="src/app.py", page="src/page.py", docs="docs/b.md")
    branch.asks(*SHIPPED)
    branch.begins = {"first": asyncio.Event(), "app": asyncio.Event()}
    items = (
        {"id": "first"},
        {"id": "app"},
        {"id": "page", "touches": ["src/**"], "depends_on": ["first"]},
        {"id": "docs", "touches": ["docs/**"], "depends_on": ["first"]},
    )
    async with playing(client, branch):
        handle = await backlog(client, fresh, night(*items))
        await until(handle, lambda _: len([work for work in branch.seen if work.step is Step.IMPLEMENT]) == 2)
        branch.begins["first"].set()
        shown = await until(handle, lambda at: at["docs"] == "landed")
        assert (shown["page"]["phase"], shown["page"]["because"]) == ("ready", "after app: same files")
        branch.begins["app"].set()
        progress: dict[str, Any] = await asyncio.wait_for(handle.result(), patient(40))
    assert {item["phase"] for item in progress["items"]} == {"landed"}
    assert branch.landed.index("app") < branch.landed.index("page")


async def test_a_conflict_foreseen_at_a_commit_is_shown_on_both_until_one_has_landed(
    client: Client, fresh: str
) -> None:
    branch = Planned(app="src/app.py", page="src/page.py")
    branch.asks(*SHIPPED)
    branch.conflicts = {"page": {delivery_key(f"{fresh}/app"): "src/app.py"}}
    branch.begins = {"app": asyncio.Event()}
    branch.reviews = {"page": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "app"}, {"id": "page"}))
        shown = await until(handle, lambda _: True)
        async with asyncio.timeout(patient(40)):
            while not (shown["app"].get("because") and shown["page"].get("because")):
                await asyncio.sleep(0.05)
                shown = await until(handle, lambda _: True)
        assert shown["app"]["because"] == "likely to conflict with page in src/app.py"
        assert shown["page"]["because"] == "likely to conflict with app in src/app.py"
        branch.reviews["page"].set()
        shown = await until(handle, lambda at: at["page"] == "landed")
        assert not shown["app"].get("because")
        branch.begins["app"].set()
        await asyncio.wait_for(handle.result(), patient(40))


async def test_who_waits_for_a_person_leaves_its_slot_and_goes_on_beyond_it(
    client: Client, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "SLOT_KEPT", timedelta(seconds=1))
    branch = Planned(one="a", two="b", three="c", four="d")
    branch.asks(*SHIPPED, gates=("plan",))
    items = [{"id": name} for name in ("one", "two", "three")]
    async with playing(client, branch):
        handle = await backlog(client, fresh, night(*items, parallel=1))
        shown = await until(handle, lambda at: (at["one"], at["two"]) == ("waits", "waits"))
        assert shown["three"]["phase"] == "ready"
        full = await until(handle, lambda at: at["three"] == "ready")
        assert not branch.landed
        for item in ("one", "two"):
            decided = {"of": full[item]["of"] or shown[item]["of"]}
            await client.get_workflow_handle(f"{fresh}/{item}").execute_update("approve", decided)
        third = await until(handle, lambda at: at["three"] == "waits")
        await client.get_workflow_handle(f"{fresh}/three").execute_update("approve", {"of": third["three"]["of"]})
        progress: dict[str, Any] = await asyncio.wait_for(handle.result(), patient(40))
    assert {item["phase"] for item in progress["items"]} == {"landed"}


async def test_items_with_plans_and_conflicts_cost_their_backlog_fewer_than_forty_events(
    client: Client, fresh: str
) -> None:
    names = [f"item{number}" for number in range(6)]
    branch = Planned(**{name: f"src/{name}.py" for name in names})
    branch.asks(*SHIPPED)
    branch.conflicts = {name: {delivery_key(f"{fresh}/{names[0]}"): "src/app.py"} for name in names[1::3]}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night(*({"id": name} for name in names), parallel=4))
        await asyncio.wait_for(handle.result(), patient(50))
        events = (await handle.describe()).history_length
    assert events < 40 * len(names), events


PARTS = (BacklogItem(id="api", request="Do api"), BacklogItem(id="page", request="Do page", depends_on=("api",)))


class Parts(Branch):
    """Whatever is decomposed consists of PARTS."""

    def __init__(self) -> None:
        super().__init__(api="a", page="p", docs="d", big="b")
        self.asks(Phase.BUILD, Phase.TEST, Phase.REVIEW, Phase.SHIP, test_fixes=0, gates=("items",))

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn(name=Step.DECOMPOSE)
        async def take(work: TurnInput) -> TurnResult:
            self.seen.append(work)
            done = await self.turn(work)
            assert done.outcome is not None
            made = {
                "artifact": f"{len(self.seen):0>64x}",
                "data": {"title": f"{len(PARTS)} items", "words": "api\npage"},
            }
            return done.model_copy(update={"outcome": done.outcome.model_copy(update=made)})

        @activity.defn
        async def check_plan(work: Any) -> CheckPlanResult:
            assert work["items"]
            return CheckPlanResult(title="2 items", items=PARTS)

        kept = [one for one in super().activities() if getattr(one, "__name__", "") != "check_plan"]
        return [*kept, take, check_plan]


def large(**more: Any) -> dict[str, Any]:
    return night({"id": "big", "decompose": "ask", **more}, {"id": "docs", "depends_on": ["big"]})


async def test_its_parts_land_once_approved_and_what_depends_on_it_after_all_of_them(
    client: Client, fresh: str
) -> None:
    branch = Parts()
    async with playing(client, branch):
        handle, night_ = await backlog(client, fresh, large()), Backlog(client, fresh)
        items = await until(handle, lambda phases: phases["big"] == "waits")
        assert (items["big"]["gate"], items["docs"]["phase"]) == ("items", "after")
        await night_.hold("let me read")
        await night_.decide("big", "reject", {"note": "as few as make sense"})
        await night_.resume()
        child = client.get_workflow_handle(f"{fresh}/big")
        await waiting(child, behind=items["big"]["of"])
        items = await until(handle, lambda phases: phases["big"] == "waits")
        await night_.decide("big", "approve", {"of": items["big"]["of"]})
        progress = await ended(handle)
        result = await child.result()
    assert phases(progress) == {"big": "decomposed", "docs": "landed", "api": "landed", "page": "landed"}
    assert branch.landed == ["api", "page", "docs"]
    assert progress["pull_request"]
    assert (result["status"], result["message"]) == ("completed", "decomposed into 2 items")
    assert [item["id"] for item in result["items"]] == ["api", "page"]
    told = [work.materials for work in branch.seen if work.step == "decompose"]
    assert [one.get("words") for one in told] == [None, "as few as make sense"]
    assert {work.step for work in branch.seen if work.delivery == branch.seen[0].delivery} == {"decompose"}


async def test_in_a_stack_its_parts_stand_on_what_it_stood_on_and_what_depends_on_it_on_them(
    client: Client, fresh: str
) -> None:
    branch = Parts()
    branch.settings["gates"] = ()
    items = (
        {"id": "low"},
        {"id": "big", "decompose": "go", "depends_on": ["low"]},
        {"id": "docs", "depends_on": ["big"]},
    )
    branch.changes["low"] = {"l"}
    async with playing(client, branch):
        progress = await ended(await backlog(client, fresh, night(*items, land="stack")))
    assert phases(progress) == {"big": "decomposed", **dict.fromkeys(("low", "api", "page", "docs"), "landed")}
    assert [(work.branch, work.base) for work in branch.shipped] == [
        ("p/low", "main"),
        ("p/api", "p/low"),
        ("p/page", "p/api"),
        ("p/docs", "p/page"),
    ]


async def test_one_that_ended_and_told_nobody_is_found_with_its_parts(client: Client, fresh: str) -> None:
    branch = Parts()
    branch.real_looks = client
    async with playing(client, branch):
        place = {"backlog": fresh, "item": "big", "branch": "perdure/night", "decompose": "go"}
        request = {"repository": "/r", "request": "Do big", "phases": ["plan"], "landing": place}
        branch.settings["gates"] = ()
        await client.execute_workflow("Delivery", request, id=f"{fresh}/big", task_queue=TASK_QUEUE)
        progress = await ended(await backlog(client, fresh, large(decompose="go")))
    assert phases(progress) == {"big": "decomposed", "docs": "landed", "api": "landed", "page": "landed"}


async def test_one_that_is_cancelled_at_its_gate_blocks_what_depends_on_it_until_it_is_tried_again(
    client: Client, fresh: str
) -> None:
    branch = Parts()
    async with playing(client, branch):
        request = large()
        request["items"].append({"id": "api", "request": "Do api"})
        handle, night_ = await backlog(client, fresh, request), Backlog(client, fresh)
        branch.holding["api"] = held = asyncio.Event()
        await until(handle, lambda phases: phases["big"] == "waits")
        await night_.cancel_item("big")
        items = await until(handle, lambda phases: phases["big"] == "cancelled")
        assert items["docs"]["phase"] == "blocked"
        await night_.retry("big")
        await until(handle, lambda phases: phases["big"] == "waits")
        await night_.decide("big", "approve", {})
        await until(handle, lambda phases: "api-2" in phases)
        branch.changes["api-2"] = {"x"}
        held.set()
        progress = await ended(handle)
    want = {"big": "decomposed", "docs": "landed", "api": "landed", "api-2": "landed", "page": "landed"}
    assert phases(progress) == want, "an id that was taken got a number"
    assert branch.landed.index("api-2") < branch.landed.index("page")
