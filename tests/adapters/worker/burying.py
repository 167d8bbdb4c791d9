"""A worker that does nothing but look for the dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.client import Client

from perdure.adapters.system.home import Home
from perdure.adapters.worker.inflight import InFlight
from tests.waiting import patient


@asynccontextmanager
async def undertaker(home: Home, client: Client) -> AsyncIterator[InFlight]:
    worker = InFlight(home)
    task = asyncio.create_task(worker.report_dead_workers(client))
    try:
        yield worker
        assert not task.done(), "nobody looks for the dead any more"
    finally:
        task.cancel()
        await asyncio.wait({task})
        worker.close()


async def gone(path: Path, timeout: float = 40) -> None:
    async with asyncio.timeout(patient(timeout)):
        while path.exists():
            await asyncio.sleep(0.02)
