"""The server and the deliveries of this directory's tests."""

from __future__ import annotations

from tests.deliveries import a_delivery, client, fresh, perdure, script
from tests.temporal_server import server

__all__ = ["a_delivery", "client", "fresh", "perdure", "script", "server"]
