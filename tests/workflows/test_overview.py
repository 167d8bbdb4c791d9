"""One reading of all that runs: it wakes nobody, waits first, and calls nobody silent for its own delay."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from perdure.client import overview
from perdure.client.overview import SILENT_S, Overview, Row, with_work
from perdure.client.view import Described, Pending
from perdure.models.decisions import Asked
from tests.waiting import PATIENCE

LONG_AGO = datetime(2026, 1, 2, 12, tzinfo=UTC)
REQUEST = {"repository": "/r", "request": "Add sub", "phases": ["build"]}


@pytest.mark.parametrize("silence", [0.0, SILENT_S, SILENT_S + 1])
def test_a_worker_is_silent_where_it_was_when_asked_about_and_not_because_nobody_asked_since(silence: float) -> None:
    row = Row("d", "delivery", "calc", "build", "running", None, None, LONG_AGO, None, None)
    heard = LONG_AGO - timedelta(seconds=silence)
    work = Pending("implement", 1, {"turn": 3, "doing": "pytest -q"}, "", "1@host", heard=heard)
    described = Described(WorkflowExecutionStatus.RUNNING, "r", LONG_AGO, None, (work,), None)
    shown = with_work(row, described, LONG_AGO)
    assert (shown.turn, shown.doing, shown.worker) == (3, "pytest -q", "1@host")
    assert shown.silent_since == (heard if silence > SILENT_S else None)


@pytest.mark.timeout(120)
async def test_what_waits_is_first_and_looking_at_it_gives_its_history_no_event(client: Client, fresh: str) -> None:
    asked = Asked(gate="plan", of="1a2b3c4d", words="approve the plan: Add sub", since=LONG_AGO)
    status = SearchAttributeKey.for_keyword("PerdureStatus")
    for id, memo in ((f"{fresh}-runs", {}), (fresh, {"asked": asked.model_dump(mode="json")})):
        await client.start_workflow(
            "Delivery", REQUEST, id=id, task_queue="nobody-works-here", memo=memo,
            search_attributes=TypedSearchAttributes([SearchAttributePair(status, "waiting" if memo else "running")]),
        )  # fmt: skip
    before = await client.get_workflow_handle(fresh).fetch_history()
    look = Overview(client)
    async with asyncio.timeout(PATIENCE):
        while len(rows := [row for row in await look.rows() if row.id.startswith(fresh)]) < 2:
            await asyncio.sleep(0.2)
    for _ in range(3):
        await asyncio.sleep(overview.LOOK_S)
        rows = [row for row in await look.rows() if row.id.startswith(fresh)]
    assert [(row.id, row.waits) for row in rows] == [(fresh, True), (f"{fresh}-runs", False)]
    assert rows[0].asked == asked
    after = await client.get_workflow_handle(fresh).fetch_history()
    assert [event.event_id for event in after.events] == [event.event_id for event in before.events]
    assert not look.trouble
