"""The engine of a module of these tests: a Temporal server, a worker, a model that is scripted."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.engine import HAPPY, Engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    root = tmp_path_factory.mktemp("engine")
    async with Engine.open(root, HAPPY, ports=27000 + 60 * worker, own_server=True) as engine:
        engine.worker()
        yield engine
