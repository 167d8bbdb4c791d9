"""What waits for a slot of a worker says so wherever somebody looks, and nothing is asked or claimed otherwise."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import Worker

from perdure.client import ListEntry, Perdure
from perdure.client.server.overview import Overview
from perdure.client.server.slots import explain_queue_waits, mark_queue_waits, queue_wait_text
from perdure.client.server.view import PendingActivity, RunDescription
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.phases import Phase
from perdure.plugin import perdure_plugin
from perdure.render.lists import delivery_rows
from perdure.render.progress_lines import ProgressReporter, current_lines
from tests.deliveries import Script, playing
from tests.waiting import until

REQUEST = {"repository": "/r", "request": "Add sub", "phases": ["build"]}
BUSY = "waits for a slot: 2 of 2 busy"


@pytest.mark.timeout(180)
async def test_a_delivery_that_waits_for_a_slot_says_so_and_no_longer_once_it_has_one(
    client: Client, fresh: str
) -> None:
    script, over = Script(), asyncio.Event()

    async def builds(work: TurnInput) -> TurnResult:
        await over.wait()
        return await script.builds(work)

    script.phases, script.turn = (Phase.BUILD,), builds
    script.settings = {"queue": fresh, "attributes": True}
    reporting = Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=timedelta(seconds=1))
    address = client.service_client.config.target_host
    working = await Client.connect(address, namespace=client.namespace, runtime=reporting, plugins=[perdure_plugin()])
    host = Worker(working, task_queue=fresh, activities=script.activities(), max_concurrent_activities=2)
    perdure, look = Perdure(client), Overview(client)
    async with playing(client, script, 100), host:
        deliveries = [(await perdure.submit(REQUEST, id=f"{fresh}-{number}")).delivery for number in range(4)]

        async def waits() -> list[str] | None:
            texts = [one.queue_wait for delivery in deliveries for one in (await delivery.describe()).pending]
            return texts if len(texts) == 4 and texts.count("") == 2 and f"{BUSY}, 1 other waiting" in texts else None

        await until(waits, 20)
        described = {delivery.id: (await delivery.describe()).pending for delivery in deliveries}
        waiting = {id for id, pending in described.items() if pending[0].queue_wait}
        assert len(waiting) == 2

        listed = await mark_queue_waits(client, await perdure.list(query=f"WorkflowId STARTS_WITH '{fresh}'"))
        assert {entry.delivery_id for entry in listed if entry.held.startswith(BUSY)} == waiting
        assert all(entry.since is not None and entry.since < datetime.now(UTC) for entry in listed if entry.held)
        rows = delivery_rows(listed, None)
        assert [any(id in row for id in waiting) for row in rows] == [BUSY in row for row in rows]
        assert {row.id for row in await look.rows() if row.doing.startswith(BUSY)} == waiting

        (id, *_) = waiting
        progress = await perdure.delivery(id).progress()
        assert BUSY in current_lines(progress, described[id])[-1].text
        reporter = ProgressReporter()
        lines = [line for _ in range(2) for line in reporter.new_lines(progress, described[id])]
        assert [BUSY in line for line in lines].count(True) == 1, "it is said once, not at each look"

        over.set()
        assert [(await delivery.result()).status for delivery in deliveries] == ["completed"] * 4


NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("queued_s", "reports", "length", "text"),
    [
        (5, [("q", 2, 2, 4)], 4, "waits for a slot: 2 of 2 busy, 3 others waiting"),
        (5, [("q", 2, 2, 4), ("q", 32, 32, 4)], 1, "waits for a slot: 34 of 34 busy"),
        (5, [("q", 2, 2, 4), ("q", 32, 32, 90)], 1, "waits for a slot: 2 of 2 busy"),  # one of the two is gone
        (1, [("q", 2, 2, 4)], 4, ""),  # not yet: a worker may just be taking it
        (None, [("q", 2, 2, 4)], 4, ""),  # a worker has it
        (5, [("other", 2, 2, 4)], 4, "waits for its host: no worker is there"),
        (5, [("q", 1, 2, 29)], 4, "waits for a worker with a free slot"),  # its report may only be late
        (5, [("q", 1, 2, 31)], 4, "waits for its host: no worker on build-2 since 2026-01-02 11:59:29 UTC"),
        (5, [], 4, "waits for a worker with a free slot"),  # the server keeps no reports
        (5, [("q", 1, 2, 4)], 1, "waits for a worker with a free slot"),  # the report is older than the wait
        (9, [("q", 1, 2, 4)], 1, ""),  # a slot was free meanwhile
    ],
)
def test_of_a_wait_only_what_is_known_is_said(
    queued_s: int | None, reports: list[tuple[str, int, int, int]], length: int, text: str
) -> None:
    since = None if queued_s is None else NOW - timedelta(seconds=queued_s)
    activity = PendingActivity("plan", 1, {}, "", "", queue="q", queued_since=since)
    assert queue_wait_text(activity, [_report(*report) for report in reports], length, NOW) == text


def _report(queue: str, used: int, places: int, age_s: int) -> WorkerHeartbeat:
    """A worker's report, as the server gives it."""
    beat = WorkerHeartbeat(worker_identity="7@build-2/0f", task_queue=queue, status=WorkerStatus.WORKER_STATUS_RUNNING)
    beat.heartbeat_time.FromDatetime(NOW - timedelta(seconds=age_s))
    beat.activity_task_slots_info.current_used_slots = used
    beat.activity_task_slots_info.current_available_slots = places - used
    return beat


async def test_nobody_is_asked_for_slots_where_nothing_waits_for_one() -> None:
    has_it = PendingActivity("plan", 1, {}, "", "1@host", heard=NOW)
    described = RunDescription(WorkflowExecutionStatus.RUNNING, "r", NOW, None, (has_it,), None)
    nobody = cast(Client, None)
    assert await explain_queue_waits(nobody, [described]) == [described]
    ended = ListEntry("d", "r", "delivered", NOW, NOW, "/r", "", "", None)
    assert await mark_queue_waits(nobody, [ended]) == [ended]
