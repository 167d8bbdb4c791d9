"""A real Temporal server of its own for the tests of one directory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from perdure.adapters.system.home import Home
from perdure.local.server import ensure_server, stop_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    home = Home(tmp_path_factory.mktemp("server"))
    os.environ["PERDURE_SQLITE_SYNCHRONOUS"] = "1"
    info = asyncio.run(ensure_server(home, say=lambda _: None))
    yield info.address
    asyncio.run(stop_server(home))
