"""A real Temporal server of its own for the tests of one directory, and how workers of tests load workflows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest
from temporalio.worker import UnsandboxedWorkflowRunner

from perdure.adapters.system.home import Home
from perdure.local.server import ensure_server, stop_server

LOADED_ONCE = UnsandboxedWorkflowRunner()
"""For workers inside a test's own process, which are about what is decided. The SDK's sandbox would import all of
`workflows` again for each worker and each run: half of such a test's time. Deliveries of real workers have it."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    home = Home(tmp_path_factory.mktemp("server"))
    os.environ["PERDURE_SQLITE_SYNCHRONOUS"] = "1"
    info = asyncio.run(ensure_server(home, say=lambda _: None))
    yield info.address
    asyncio.run(stop_server(home))
