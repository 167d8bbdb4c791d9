"""A publisher of its own: only its worker holds the token that can write."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from perdure.models.delivery.result import Status
from tests.engine import finished, until
from tests.engine_with_github import BUILD, TOKEN, engine_with_github

QUEUE = {"PERDURE_PUBLISHER_QUEUE": "publish"}


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_only_the_publisher_needs_the_token(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        agent = world.engine.program(**QUEUE, PERDURE_GITHUB_TOKEN="")
        submitted = await world.build()

        async def waiting() -> str:
            return str((await world.engine.handle(submitted.delivery.id).query("progress"))["waiting"])

        assert "the publisher is not there" in await until(waiting, 60)
        assert world.engine.model_calls() == 0
        publisher = world.engine.worker(**QUEUE, PERDURE_WORKER_ROLE="publisher", ANTHROPIC_API_KEY="")
        result = await finished(submitted, world.engine, timeout=90)
        assert result.status is Status.DELIVERED, (result.message, world.engine.worker_log()[-3000:])
        world.check_one(result)
        assert TOKEN not in psutil.Process(agent.pid).environ().values()
        assert publisher.poll() is None


@pytest.mark.timeout(120)
async def test_a_publisher_that_dies_is_buried_by_the_worker_beside_it(tmp_path: Path, ports: int) -> None:
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        world.engine.worker(**QUEUE, PERDURE_GITHUB_TOKEN="")
        first = world.engine.worker(
            **QUEUE, PERDURE_WORKER_ROLE="publisher", ANTHROPIC_API_KEY="", PERDURE_CRASH_AT="after-push"
        )
        submitted = await world.build()
        await until(lambda: first.poll() is not None)
        world.engine.worker(**QUEUE, PERDURE_WORKER_ROLE="publisher", ANTHROPIC_API_KEY="")
        result = await finished(submitted, world.engine)
        assert result.status is Status.DELIVERED, (result.message, world.engine.worker_log()[-3000:])
        assert result.receipt.worker_deaths == 1
        world.check_one(result)
