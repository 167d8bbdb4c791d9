"""One reading of all that runs: it wakes nobody, waits first, and calls nobody silent for its own delay."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from perdure.client import Perdure
from perdure.client.server import overview
from perdure.client.server.overview import SILENT_S, Overview, OverviewRow, add_work_in_flight
from perdure.client.server.view import PendingActivity, RunDescription
from perdure.models.delivery.decisions import PendingDecision
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.ids import MORE_ATTRIBUTES
from perdure.models.phases import Phase
from tests.deliveries import Script, playing
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
