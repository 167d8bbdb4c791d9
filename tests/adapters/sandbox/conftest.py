"""A worktree, a home and one sandbox of each grade, all real."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from perdure.adapters.sandbox.base import Sandbox, SandboxCommand, SandboxResult
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.environment import Binds, compute_binds
from perdure.adapters.sandbox.grades import LandlockSandbox, OffSandbox, probe, probe_landlock
from perdure.adapters.system.home import Home
from tests.waiting import patient

Run = Callable[..., Awaitable[tuple[SandboxResult, str]]]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Shared: the copy of /etc below it is made once per host, not once per command."""
    return Home(tmp_path_factory.mktemp("host") / "perdure")


@pytest.fixture
def worktree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def binds(tmp_path_factory: pytest.TempPathFactory) -> Binds:
    return compute_binds(tmp_path_factory.mktemp("no-environments"), os.environ["PATH"], Path.home())


@pytest.fixture(scope="session")
def full(home: Home, binds: Binds) -> Sandbox:
    error = probe().error
    if error is not None:
        pytest.skip(f"BUBBLEWRAP DOES NOT WORK HERE: {error}")
    return BubblewrapSandbox(home, binds)


@pytest.fixture
def reduced(home: Home, binds: Binds) -> Sandbox:
    error = probe_landlock()
    if error is not None:
        pytest.skip(f"LANDLOCK DOES NOT WORK HERE: {error}")
    return LandlockSandbox(home, binds)


@pytest.fixture
def off(home: Home, binds: Binds) -> Sandbox:
    return OffSandbox(home, binds)


@pytest.fixture(params=["full", "reduced", "off"])
def any_grade(request: pytest.FixtureRequest) -> Sandbox:
    sandbox: Sandbox = request.getfixturevalue(request.param)
    return sandbox


@pytest.fixture
def run(worktree: Path, tmp_path: Path) -> Run:
    """`await run(sandbox, script, **fields of Command)` gives how it ended and what it wrote."""

    async def go(sandbox: Sandbox, script: str, **fields: object) -> tuple[SandboxResult, str]:
        output = tmp_path / "output"
        command = SandboxCommand(script, **{"worktree": worktree, "output": output, "timeout_s": patient(30), **fields})  # type: ignore[arg-type]
        return await sandbox.run_command(command), output.read_text(errors="replace")

    return go


@pytest.fixture
def sleeper(worktree: Path) -> Iterator[str]:
    """A command line no other process has; whatever of it is left after the test is ended."""
    name = f"sleep 86{os.getpid() % 1000:03}.{time.monotonic_ns() % 10**9}"
    yield name
    for process in living(name):
        process.kill()


def living(command_line: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if " ".join(process.cmdline()) == command_line and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def left() -> Callable[[str], int]:
    """How many processes with exactly this command line live."""
    return lambda name: len(living(name))


async def _until(condition: Callable[[], object]) -> None:
    import asyncio

    async with asyncio.timeout(patient(20)):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    return _until
