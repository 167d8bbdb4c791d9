"""The process that forks workers, with a worker of ours that only lives and dies: real processes, real signals."""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from perdure.local import forkserver
from perdure.local.forkserver import ForkServer, ForkServerEnded
from perdure.local.processes import command_tied_to_us
from tests.engine import until

WORKER = """
import os, pathlib, signal, sys, time
import release
from perdure.local import forkserver
home = pathlib.Path(sys.argv[1])
def replace_release(event, arguments):
    if event == "import" and arguments[0] == sys.argv[2]:
        os.utime(home / "release.py", (1, 1))
sys.addaudithook(replace_release)
forkserver.fork_workers()
def drain(number, frame):
    (home / f"drained-{os.getpid()}").touch()
    os._exit(0)
signal.signal(signal.SIGTERM, drain)
ready = home / f"ready-{os.getpid()}"
ready.with_suffix(".new").write_text(str("anthropic" in sys.modules))
ready.with_suffix(".new").rename(ready)
time.sleep(60)
"""

pytestmark = [
    pytest.mark.skipif(not forkserver.FORKING_POSSIBLE, reason="workers are forked on Linux alone"),
    pytest.mark.timeout(180),
]


@asynccontextmanager
async def serving(home: Path, replaced_at_import_of: str = "") -> AsyncIterator[tuple[ForkServer, int]]:
    """A fork server of the script above, and its process id."""
    (home / "worker.py").write_text(WORKER)
    (home / "release.py").touch()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = await asyncio.create_subprocess_exec(
            *command_tied_to_us([sys.executable, str(home / "worker.py"), str(home), replaced_at_import_of]),
            env={**os.environ, "PYTHONPATH": os.getcwd(), forkserver.SOCKET_VARIABLE: str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    server = ForkServer(process, ours)
    try:
        yield server, process.pid
    finally:
        await server.kill_and_wait()


async def test_each_worker_is_forked_from_what_is_loaded_and_its_end_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, pid):
        first = await server.fork_worker()
        await until((tmp_path / f"ready-{first.pid}").exists)
        assert (tmp_path / f"ready-{first.pid}").read_text() == "True", "the model's library is loaded once a start"
        first.kill()
        assert await first.wait() == -signal.SIGKILL
        second = await server.fork_worker()
        await until((tmp_path / f"ready-{second.pid}").exists)
        assert psutil.Process(second.pid).ppid() == pid
        assert os.getsid(second.pid) == second.pid, "Ctrl-C for the supervisor does not reach it"
        second.terminate()
        assert await second.wait() == 0
        assert (tmp_path / f"drained-{second.pid}").exists()
    assert not psutil.pid_exists(pid)


async def test_a_worker_that_has_ended_gets_no_signal(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _):
        worker = await server.fork_worker()
        worker.kill()
        await worker.wait()
        for signalling in (worker.terminate, worker.kill):
            with pytest.raises(ProcessLookupError):
                signalling()


async def test_a_worker_may_finish_its_turns_when_its_fork_server_dies(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, pid):
        worker = await server.fork_worker()
        await until((tmp_path / f"ready-{worker.pid}").exists)
        os.kill(pid, signal.SIGKILL)
        assert await worker.wait() == -signal.SIGTERM
        assert (tmp_path / f"drained-{worker.pid}").exists()
        with pytest.raises(ForkServerEnded):
            await server.fork_worker()


async def test_a_fork_server_that_does_not_answer_is_gone_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver, "FORKS_ANSWER_S", 0.2)
    async with serving(tmp_path) as (server, pid):
        worker = await server.fork_worker()
        os.kill(pid, signal.SIGSTOP)
        worker.kill()
        assert await worker.wait() == -signal.SIGTERM, "nobody says how it ended"
        with pytest.raises(ForkServerEnded):
            await server.fork_worker()
    assert not psutil.pid_exists(pid)


def test_what_a_fork_server_loads_starts_no_thread_and_leaves_out_what_not_every_host_needs() -> None:
    load = "import os, sys, worker; print([name for name in ('acp', 'aiohttp', 'github') if name in sys.modules])"
    load += (
        "; from perdure.adapters.agents.builtin.model import load_api_library; "
        "load_api_library(); print(os.listdir('/proc/self/task'))"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}  # slow, and threads
    said = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=True, env=env).stdout
    unneeded, threads = map(ast.literal_eval, said.splitlines())
    assert unneeded == []
    assert len(threads) == 1


async def test_another_release_that_came_while_it_loaded_is_seen(tmp_path: Path) -> None:
    """The model's library is loaded later than the rest: what lies there by then may be another release."""
    async with serving(tmp_path, "anthropic") as (server, _):
        with pytest.raises(ForkServerEnded):
            await server.fork_worker()


async def test_another_release_is_not_mixed_with_the_one_that_was_loaded(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _):
        worker = await server.fork_worker()
        await until((tmp_path / f"ready-{worker.pid}").exists)
        os.utime(tmp_path / "release.py", (1, 1))
        worker.kill()
        assert await worker.wait() == -signal.SIGKILL
        with pytest.raises(ForkServerEnded):
            await server.fork_worker()
