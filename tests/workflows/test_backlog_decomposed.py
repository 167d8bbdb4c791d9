"""An item that is decomposed: what it consists of takes its place, whatever happens to its delivery meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from backlog_fixtures import Branch, backlog, ended, night, phases, until
from temporalio import activity
from temporalio.client import Client

from perdure.client.backlog import Backlog
from perdure.models.backlog.request import BacklogItem
from perdure.models.delivery.decisions import CheckPlanResult
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase, Step
from tests.deliveries import playing, waiting

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
