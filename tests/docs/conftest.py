"""Fixtures of other directories, for the examples of docs/first-test.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "adapters" / "git"))  # tests there import their helpers by name alone
sys.path.append(str(Path(__file__).parents[1] / "workflows"))

from workflow_fixtures import cast, client, fresh

from tests.adapters.git.conftest import first_origin, home, origin, vault, workspace
from tests.temporal_server import server

__all__ = ["cast", "client", "first_origin", "fresh", "home", "origin", "server", "vault", "workspace"]
