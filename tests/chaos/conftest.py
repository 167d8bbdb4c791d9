"""Ports of these deliveries: others than those of tests/e2e, which run beside them."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def ports() -> int:
    """The first of 60 ports this test's workers may lease."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return 25000 + 60 * worker
