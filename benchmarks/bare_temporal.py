"""The plain script's delivery as a bare Temporal workflow: what durable steps cost on this server, whatever engine.

`bare_temporal.py ORIGIN URL MANY RUNS ADDRESS NAMESPACE`: as `plain.py`, which does the work, in activities: one that
begins, one a turn, one for each run of the tests, one that pushes. No workspace lease, no sandbox, no verdict, no
checkpoint. The workflow runs outside the SDK's sandbox, which is the cheapest. Prints one line of JSON as `plain.py`
does, the server's processor time not included.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import anthropic
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

sys.path.insert(0, str(Path(__file__).parent))

import plain

ONE = timedelta(minutes=5)


@workflow.defn
class Bare:
    @workflow.run
    async def run(self, number: int, runs: int) -> None:
        await workflow.execute_activity("begin", number, start_to_close_timeout=ONE)
        messages: Any = [{"role": "user", "content": "Add sub"}]
        while messages:
            messages = await workflow.execute_activity("turn", args=[number, messages], start_to_close_timeout=ONE)
        for run in range(runs):
            await workflow.execute_activity("tests", args=[number, run], start_to_close_timeout=ONE)
        await workflow.execute_activity("push", number, start_to_close_timeout=ONE)


class Steps:
    def __init__(self, client: anthropic.AsyncAnthropic, root: Path) -> None:
        self._client, self._root = client, root

    @activity.defn
    async def begin(self, number: int) -> None:
        await plain.begin(self._root, number)

    @activity.defn
    async def turn(self, number: int, messages: list[Any]) -> list[Any]:
        return await plain.turn(self._client, self._root, number, messages)

    @activity.defn
    async def tests(self, number: int, run: int) -> None:
        await plain.tests(self._root, number, run)

    @activity.defn
    async def push(self, number: int) -> None:
        await plain.push(self._root, number)


async def main(origin: str, url: str, many: int, runs: int, address: str, namespace: str) -> None:
    model = anthropic.AsyncAnthropic(api_key="rehearsal", base_url=url, max_retries=0)
    server, queue = await Client.connect(address, namespace=namespace), f"bare-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="bench-bare-") as scratch:
        root = await plain.ground(Path(scratch), origin)
        steps = Steps(model, root)
        async with Worker(
            server,
            task_queue=queue,
            workflows=[Bare],
            activities=[steps.begin, steps.turn, steps.tests, steps.push],
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            began = time.perf_counter()
            await asyncio.gather(
                *(
                    server.execute_workflow("Bare", args=[number, runs], id=f"{queue}-{number}", task_queue=queue)
                    for number in range(many)
                )
            )
            took = time.perf_counter() - began
    await model.close()
    used = os.times()
    cpu = used.user + used.system + used.children_user + used.children_system - STARTED
    print(json.dumps({"seconds": took, "cpu": cpu, "git": plain.calls / many}))


if __name__ == "__main__":
    begun = os.times()
    STARTED = begun.user + begun.system
    given = sys.argv[1:]
    asyncio.run(main(given[0], given[1], int(given[2]), int(given[3]), given[4], given[5]))
    sys.stdout.flush()
    os._exit(0)  # the Temporal SDK was seen to crash in an ordinary exit
