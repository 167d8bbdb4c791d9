"""The server and the cast of this directory's tests."""

from __future__ import annotations

from workflow_cast import cast, client, fresh, perdure

from tests.served import server

__all__ = ["cast", "client", "fresh", "perdure", "server"]
