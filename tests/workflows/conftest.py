"""The server and the cast of this directory's tests."""

from __future__ import annotations

from workflow_fixtures import cast, client, fresh, perdure

from tests.temporal_server import server

__all__ = ["cast", "client", "fresh", "perdure", "server"]
