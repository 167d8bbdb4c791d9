"""GitHub is away when everything is done: the delivery waits, says so, and finishes. An hour passes in seconds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.testing import TimeSkipper, WorkflowEnvironment

from activities.prepare import UNKNOWN_HOST_PATIENCE
from perdure.client import Perdure
from perdure.local.places import temporal_binary
from perdure.models.delivery.result import Status
from perdure.models.errors import InvalidRequest
from perdure.models.limits import FORGE_PAUSE_MAX
from perdure.plugin import perdure_plugin
from tests.engine import finished, until
from tests.engine_with_github import BUILD, ID, EngineWithGitHub, engine_with_github


@asynccontextmanager
async def skipping(world: EngineWithGitHub) -> AsyncIterator[TimeSkipper]:
    """A real server on which a running workflow's clock can be moved on, in place of the engine's own."""
    flag = ["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"]
    start = WorkflowEnvironment.start_time_skipping_v2
    async with await start(dev_server_existing_path=str(temporal_binary()), dev_server_extra_args=flag) as server:
        address = server.client.service_client.config.target_host
        world.engine.env |= {"TEMPORAL_ADDRESS": address}
        world.engine.client = await Client.connect(address, plugins=[perdure_plugin()])
        world.engine.perdure = Perdure(world.engine.client)
        try:
            yield TimeSkipper(world.engine.client)
        finally:
            world.engine.end_workers()


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_an_hour_without_github_at_the_end_is_waited_out_and_shown(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world, skipping(world) as clock:
        world.engine.worker()
        submitted = await world.build()
        handle = world.engine.handle(ID)
        await until(lambda: world.engine.model_calls() >= 2)  # paid for; what is left is the forge's
        world.github.down = True

        async def waiting() -> str:
            return str((await handle.query("progress"))["waiting"])

        await until(waiting)
        for _ in range(6):
            await clock.fast_forward(handle, timedelta(minutes=10))
            words = await until(waiting)
            assert "next try at" in words
        shown = str(await handle.query("__temporal_workflow_metadata"))
        assert "**Waiting:**" in shown
        described = await handle.describe()
        assert described.typed_search_attributes
        assert "waiting" in str(described.search_attributes.get("PerdureStatus"))
        assert world.github.pulls("me/calc") == []
        world.github.down = False
        await clock.fast_forward(handle, timedelta(minutes=10))
        result = await finished(submitted, world.engine)
        assert result.status is Status.DELIVERED, result.message
        world.check_one(result)
        assert world.engine.model_calls() == 2


@pytest.mark.timeout(180)
async def test_github_that_is_away_at_the_first_look_is_waited_for_and_named(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        world.github.down = True
        world.engine.worker()
        submitted = await world.build()

        async def named() -> bool:
            described = await submitted.delivery.describe()
            return any(
                "cannot be reached" in pending.failure and "502" in pending.failure for pending in described.pending
            )

        await until(named)
        world.github.down = False
        result = await finished(submitted, world.engine)
        assert result.status is Status.DELIVERED, result.message
        world.check_one(result)


@pytest.mark.timeout(180)
async def test_a_host_that_nobody_has_heard_of_is_waited_for_a_while_only(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world, skipping(world) as clock:
        worker = world.engine.worker()
        submitted = await world.engine.submit("https://no-such-host.invalid/me/calc.git", id=ID)

        async def named() -> bool:
            described = await submitted.delivery.describe()
            return any("check the name, the network" in pending.failure for pending in described.pending)

        await until(named)
        await clock.fast_forward(world.engine.handle(ID), UNKNOWN_HOST_PATIENCE + FORGE_PAUSE_MAX)
        with pytest.raises(InvalidRequest, match="no-such-host"):
            await finished(submitted, world.engine)
        assert worker.poll() is None
