"""Paths of what the server and the worker of one PERDURE_HOME leave."""

from __future__ import annotations

import contextlib
from pathlib import Path

from perdure.adapters.system.home import Home


class Places:
    """Paths of one home.

    server_lock      flock held by the server process itself, for life: no server without it, none beside it
    server_record    who holds server_lock, as a ServerRecord; set aside under server_last when the server is stopped
    ui_lock          flock held by what stands before the Web UI, until the server has ended
    supervisor_lock  flock held by the supervisor; supervisor_record says who that is
    worker_lock      flock held by the supervisor and every worker it starts
    down_lock        flock held by `perdure down` until worker and server are gone: nothing is started meanwhile
    """

    def __init__(self, home: Home) -> None:
        root = home.root
        self.database = root / "temporal.db"
        self.database_version = root / "temporal.version"
        self.database_copies = root / "database-copies"
        self.server_lock = root / "server.lock"
        self.server_record = root / "server.json"
        self.server_last = root / "server.last.json"
        self.ui_lock = root / "ui.lock"
        self.server_log = home.logs / "server.log"
        self.supervisor_lock = root / "supervisor.lock"
        self.supervisor_record = root / "supervisor.json"
        self.worker_lock = root / "worker.lock"
        self.down_lock = root / "down.lock"
        self.worker_log = home.logs / "worker.log"

    def parts_of_database(self) -> list[Path]:
        """The database's files that exist: an idle server leaves most of its data in the `-wal` file."""
        candidates = [self.database.with_name(self.database.name + suffix) for suffix in ("", "-wal", "-shm")]
        return [path for path in candidates if path.exists()]

    def set_record_aside(self) -> None:
        """Keep the ports of a server that is gone or about to go, and let nobody take it for running."""
        with contextlib.suppress(FileNotFoundError):
            self.server_record.replace(self.server_last)
