"""Workers and commands in a tenth of the time: a process that has loaded what they need, and forks whenever asked.

What is forked then executes worker.py, or `perdure`, from its first line, in a session, with an environment, directory
and files of its own: a process like any other, that lives and dies by real signals. Two things differ from a program
begun anew: modules are loaded already (three seconds of a processor each time for a worker, one for a command, under
coverage), and /proc/<pid> shows the server's command line and environment. Tests that look there, or that are about
starting, use `Engine.program`, `Engine.supervised` or `Cli.start`.
"""

from __future__ import annotations

import array
import asyncio
import atexit
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

_RUN = "PYTEST_XDIST_TESTRUNUID"
"""The same in all processes of one run of the tests."""

_ROOT = Path(__file__).parent.parent
_PATIENCE_S = 60
_LOOK_S = 0.02


class Forked:
    """A process as `subprocess.Popen` would show it, as far as tests need."""

    def __init__(self, server: _ForkServer, pid: int) -> None:
        self.pid, self.returncode = pid, None
        self._fork_server, self._fd = server, os.pidfd_open(pid)

    returncode: int | None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._fd], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._fd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._fd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _end(self) -> None:
        self.returncode = self._fork_server.ask({"reap": self.pid})
        os.close(self._fd)


class Kept:
    """Forks anew, by `start`, whenever the newest worker has died, until it is let go. Needs a running event loop."""

    def __init__(self, start: Callable[[], Forked]) -> None:
        self.worker = start()
        self._start = start
        self._task = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if self.worker.poll() is not None:
                self.worker = self._start()

    def let_go(self) -> None:
        self._task.cancel()


class _ForkServer:
    """This side of it. What it forked for this process is killed when this process ends, however it does.

    All processes of a test run share one: to load it takes as long as some deliveries. It ends with the last of them.
    """

    def __init__(self) -> None:
        place = Path(tempfile.gettempdir(), f"perdure-forks-{os.environ.get(_RUN, os.getpid())}")
        self._turn = threading.Lock()
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._socket = _socket()
            try:
                self._socket.connect(str(place))
                self.ask({})
            except (OSError, AssertionError):  # the first one, or the one there was is just ending
                place.unlink(missing_ok=True)
                _begin(place)
                self._socket = _socket()
                self._socket.connect(str(place))
                self.ask({})
        atexit.register(self._socket.close)

    def ask(self, request: dict[str, Any], *fds: int) -> int:
        told = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        with self._turn:  # commands are waited for in threads
            self._socket.sendmsg([json.dumps(request).encode()], told)
            answer = self._socket.recv(64)
        assert answer, "the fork server has died"
        return int(answer)


def _socket() -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    found.settimeout(_PATIENCE_S)
    return found


def _begin(place: Path) -> None:
    """Start one that listens there."""
    with _socket() as listening:
        listening.bind(str(place))
        listening.listen()
        env = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "PYTHONSAFE"))}
        command = [sys.executable, "-m", "tests.forking", str(listening.fileno())]
        subprocess.Popen(
            command,
            cwd=_ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
            start_new_session=True,
        )


@cache
def _fork_server() -> _ForkServer:
    return _ForkServer()


def fork(program: str, *args: str, env: dict[str, str], cwd: Path, files: tuple[int, int, int]) -> Forked:
    """A process that executes `program`, a script's path or a module's name, in `cwd` with nothing but `env`.

    `files` are descriptors of its standard input, output and error.
    """
    server = _fork_server()
    request = {"program": program, "args": args, "env": env, "cwd": str(cwd)}
    return Forked(server, server.ask(request, *files))


def ran(
    program: str, *args: str, env: dict[str, str], cwd: Path, stdin: str = "", timeout: float = 90
) -> tuple[int, str, str]:
    """Exit code, output and errors of such a process. AssertionError with both when it does not end in time."""
    with TemporaryFile("w+") as given, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        given.write(stdin)
        given.seek(0)
        process = fork(program, *args, env=env, cwd=cwd, files=(given.fileno(), out.fileno(), err.fileno()))
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{program} {args} did not end:\n{_all(out)}\n{_all(err)}") from None
        return code, _all(out), _all(err)


def _all(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
