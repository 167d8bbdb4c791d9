from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig
from temporalio.worker import Worker

from perdure.adapters.system.home import Home
from perdure.cli.look.follower import LOOK_RARELY_S, LOOK_S
from perdure.cli.look.watch import DeliveryWatcher
from perdure.cli.screen import Screen
from perdure.client import Perdure
from perdure.local.server import ensure_server, stop_server
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from perdure.plugin import perdure_plugin
from tests.deliveries import BUILT, Script
from workflows import WORKFLOWS

SECONDS = 8.0


class Talker(Script):
    """A turn that says something else five times a second, until it is over."""

    def __init__(self) -> None:
        super().__init__()
        self.phases, self.turn, self.over = (Phase.BUILD,), self.talk, asyncio.Event()

    async def talk(self, work: TurnInput) -> TurnResult:
        number = 0
        while not self.over.is_set():
            number += 1
            activity.heartbeat({"turn": work.turn, "doing": f"pytest -q tests/test_{number}.py"})
            await asyncio.sleep(0.2)
        return await self.builds(work)


@pytest.fixture
async def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Home]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    home = Home(tmp_path / "home")
    try:
        yield home
    finally:
        await stop_server(home)


def calls(buffer: MetricBuffer) -> Counter[str]:
    """The calls to the server since the last look, by name."""
    counted = Counter[str]()
    for update in buffer.retrieve_updates():
        if update.metric.name in ("temporal_request", "temporal_long_request"):
            counted[str(update.attributes.get("operation"))] += int(update.value)
    return counted


@pytest.mark.timeout(90)
async def test_who_looks_makes_one_call_a_second_and_who_sees_nothing_one_that_waits(home: Home) -> None:
    info = await ensure_server(home, say=lambda _: None)
    client = await Client.connect(info.address, namespace=info.namespace, plugins=[perdure_plugin()])
    talker = Talker()
    async with Worker(client, task_queue=TASK_QUEUE, workflows=WORKFLOWS, activities=talker.activities()):
        delivery = (await Perdure(client).submit(BUILT, id="talks")).delivery
        tasks, buffers = [], []
        for screen in (Screen(), Screen(json=True)):
            buffers.append(MetricBuffer(10_000))
            runtime = Runtime(telemetry=TelemetryConfig(metrics=buffers[-1]))
            watched = await Client.connect(
                info.address, namespace=info.namespace, plugins=[perdure_plugin()], runtime=runtime
            )
            tasks.append(asyncio.create_task(DeliveryWatcher(Perdure(watched).delivery("talks"), screen).watch()))
        began = time.monotonic()
        await asyncio.sleep(SECONDS)
        looked, unseen = map(calls, buffers)
        seconds = time.monotonic() - began
        for counted, each in ((looked, LOOK_S), (unseen, LOOK_RARELY_S)):
            assert counted["DescribeNamespace"] <= 1, "whose server it is, is asked once"
            assert counted["DescribeWorkflowExecution"] <= seconds / each + 3, "one twice, and one to wait"
            assert counted["GetWorkflowExecutionHistory"] == 1, "it waits for the end"
        assert looked["DescribeWorkflowExecution"] >= 2
        assert looked["QueryWorkflow"] <= seconds / 2, "as its history grew, and whether a worker is there"
        assert unseen["QueryWorkflow"] == 0
        talker.over.set()
        results = await asyncio.gather(*tasks)
        assert {result.delivery_id for result in results if result is not None} == {"talks"}
        assert (await delivery.describe()).closed is not None
