"""Workers in a tenth of the time: a process that has loaded what a worker needs, and forks one whenever asked.

What is forked then executes worker.py as a script, in a session, with an environment and a log of its own: a process
like any other, that lives and dies by real signals. Two things differ from `python worker.py`: modules are loaded
already (three seconds of a processor each time, under coverage), and /proc/<pid> shows the nursery's command line and
environment. Tests that look there, or that are about starting, use `Lab.program` or `Lab.supervised`.
"""

from __future__ import annotations

import array
import asyncio
import atexit
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

LOADED = (
    "worker",
    "anthropic",
    "temporalio.worker",
    "temporalio.contrib.pydantic",
)
"""What a worker has loaded by the end of its first delivery; none of it starts a thread."""

_ROOT = Path(__file__).parent.parent
_REQUEST = 1 << 18
_PATIENCE_S = 60
_LOOK_S = 0.02


class Forked:
    """A worker as `subprocess.Popen` would show it, as far as tests need."""

    def __init__(self, nursery: _Nursery, pid: int) -> None:
        self.pid, self.returncode = pid, None
        self._nursery, self._fd = nursery, os.pidfd_open(pid)

    returncode: int | None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._fd], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._fd], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("worker.py", timeout or 0)
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
        self.returncode = self._nursery.ask({"reap": self.pid})
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


class _Nursery:
    """This side of it. It ends, and what it forked is killed, when this process does, however it does."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "PYTHONSAFE"))}
        command = [sys.executable, "-m", "tests.nursery", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, cwd=_ROOT, env=env, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()
        ours.settimeout(_PATIENCE_S)
        self._socket = ours
        atexit.register(self._close)

    def ask(self, request: dict[str, Any], *fds: int) -> int:
        told = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self._socket.sendmsg([json.dumps(request).encode()], told)
        answer = self._socket.recv(64)
        assert answer, "the nursery has died"
        return int(answer)

    def _close(self) -> None:
        self._socket.close()
        self._process.wait(_PATIENCE_S)


@cache
def _nursery() -> _Nursery:
    return _Nursery()


def fork(script: str, env: dict[str, str], log: int) -> Forked:
    """A process that executes `script` with `env`, its output going to the descriptor `log`."""
    nursery = _nursery()
    return Forked(nursery, nursery.ask({"script": script, "env": env}, log))


def _serve(control: socket.socket) -> None:
    """Until the other side is gone."""
    children: set[int] = set()
    while True:
        message, told, _, _ = control.recvmsg(_REQUEST, socket.CMSG_SPACE(4))
        if not message:
            break
        request = json.loads(message)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            children.discard(request["reap"])
            control.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        (log,) = array.array("i", told[0][2])
        pid = os.fork()
        if pid == 0:
            control.close()
            _become(request["script"], request["env"], log)
        os.close(log)
        children.add(pid)
        control.send(str(pid).encode())
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _become(script: str, env: dict[str, str], log: int) -> None:
    """Be `python script`, and end as it would."""
    code: Any = 1
    try:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = [script]
        if env.get("COVERAGE_PROCESS_CONFIG") or env.get("COVERAGE_PROCESS_START"):
            import coverage

            coverage.process_startup()
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - as the interpreter does with what nobody caught
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    for name in LOADED:
        importlib.import_module(name)
    _serve(socket.socket(fileno=int(sys.argv[1])))
