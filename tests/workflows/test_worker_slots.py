"""The page knows of each worker how many of its slots are in use, from the server: the worker's own reports."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import Worker

from perdure.adapters.system.home import Home
from perdure.page.views import hosts
from perdure.page.views.hosts import list_workers
from tests.waiting import until

OFTEN = timedelta(seconds=1)


@pytest.mark.timeout(120)
async def test_slots_in_use_are_counted_and_a_worker_that_left_has_none(
    client: Client, fresh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On whichever page the server has them: it remembers all that were there before, in an order of its own."""
    monkeypatch.setattr(hosts, "_PAGE", 50)
    over = asyncio.Event()

    @activity.defn
    async def lasts() -> None:
        await over.wait()

    said = Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=OFTEN)
    address = client.service_client.config.target_host
    working = await Client.connect(address, namespace=client.namespace, runtime=said)

    async def slots() -> list[tuple[int, int]]:
        found = [one for one in await list_workers(client, Home(tmp_path)) if one.identity == fresh]
        return [(slot.used, slot.all) for one in found for slot in one.slots if slot.queue == fresh]

    async def used() -> bool:
        return await slots() == [(2, 3)]

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
