"""A home of its own for every test."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.system.home import Home
from tests.homes import fresh_home
from tests.temporal_server import server

__all__ = ["server"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return fresh_home(tmp_path / "home")
