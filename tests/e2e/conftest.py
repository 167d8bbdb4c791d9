"""Ranges of leased ports that parallel test processes do not share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def ports() -> int:
    """The first of 60 ports this test's workers may lease."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return 21000 + 60 * worker
