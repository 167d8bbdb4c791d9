"""What stands still is named with its reason, without a worker of ours."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from perdure.client.doctor import StuckWorkflow, find_stuck_workflows
from perdure.models.limits import TASK_QUEUE
from tests.waiting import patient

REQUEST = {"repository": "/r", "request": "Add sub"}


@workflow.defn(name="Delivery")
class Broken:
    """A release that cannot replay what it finds."""

    @workflow.run
    async def run(self, raw: object) -> None:
        raise RuntimeError("there is no step lunch")


async def found(client: Client, *ids: str, **why: str) -> dict[str, StuckWorkflow]:
    """The server's list follows with a delay, and so does its word for why (`why`: how that of one of them begins)."""
    async with asyncio.timeout(patient(30)):
        while True:
            seen = {one.id: one async for one in find_stuck_workflows(client)}
            if all(id in seen and seen[id].reason.startswith(why.get(id, "")) for id in ids):
                return seen
            await asyncio.sleep(0.1)


def doctor(address: str, home: str) -> set[str]:
    """The lines of `perdure doctor` about deliveries, without how often a task has failed by now."""
    env = {"PATH": os.environ["PATH"], "HOME": home, "PERDURE_HOME": home, "TEMPORAL_ADDRESS": address}
    ran = subprocess.run(
        [sys.executable, "-m", "perdure.cli", "doctor", "--json"],
        env=env,
        capture_output=True,
        timeout=patient(60),
        check=False,
    )
    found = json.loads(ran.stdout)
    return {uncounted(one["text"]) for one in found if one["name"] == "deliveries" and one["fix"]}


def uncounted(text: str) -> str:
    """A line without the number that grows from look to look."""
    return re.sub(r"failed \d+ times", "failed N times", text)


async def test_a_workflow_whose_task_fails_and_one_on_a_queue_of_nobody_are_named(
    client: Client, server: str, fresh: str, tmp_path: Path
) -> None:
    lost, broken, well = f"{fresh}-lost", f"{fresh}-broken", f"{fresh}-well"
    start = client.start_workflow
    await start("Delivery", REQUEST, id=lost, task_queue="perdur")
    await start("Delivery", REQUEST, id=broken, task_queue=fresh, task_timeout=timedelta(seconds=5))
    await start("Delivery", REQUEST, id=well, task_queue=TASK_QUEUE)  # no worker yet: it only waits
    async with Worker(client, task_queue=fresh, workflows=[Broken]):
        seen = await found(client, lost, broken, **{broken: "its workflow task has failed"})
        told = await asyncio.to_thread(doctor, server, str(tmp_path))
    assert seen[lost].reason == "waits on task queue perdur, from which nobody takes work"
    assert {uncounted(f"{one.id} {one.reason}") for one in (seen[lost], seen[broken])} <= told
    assert seen[broken].reason.startswith("its workflow task has failed ")
    assert seen[broken].reason.endswith("there is no step lunch")
    assert well not in seen
    for id in (lost, broken, well):
        await client.get_workflow_handle(id).terminate()
