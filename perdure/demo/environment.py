"""The demo's own environment: a fresh repository, home, variables and supervised worker; kept to look at until the next
demo. Used by the other modules of `perdure.demo` alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import stat
import sys
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.adapters.git.command import Git
from perdure.adapters.sandbox.grades import probe, probe_landlock
from perdure.adapters.system.files import is_locked, try_lock
from perdure.adapters.system.home import Home
from perdure.local.connect import embedded_environment
from perdure.local.identity import is_port_free, read_server_record
from perdure.local.places import Places, examples_directory, read_running_supervisor, worker_environment, worker_script
from perdure.local.processes import command_tied_to_us, last_lines, signal_lock_holder
from perdure.models.config.repository import SandboxGrade
from perdure.models.errors import BadInput, PerdureError
from perdure.models.limits import SERVER_START_S, SERVER_STOP_S
from perdure.rehearsal.server import SHOWN_API_KEY
from perdure.secrets import is_secret

PACKAGE = "durations"
_DIRECTORY_PREFIX, _FINISHED_FILE, _LOCK_FILE = "perdure-demo-", "over", "playing"
_PORT_PAIRS = 5
_FIRST_STOP_S = 2.0
_POLL_S = 0.05


@dataclass(frozen=True)
class DemoDirectories:
    """The demo's directories. `checkout` is a clone of `origin`, a bare repository."""

    root: Path

    @property
    def home(self) -> Home:
        return Home(self.root / "home")

    @property
    def finished_file(self) -> Path:
        """Return the path of a file that exists once the demo was played to its end: then the directories are kept to
        be looked at."""
        return self.root / _FINISHED_FILE

    @property
    def origin(self) -> Path:
        return self.root / f"{PACKAGE}.git"

    @property
    def checkout(self) -> Path:
        return self.root / PACKAGE

    def request(self) -> str:
        return (self.checkout / "request.md").read_text(encoding="utf-8")


@contextmanager
def open_directories(keep: Path | None) -> Iterator[DemoDirectories]:
    """Make a fresh repository and home below `keep`, or below a temporary directory, and yield their directories.
    Without `keep`, what earlier demos have left is removed first.

    A temporary directory is removed with the block when the demo was not played to its end, else by the next demo.
    Raises BadInput where `keep` cannot be used.
    """
    if keep is None:
        _remove_old_demos()
    root = _make_keep_directory(keep) if keep is not None else Path(tempfile.mkdtemp(prefix=_DIRECTORY_PREFIX))
    directories = DemoDirectories(root.resolve())
    lock_fd = try_lock(root / _LOCK_FILE) if keep is None else None  # until this process ends, however it ends
    try:
        build_repository(directories)
        yield directories
    finally:
        if keep is None and not directories.finished_file.exists():
            _remove_tree(root)
        if lock_fd is not None:
            os.close(lock_fd)


def _remove_old_demos() -> None:
    """Remove what earlier demos of this user have left to be looked at, unless somebody looks at it, and what a demo
    that was killed has left. The server of a killed one is killed first: nothing of that is kept for anybody. What
    cannot be removed stays, without an error."""
    for root in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY_PREFIX}*"):
        with contextlib.suppress(OSError):
            places, lock_file = Places(DemoDirectories(root).home), root / _LOCK_FILE
            if root.lstat().st_uid != os.getuid() or root.is_symlink() or is_locked(places.supervisor_lock):
                continue
            is_finished = DemoDirectories(root).finished_file.exists()
            was_killed = not is_finished and lock_file.exists() and not is_locked(lock_file)
            if was_killed and (server := read_server_record(places)) is not None:
                signal_lock_holder(server.pid, places.server_lock, signal.SIGKILL)
            if was_killed or (is_finished and not is_locked(places.server_lock)):
                _remove_tree(root)


def demo_variables(
    directories: DemoDirectories, rehearsal: str, grade: SandboxGrade, env: Mapping[str, str]
) -> dict[str, str]:
    """Return `env` with nothing in it that leads out of the demo, and with the demo's own home, sandbox grade, ports,
    and model at the address `rehearsal`.

    No Temporal, key, token, model, home or proxy of the user's stays in it; python3 is put on PATH when there is none.
    Raises PerdureError when no free ports are found.
    """
    removed_prefixes = ("PERDURE_", "ANTHROPIC_", "OPENAI_")
    variables = {
        name: value
        for name, value in embedded_environment(env).items()
        if not name.startswith(removed_prefixes) and not is_secret(name) and not name.lower().endswith("_proxy")
    }
    first_port = _find_free_ports(2 * _PORT_PAIRS)
    if shutil.which("python3", path=variables.get("PATH")) is None:  # the example's tests are Python
        variables["PATH"] = os.pathsep.join(filter(None, (variables.get("PATH"), str(Path(sys.executable).parent))))
    return variables | {
        "PERDURE_HOME": str(directories.home.root),
        "PERDURE_SANDBOX": str(grade),
        "PERDURE_PORTS_BACKEND": f"{first_port}-{first_port + _PORT_PAIRS - 1}",
        "PERDURE_PORTS_FRONTEND": f"{first_port + _PORT_PAIRS}-{first_port + 2 * _PORT_PAIRS - 1}",
        "PERDURE_SQLITE_SYNCHRONOUS": "1",  # power loss ends a demo anyway
        "ANTHROPIC_BASE_URL": rehearsal,
        "ANTHROPIC_API_KEY": SHOWN_API_KEY,
        "XDG_CONFIG_HOME": str(directories.root / "config"),  # no user file
    }


