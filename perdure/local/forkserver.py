"""A process that has loaded what workers load, and forks one whenever its supervisor asks (Linux).

Loading, the model's library too, takes seconds of a processor: once a start, not again in each worker. A forked worker
goes on in worker.py as if it had been started anew: its loop, threads and connections are its own, none of them exist
before the fork. It gets SIGTERM when the fork server ends, and the fork server when its supervisor does. worker.py
calls `fork_workers`; the supervisor talks to that process through `ForkServer`.
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
from perdure.models.base import build_models
from perdure.models.errors import PerdureError

FORKS_ANSWER_S = 60.0
"""Limit for a fork server to report how a worker ended: it takes a millisecond, or as long as what it is just loading,
ten seconds and more on a busy machine. One that is silent for longer was stopped, or hangs: another one replaces it."""


SOCKET_VARIABLE = "PERDURE_FORKS_FD"
FORKING_POSSIBLE = sys.platform == "linux" and hasattr(os, "pidfd_open")
"""True where workers can be forked: outside Linux, libraries with threads of the system's own do not survive it."""

_PR_SET_PDEATHSIG = 1
_MESSAGE_BYTES = 32


def fork_workers() -> None:
    """Fork a worker at each request of the supervisor that started this process; return only in the workers.

    The process that forks never returns: it exits in here. In a process that no supervisor started for forking, return
    at once. Before returning, what is loaded is put out of reach of the garbage collector, which then runs again. From
    the call on, an uncaught PerdureError is printed in its three lines.
    """
    sys.excepthook = _print_uncaught
    build_models()
    descriptor = os.environ.pop(SOCKET_VARIABLE, "")
    if descriptor.isdigit():
        _WorkerForker(socket.socket(fileno=int(descriptor))).serve_requests()
    startup.resume_garbage_collection()


def _print_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught PerdureError to stderr in three lines, other errors with a traceback (a `sys.excepthook`)."""
    if isinstance(error, PerdureError):
        print(f"error: {error}", file=sys.stderr, flush=True)
    else:
        sys.__excepthook__(kind, error, trace)


class _WorkerForker:
    """The loop of the fork server, for one worker at a time.

    It has no thread and no event loop: only a process without them can be forked whole.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._loaded_sources = _load_model_library()
        self._worker_pid = 0
        self._worker_pidfd: int | None = None

    def serve_requests(self) -> None:
        """Fork a worker at each request on the socket, and report how each one ended; return in a forked worker.

        Ends this process when the supervisor is gone, or a loaded source file has changed, as another release does: the
        supervisor then starts another fork server.
        """
        while True:
            watched: list[Any] = [self._control, *([] if self._worker_pidfd is None else [self._worker_pidfd])]
            ready = select.select(watched, [], [])[0]
            if self._worker_pidfd in ready:
                self._report_exit_code()
            if self._control in ready:
                if self._control.recv(_MESSAGE_BYTES) == b"" or _source_times() != self._loaded_sources:
                    _exit_now()  # The supervisor is gone, or replaces us by a newer release.
                if self._fork_worker():
                    return

    def _fork_worker(self) -> bool:
        """Fork a worker; return True in the worker, False in the fork server.

        The fork server sends the worker's pid and pidfd to the supervisor. The worker leaves the terminal's session and
        gets SIGTERM when the fork server dies; it exits at once if that has died already.
        """
        parent = os.getpid()
        self._worker_pid = os.fork()
        if self._worker_pid:
            self._worker_pidfd = os.pidfd_open(self._worker_pid)
            socket.send_fds(self._control, [str(self._worker_pid).encode()], [self._worker_pidfd])
            return False
        self._control.close()
        os.setsid()  # Ctrl-C at the terminal is for the supervisor, who passes it on
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # The parent died before we asked for its death signal.
            _exit_now()
        return True

    def _report_exit_code(self) -> None:
        """Wait for the worker that has ended, close its pidfd, and send its exit code to the supervisor."""
        assert self._worker_pidfd is not None
        _, status = os.waitpid(self._worker_pid, 0)
        os.close(self._worker_pidfd)
        self._worker_pidfd = None
        self._control.send(str(os.waitstatus_to_exitcode(status)).encode())


