"""Fixtures of other directories, for the examples of docs/first-test.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "adapters" / "git"))  # tests there import their helpers by name alone

from tests.adapters.git.conftest import first_origin, home, origin, vault, workspace
from tests.deliveries import a_delivery, client, fresh
from tests.temporal_server import server

__all__ = ["a_delivery", "client", "first_origin", "fresh", "home", "origin", "server", "vault", "workspace"]
