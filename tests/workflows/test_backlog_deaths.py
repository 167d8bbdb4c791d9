"""Deaths between a backlog and its deliveries: of a worker as one of them speaks, of a delivery that says nothing."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, night, until
from temporalio.client import Client
from temporalio.worker import Worker

from perdure.models.limits import TASK_QUEUE
from tests.deliveries import playing
from tests.waiting import patient
from workflows import backlog as backlogs

pytestmark = pytest.mark.story

POINTS = ("after-landing_asked", "after-landing_granted", "before-landing_over", "before-item_ended")
"""It has asked and nobody knows it; it was granted the turn and does not know it; it has landed and has not said so; it
has ended and has not said so."""


async def test_a_worker_that_dies_as_they_speak_loses_no_word_and_lands_nothing_twice(
    client: Client, fresh: str, tmp_path: Path
) -> None:
    branch = Branch(one="same", two="same")
    branch.real_looks = client
    command = [sys.executable, str(Path(__file__).parent / "dying_worker.py")]
    command += [client.service_client.config.target_host, str(tmp_path), *POINTS]
    deaths = list[int]()

    async def kept() -> None:
        while True:
            process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL)
            try:
                deaths.append(await process.wait())
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    async with asyncio.timeout(patient(100)), Worker(client, task_queue=TASK_QUEUE, activities=branch.activities()):
        keeping = asyncio.create_task(kept())
        try:
            handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}))
            progress: dict[str, Any] = await handle.result()
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
    assert {item["phase"] for item in progress["items"]} == {"landed"}
    assert sorted(branch.landed) == ["one", "two"]
    assert deaths == [-signal.SIGKILL] * len(POINTS)
    built = [work.delivery for work in branch.seen if work.step == "implement"]
    assert len(built) == len(set(built)) == 2, "nothing was built twice"


async def test_a_delivery_that_ends_without_a_word_is_found_by_a_backlog_that_is_in_its_next_run(
    client: Client, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What began it knew of its end at once; that is gone, and the look that finds it comes every few minutes."""
    monkeypatch.setattr(backlogs, "HISTORY_MOST", 30)
    monkeypatch.setattr(backlogs, "BACKLOG_LOOK", backlogs.BACKLOG_LOOK / 300)
    branch = Branch(one="a", two="b", three="c")
    branch.real_looks, branch.holding = client, {"three": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}, {"id": "two"}, {"id": "three"}))
        first = (await handle.describe()).run_id
        await until(handle, lambda at: at == {"one": "landed", "two": "landed", "three": "building"})
        newest = client.get_workflow_handle(fresh)
        while (await newest.describe()).run_id == first:
            await asyncio.sleep(0.1)
        await client.get_workflow_handle(f"{fresh}/three").terminate("by hand")
        branch.holding["three"].set()
        progress: dict[str, Any] = await newest.result()
    assert {item["id"]: item["phase"] for item in progress["items"]} == {
        "one": "landed",
        "two": "landed",
        "three": "failed",
    }
