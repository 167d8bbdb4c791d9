"""Files that a backlog learns from plans, and slots that those leave who wait for a person."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, night, until
from temporalio.client import Client

from perdure.models.delivery.turn import Outcome, TurnInput, TurnResult
from perdure.models.ids import delivery_key
from perdure.models.phases import Phase, Step
from perdure.models.rules import scheduling
from tests.deliveries import playing
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
