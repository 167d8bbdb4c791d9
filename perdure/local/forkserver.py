"""A process that has loaded what workers load, and forks one whenever its supervisor asks (Linux).

Loading takes seconds of a processor, which every death of a worker would cost its deliveries again. What is forked goes
on in worker.py as if it had been started anew: its loop, threads and connections are its own, nothing of them is there
before. It ends with SIGTERM when this process does, as this one does with its supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
from asyncio.subprocess import Process
from types import TracebackType
from typing import Any, NoReturn

from perdure import startup
from perdure.models.errors import PerdureError

FORKS_LOAD_MORE_S = 5.0
"""After a worker was forked: then its fork server loads the model's library as well, which takes a processor for one to
three seconds that the first worker needs itself until then."""

FORKS_ANSWER_S = 60.0
"""For a fork server to say how a worker ended: a millisecond, or the seconds of what it is just loading, ten and more
on a machine that is busy. One that is silent for longer was stopped, or hangs: another one takes its place."""


DESCRIPTOR = "PERDURE_FORKS_FD"
POSSIBLE = sys.platform == "linux" and hasattr(os, "pidfd_open")
"""Elsewhere libraries with threads of the system's own do not survive a fork."""

_PR_SET_PDEATHSIG = 1
_MESSAGE = 32


def serve() -> None:
    """Fork a worker at each request of the supervisor that started this process. Returns in each worker, and at once
    in a process that no supervisor started for that: with all that is loaded out of its garbage collections."""
    sys.excepthook = _told
    given = os.environ.pop(DESCRIPTOR, "")
    if given.isdigit():
        _Server(socket.socket(fileno=int(given))).work()
    startup.loaded()


def _told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A worker that cannot begin says why in the three lines of every error; anything else with its traceback."""
    if isinstance(error, PerdureError):
        print(f"error: {error}", file=sys.stderr, flush=True)
    else:
        sys.__excepthook__(kind, error, trace)


class _Server:
    """Of one worker at a time. It has no thread and no event loop: only then a fork is a whole process."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._loaded = _sources()
        self._pid = 0
        self._pinned: int | None = None
        self._more = True

    def work(self) -> None:
        while True:
            watched: list[Any] = [self._control, *([] if self._pinned is None else [self._pinned])]
            wait = FORKS_LOAD_MORE_S if self._more and self._pid else None
            ready = select.select(watched, [], [], wait)[0]
            if not ready:
                self._load_more()
            if self._pinned in ready:
                self._say_how_it_ended()
            if self._control in ready:
                if self._control.recv(_MESSAGE) == b"" or _sources() != self._loaded:
                    _end()  # the supervisor is gone, or another release lies there: it has one started
                if self._forked():
                    return

    def _forked(self) -> bool:
        """True in the worker."""
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid:
            self._pinned = os.pidfd_open(self._pid)
            socket.send_fds(self._control, [str(self._pid).encode()], [self._pinned])
            return False
        self._control.close()
        os.setsid()  # Ctrl-C at the terminal is for the supervisor, who passes it on
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            _end()
        return True

    def _say_how_it_ended(self) -> None:
        assert self._pinned is not None
        _, status = os.waitpid(self._pid, 0)
        os.close(self._pinned)
        self._pinned = None
        self._control.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _load_more(self) -> None:
        """The model's library, too: the first worker has no time to wait for it, the next ones need not load it."""
        self._more = False
        with contextlib.suppress(Exception):  # a worker says what is wrong with it
            from perdure.adapters.agents.builtin.model import load

            load()
        self._loaded = _sources() | self._loaded  # what was there at first, where it was changed meanwhile
        gc.freeze()  # children copy less


def _sources() -> dict[str, int]:
    """Files of what is loaded, with when they were changed, in ns; 0: no longer there."""
    found = {}
    for module in list(sys.modules.values()):
        if file := getattr(module, "__file__", None):
            try:
                found[file] = os.stat(file).st_mtime_ns
            except OSError:
                found[file] = 0
    return found


def _end() -> NoReturn:
    os._exit(0)


class Gone(Exception):
    """The fork server has ended."""


class ForkServer:
    """The supervisor's side: `process` reads from the other end of `control`."""

    def __init__(self, process: Process, control: socket.socket) -> None:
        self._process, self._control = process, control
        self._silent = False
        self._said: asyncio.Queue[tuple[bytes, list[int]]] = asyncio.Queue()
        control.setblocking(False)
        asyncio.get_running_loop().add_reader(control, self._read)

    def _read(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, _MESSAGE, 1)
        except OSError:
            message, descriptors = b"", []
        if not message:
            asyncio.get_running_loop().remove_reader(self._control)
        self._said.put_nowait((message, descriptors))

    async def fork(self) -> Forked:
        """A new worker, as soon as everything is loaded. Raises Gone."""
        if self._silent:
            raise Gone
        try:
            self._control.send(b"fork")
        except OSError:
            raise Gone from None
        message, descriptors = await self._said.get()
        if not message:
            raise Gone
        return Forked(int(message), descriptors[0], self)

    async def code(self) -> int:
        """Exit code of the newest worker, which has ended. Raises Gone when nobody says it, now or later."""
        try:
            message, _ = await asyncio.wait_for(self._said.get(), FORKS_ANSWER_S)
        except TimeoutError:  # stopped, or stuck in what it loads
            self._silent = True
            raise Gone from None
        if not message:
            raise Gone
        return int(message)

    async def end(self) -> None:
        """Its worker has ended, or gets SIGTERM now."""
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()  # it has nothing to finish, and one that was stopped would not take SIGTERM
        await self._process.wait()


class Forked:
    """A worker that was forked, with what the supervisor needs of a process."""

    def __init__(self, pid: int, pinned: int, server: ForkServer) -> None:
        self.pid, self._server = pid, server
        self._pinned: int | None = pinned

    async def wait(self) -> int:
        """Its exit code, negative for a signal; that of SIGTERM when the fork server cannot say it. Once only."""
        assert self._pinned is not None
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._pinned, ended.set)
        try:
            await ended.wait()
            return await self._server.code()
        except Gone:
            return -signal.SIGTERM
        finally:
            loop.remove_reader(self._pinned)
            os.close(self._pinned)
            self._pinned = None

    def terminate(self) -> None:
        """Raises ProcessLookupError when it has ended."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Raises ProcessLookupError when it has ended."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._pinned is None:
            raise ProcessLookupError(self.pid)
        signal.pidfd_send_signal(self._pinned, number)