def _load_model_library() -> dict[str, int]:
    """Load the model library, and return the source files of all that is loaded, as _source_times has them. A file that
    has changed meanwhile has the time it had before.

    Errors are ignored: a worker reports itself what is wrong with the library. Afterwards the garbage collector leaves
    alone what is loaded, so that children copy less memory.
    """
    sources = _source_times()
    with contextlib.suppress(Exception):  # a worker says what is wrong with it
        from perdure.adapters.agents.builtin.model import load_api_library

        load_api_library()
    gc.freeze()  # children copy less
    return _source_times() | sources


def _source_times() -> dict[str, int]:
    """Return the source file of every loaded module → time of its last change in ns, 0 if it no longer exists."""
    times = {}
    for module in list(sys.modules.values()):
        if file := getattr(module, "__file__", None):
            try:
                times[file] = os.stat(file).st_mtime_ns
            except OSError:
                times[file] = 0
    return times


def _exit_now() -> NoReturn:
    """Exit this process with code 0, without any cleanup."""
    os._exit(0)


class ForkServerEnded(Exception):
    """The fork server has ended, or is silent and counts as ended."""


class ForkServer:
    """The supervisor's side of the fork server: `process` reads from the other end of the socket `control`."""

    def __init__(self, process: Process, control: socket.socket) -> None:
        self._process, self._control = process, control
        self._silent = False
        self._messages: asyncio.Queue[tuple[bytes, list[int]]] = asyncio.Queue()
        control.setblocking(False)
        asyncio.get_running_loop().add_reader(control, self._receive_message)

    def _receive_message(self) -> None:
        """Put the fork server's next message, with its descriptors, into the queue.

        When the fork server has ended, put an empty message and read no further.
        """
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES, 1)
        except OSError:
            message, descriptors = b"", []
        if not message:
            asyncio.get_running_loop().remove_reader(self._control)
        self._messages.put_nowait((message, descriptors))

    async def fork_worker(self) -> ForkedWorker:
        """Ask for a new worker and return it once the fork server has loaded everything and forked it; waits without a
        limit.

        Raises ForkServerEnded when the fork server has ended, or was silent in `wait_for_exit_code` before.
        """
        if self._silent:
            raise ForkServerEnded
        try:
            self._control.send(b"fork")
        except OSError:
            raise ForkServerEnded from None
        message, descriptors = await self._messages.get()
        if not message:
            raise ForkServerEnded
        return ForkedWorker(int(message), descriptors[0], self)

    async def wait_for_exit_code(self) -> int:
        """Return the exit code of the newest worker, which has ended, once the fork server reports it.

        Raises ForkServerEnded when the fork server has ended, or does not report within FORKS_ANSWER_S seconds; it then
        counts as ended for good.
        """
        try:
            message, _ = await asyncio.wait_for(self._messages.get(), FORKS_ANSWER_S)
        except TimeoutError:  # stopped, or stuck in what it loads
            self._silent = True
            raise ForkServerEnded from None
        if not message:
            raise ForkServerEnded
        return int(message)

    async def kill_and_wait(self) -> None:
        """Kill the fork server and wait until it has ended; a worker of it that still runs gets SIGTERM."""
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()  # it has nothing to finish, and one that was stopped would not take SIGTERM
        await self._process.wait()


class ForkedWorker:
    """A worker that was forked, with the methods of a process that the supervisor needs."""

    def __init__(self, pid: int, pidfd: int, server: ForkServer) -> None:
        self.pid, self._server = pid, server
        self._pidfd: int | None = pidfd

    async def wait(self) -> int:
        """Wait until the worker has ended and return its exit code, negative for a signal. To be called once.

        Returns the code of SIGTERM when the fork server cannot report the real one.
        """
        assert self._pidfd is not None
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._pidfd, ended.set)
        try:
            await ended.wait()
            return await self._server.wait_for_exit_code()
        except ForkServerEnded:
            return -signal.SIGTERM
        finally:
            loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def terminate(self) -> None:
        """Send SIGTERM. Raises ProcessLookupError when the worker has ended."""
        self._send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL. Raises ProcessLookupError when the worker has ended."""
        self._send_signal(signal.SIGKILL)

    def _send_signal(self, number: signal.Signals) -> None:
        if self._pidfd is None:
            raise ProcessLookupError(self.pid)
        signal.pidfd_send_signal(self._pidfd, number)
