"""The demo's own world: a fresh repository, home, server and worker; to look at until the next demo."""

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

from perdure.adapters.git.door import Git
from perdure.adapters.sandbox.probe import probe, probe_landlock
from perdure.adapters.system.files import held, try_lock
from perdure.adapters.system.home import Home
from perdure.local.connect import embedded_environment
from perdure.local.identity import read_record
from perdure.local.places import Places, examples, read_supervisor, worker_environment, worker_script
from perdure.local.ports import is_free
from perdure.local.processes import dying_with_us, last_lines, signal_holder
from perdure.models.config import SandboxGrade
from perdure.models.errors import BadInput, PerdureError
from perdure.models.limits import SERVER_START_S, SERVER_STOP_S
from perdure.rehearsal.server import KEY
from perdure.secrets import is_secret

PACKAGE = "durations"
_PREFIX, _OVER, _PLAYING = "perdure-demo-", "over", "playing"
_PAIRS = 5
_PATIENCE_S = 2.0
_POLL_S = 0.05


@dataclass(frozen=True)
class DemoDirectories:
    """The demo's directories. `checkout` is a clone of `origin`, a bare repository."""

    root: Path

    @property
    def home(self) -> Home:
        return Home(self.root / "home")

    @property
    def over(self) -> Path:
        """Is there once it has been played to its end: what there is can be looked at."""
        return self.root / _OVER

    @property
    def origin(self) -> Path:
        return self.root / f"{PACKAGE}.git"

    @property
    def checkout(self) -> Path:
        return self.root / PACKAGE

    def request(self) -> str:
        return (self.checkout / "request.md").read_text(encoding="utf-8")


@contextmanager
def stage(keep: Path | None) -> Iterator[DemoDirectories]:
    """A fresh repository below `keep`, or below a temporary directory.

    That one goes when the demo was not played to its end, else with the next demo.
    """
    if keep is None:
        _clear_away()
    root = _kept(keep) if keep is not None else Path(tempfile.mkdtemp(prefix=_PREFIX))
    built = DemoDirectories(root.resolve())
    playing = try_lock(root / _PLAYING) if keep is None else None  # until this process ends, however it ends
    try:
        build(built)
        yield built
    finally:
        if keep is None and not built.over.exists():
            _remove(root)
        if playing is not None:
            os.close(playing)


def _clear_away() -> None:
    """Remove what demos of ours before this one have left to be looked at, unless somebody looks at it; and what one
    that was killed has left, its server first: nothing of that is kept for anybody."""
    for root in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            places, playing = Places(DemoDirectories(root).home), root / _PLAYING
            if root.lstat().st_uid != os.getuid() or root.is_symlink() or held(places.supervisor_lock):
                continue
            over = DemoDirectories(root).over.exists()
            killed = not over and playing.exists() and not held(playing)
            if killed and (server := read_record(places)) is not None:
                signal_holder(server.pid, places.server_lock, signal.SIGKILL)
            if killed or (over and not held(places.server_lock)):
                _remove(root)


def environment(stage: DemoDirectories, rehearsal: str, grade: SandboxGrade, env: Mapping[str, str]) -> dict[str, str]:
    """`env` with nothing in it that leads out of the demo: no Temporal, key, token, model, home or proxy of yours."""
    theirs = ("PERDURE_", "ANTHROPIC_", "OPENAI_")
    kept = {
        name: value
        for name, value in embedded_environment(env).items()
        if not name.startswith(theirs) and not is_secret(name) and not name.lower().endswith("_proxy")
    }
    first = _free_ports(2 * _PAIRS)
    if shutil.which("python3", path=kept.get("PATH")) is None:  # the example's tests are Python
        kept["PATH"] = os.pathsep.join(filter(None, (kept.get("PATH"), str(Path(sys.executable).parent))))
    return kept | {
        "PERDURE_HOME": str(stage.home.root),
        "PERDURE_SANDBOX": str(grade),
        "PERDURE_PORTS_BACKEND": f"{first}-{first + _PAIRS - 1}",
        "PERDURE_PORTS_FRONTEND": f"{first + _PAIRS}-{first + 2 * _PAIRS - 1}",
        "PERDURE_SQLITE_SYNCHRONOUS": "1",  # power loss ends a demo anyway
        "ANTHROPIC_BASE_URL": rehearsal,
        "ANTHROPIC_API_KEY": KEY,
        "XDG_CONFIG_HOME": str(stage.root / "config"),  # no user file
    }