def cli_agent_variables(rehearsal: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return variables of the demo's worker for agents with a command line of their own: the rehearsal model as all of
    their providers, and a search path with the programs that `make agents` has put into a clone."""
    programs = worker_script().parent / ".venv" / "agents" / "bin"
    path = env.get("PATH", os.defpath)
    return {
        "OPENAI_BASE_URL": f"{rehearsal}/v1",
        "OPENAI_API_KEY": SHOWN_API_KEY,
        "GOOGLE_GEMINI_BASE_URL": rehearsal,
        "GEMINI_API_KEY": SHOWN_API_KEY,
        "PATH": f"{programs}{os.pathsep}{path}" if programs.is_dir() else path,
    }


def find_best_grade() -> tuple[SandboxGrade, str]:
    """Return (the strongest sandbox that this host can give, why it is not the full one; empty when it is).

    Starts a test sandbox, which blocks for some 10 ms.
    """
    problem = probe().error
    if problem is None:
        return SandboxGrade.FULL, ""
    weaker = SandboxGrade.REDUCED if probe_landlock() is None else SandboxGrade.OFF
    return weaker, problem.what


@asynccontextmanager
async def run_supervisor(home: Home) -> AsyncIterator[tuple[Process, int]]:
    """Start a supervisor, which starts the worker again whenever it dies, and yield it with the first worker's pid once
    that runs; stop both with the block. Raises PerdureError where no worker starts."""
    places = Places(home)
    places.worker_log.parent.mkdir(parents=True, exist_ok=True)
    with places.worker_log.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command_tied_to_us([sys.executable, "-P", "-m", "perdure.local.supervisor"]),
            stdin=DEVNULL,
            stdout=log,
            stderr=log,
            env=worker_environment(home, os.environ),
            cwd=home.root,
            start_new_session=True,  # Ctrl-C at the terminal is for us
        )
    try:
        yield process, await _wait_for_worker(home, process)
    finally:
        await _stop_supervisor(process)


async def _wait_for_worker(home: Home, process: Process) -> int:
    """Wait until the supervisor has started a worker, and return its pid. Raises PerdureError, with the end of the
    worker's log, where the supervisor ends or SERVER_START_S seconds pass before."""
    deadline = asyncio.get_running_loop().time() + SERVER_START_S
    while (record := read_running_supervisor(home)) is None or record.worker_pid is None:
        if process.returncode is not None or asyncio.get_running_loop().time() > deadline:
            log_tail = last_lines(Places(home).worker_log, lines=3)
            raise PerdureError(f"the worker did not start: {log_tail or 'it ended without a word'}")
        await asyncio.sleep(_POLL_S)
    return record.worker_pid


async def _stop_supervisor(process: Process) -> None:
    """Stop the supervisor with SIGTERM, sent twice: after the first one the worker would finish its turns, and nobody
    waits for those any more. Kill it where it still runs after SERVER_STOP_S seconds."""
    for timeout_s in (_FIRST_STOP_S, SERVER_STOP_S):
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), timeout_s)
            return
    process.kill()
    await process.wait()


def _make_keep_directory(path: Path) -> Path:
    """Make the directory that was named for the demo and return its absolute path. Raises BadInput where it cannot be
    made or is not empty."""
    path = Path(os.path.expanduser(path)).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_used = any(path.iterdir())
    except OSError as error:
        raise BadInput(f"the directory cannot be used: {error.strerror}", where=f"--keep {path}") from None
    if is_used:
        raise BadInput("the directory is not empty", where=f"--keep {path}", fix="name one that does not exist yet")
    return path


def build_repository(directories: DemoDirectories) -> None:
    """Write the example's files into a new checkout, commit them, clone that as a bare repository, which becomes the
    checkout's remote `origin` and has no remote itself, and make an empty home.

    Raises GitError when git fails, and FileExistsError when the home is there already.
    """
    source = examples_directory() / PACKAGE
    for file in sorted(source.rglob("*")):  # contents only: an installation may be read-only
        if file.is_file() and "__pycache__" not in file.parts:
            copy = directories.checkout / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    checkout = Git(cwd=directories.checkout)
    for arguments in (
        ("init", "--quiet", "--initial-branch=main"),
        ("add", "--all"),
        ("commit", "--quiet", "--message=durations"),
        ("remote", "add", "origin", str(directories.origin)),
    ):
        checkout.execute(*arguments)
    git = Git(variables=(("GIT_ALLOW_PROTOCOL", "file"),))  # a transport, and nobody's configuration
    git.execute("clone", "--quiet", "--bare", "--", str(directories.checkout), str(directories.origin))
    Git(git_dir=directories.origin).execute(
        "remote", "remove", "origin"
    )  # a repository with an origin means that origin
    directories.home.root.mkdir()


def _find_free_ports(count: int) -> int:
    """Return the first of so many neighbouring ports that are all free now; the worker checks again before it leases
    one. Raises PerdureError where none were found in 100 tries."""
    for _ in range(100):
        first_port = random.randrange(20_000, 60_000 - count)  # noqa: S311 not a secret
        if all(is_port_free(port) for port in range(first_port, first_port + count)):
            return first_port
    raise PerdureError(f"no {count} free ports in a row were found", where="127.0.0.1")


def _remove_tree(root: Path) -> None:
    """Remove a directory with all that is in it, read-only files too; what cannot be removed stays, without an
    error."""

    def retry_writable(function: Callable[..., Any], path: str, _: object) -> None:
        """Make a path and its directory writable and try the removal once more; a failure is ignored."""
        for entry in (os.path.dirname(path), path):
            with contextlib.suppress(OSError):
                os.chmod(entry, stat.S_IRWXU)
        with contextlib.suppress(OSError):
            function(path)

    shutil.rmtree(root, onerror=retry_writable)