def for_agent(rehearsal: str, env: Mapping[str, str]) -> dict[str, str]:
    """Variables of the demo's worker for agents with a command line: the rehearsal on other wires, and the programs
    that `make agents` has put into a clone."""
    programs = worker_script().parent / ".venv" / "agents" / "bin"
    path = env.get("PATH", os.defpath)
    return {
        "OPENAI_BASE_URL": f"{rehearsal}/v1",
        "OPENAI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": rehearsal,
        "GEMINI_API_KEY": KEY,
        "PATH": f"{programs}{os.pathsep}{path}" if programs.is_dir() else path,
    }


def best_grade() -> tuple[SandboxGrade, str]:
    """The strongest sandbox this host can give, and why it is not the full one; blocks for some 10 ms."""
    missing = probe().error
    if missing is None:
        return SandboxGrade.FULL, ""
    weaker = SandboxGrade.REDUCED if probe_landlock() is None else SandboxGrade.OFF
    return weaker, missing.what


@asynccontextmanager
async def supervised(home: Home) -> AsyncIterator[tuple[Process, int]]:
    """A supervisor, and the worker that it starts again whenever it dies, by pid; gone when the context ends."""
    places = Places(home)
    places.worker_log.parent.mkdir(parents=True, exist_ok=True)
    with places.worker_log.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *dying_with_us([sys.executable, "-P", "-m", "perdure.local.supervisor"]),
            stdin=DEVNULL,
            stdout=log,
            stderr=log,
            env=worker_environment(home, os.environ),
            cwd=home.root,
            start_new_session=True,  # Ctrl-C at the terminal is for us
        )
    try:
        yield process, await _first_worker(home, process)
    finally:
        await _end(process)


async def _first_worker(home: Home, process: Process) -> int:
    deadline = asyncio.get_running_loop().time() + SERVER_START_S
    while (record := read_supervisor(home)) is None or record.worker_pid is None:
        if process.returncode is not None or asyncio.get_running_loop().time() > deadline:
            said = last_lines(Places(home).worker_log, lines=3)
            raise PerdureError(f"the worker did not start: {said or 'it ended without a word'}")
        await asyncio.sleep(_POLL_S)
    return record.worker_pid


async def _end(process: Process) -> None:
    """Asked twice: the first time the worker would finish its turns, and nobody waits for those any more."""
    for patience in (_PATIENCE_S, SERVER_STOP_S):
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience)
            return
    process.kill()
    await process.wait()


def _kept(path: Path) -> Path:
    path = Path(os.path.expanduser(path)).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        taken = any(path.iterdir())
    except OSError as error:
        raise BadInput(f"the directory cannot be used: {error.strerror}", where=f"--keep {path}") from None
    if taken:
        raise BadInput("the directory is not empty", where=f"--keep {path}", fix="name one that does not exist yet")
    return path


def build(stage: DemoDirectories) -> None:
    """The example's repository and a clone of it, in a directory of its own."""
    source = examples() / PACKAGE
    for file in sorted(source.rglob("*")):  # contents only: an installation may be read-only
        if file.is_file() and "__pycache__" not in file.parts:
            copy = stage.checkout / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    checkout = Git(cwd=stage.checkout)
    for arguments in (
        ("init", "--quiet", "--initial-branch=main"),
        ("add", "--all"),
        ("commit", "--quiet", "--message=durations"),
        ("remote", "add", "origin", str(stage.origin)),
    ):
        checkout.run(*arguments)
    here = Git(variables=(("GIT_ALLOW_PROTOCOL", "file"),))  # a transport, and nobody's configuration
    here.run("clone", "--quiet", "--bare", "--", str(stage.checkout), str(stage.origin))
    Git(git_dir=stage.origin).run("remote", "remove", "origin")  # a repository with an origin means that origin
    stage.home.root.mkdir()


def _free_ports(count: int) -> int:
    """The first of so many neighbours that are free now; the worker checks again before it leases one."""
    for _ in range(100):
        first = random.randrange(20_000, 60_000 - count)  # noqa: S311 not a secret
        if all(is_free(port) for port in range(first, first + count)):
            return first
    raise PerdureError(f"no {count} free ports in a row were found", where="127.0.0.1")


def _remove(root: Path) -> None:
    def writable_first(function: Callable[..., Any], path: str, _: object) -> None:
        for place in (os.path.dirname(path), path):
            with contextlib.suppress(OSError):
                os.chmod(place, stat.S_IRWXU)
        with contextlib.suppress(OSError):
            function(path)

    shutil.rmtree(root, onerror=writable_first)
