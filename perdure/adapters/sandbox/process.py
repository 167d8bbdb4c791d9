"""One sandboxed process tree from spawn to proven end: deadline, output limit, cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.adapters.sandbox.base import Command, Finished
from perdure.adapters.sandbox.groups import ControlGroup, group_for
from perdure.adapters.sandbox.running import running
from perdure.adapters.sandbox.status import Holder, SandboxStatus, StatusFile, forget
from perdure.adapters.sandbox.usage import Caps, Look, UsageWatcher, killed
from perdure.models.host_config import CommandLimits
from perdure.models.limits import OUTPUT_FILE_BYTES, SANDBOX_END_S

SANDBOX_LOOK_S = 0.1
"""Between two looks at a running sandbox: at 2 GB/s, the most that one process was seen to fill, 0.2 GB too late. No
more output fits in between than RLIMIT_FSIZE allows."""


FLOODED = 128 + signal.SIGXFSZ
"""Exit code of a command that was ended because it wrote too much, as if RLIMIT_FSIZE had done it."""

KEYCTL = {"x86_64": 250, "aarch64": 219}
JOIN_SESSION_KEYRING = 1
"""The number of the system call, by machine; what to ask of it."""


@dataclass(frozen=True)
class Launch:
    """The start of a supervisor process (bwrap or our launcher).

    argv      may contain `{status}`: replaced by the number of the status descriptor
    inputs    descriptors the supervisor inherits; they stay the caller's to close
    layers    directories inside that are memory where they are written to, all of the same
    lifeline  a line for the supervisor's stdin, which then stays open: its end tells a launcher to stop. None: no stdin
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    inputs: tuple[int, ...] = ()
    lifeline: bytes | None = None
    layers: tuple[str, ...] = ()


async def supervise(
    launch: Launch, command: Command, status: StatusFile, limit: int = OUTPUT_FILE_BYTES, caps: Caps | None = None
) -> Finished:
    """Run to the end. Everything the command started is dead on return, also when the caller is cancelled.

    RuntimeError outside of the main thread: parent-death signals fire when the spawning *thread* ends, so commands
    started from another one die at random (holes.md H33).
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("sandboxes are started from the main thread only")
    stop = asyncio.Event()
    # In a task of its own: a cancellation that arrives while we wait for the dead must not end the waiting.
    # What setup opens is noted (opened.py): a walk through its worktree would be taken for it.
    worktree = None if command.network else command.source or command.worktree
    watcher = UsageWatcher(caps or Caps.of(CommandLimits()), worktree, launch.layers)
    life = asyncio.ensure_future(_live(launch, command, status, limit, stop, watcher))
    cancelled: asyncio.CancelledError | None = None
    while not life.done():
        try:
            await asyncio.shield(life)
        except asyncio.CancelledError as error:
            if life.cancelled():
                raise
            cancelled = error
            stop.set()
    if cancelled is not None:
        life.exception()  # mark as seen: the cancellation is what the caller hears about
        raise cancelled
    return life.result()


async def _live(
    launch: Launch, command: Command, status: StatusFile, limit: int, stop: asyncio.Event, watcher: UsageWatcher
) -> Finished:
    group = await asyncio.to_thread(group_for, command.worktree.name, watcher.caps)
    try:
        launch = replace(launch, argv=group.joining(launch.argv)) if group else launch
        finished = await _lived(launch, command, status, limit, stop, watcher, group)
        return replace(finished, peak=max(watcher.peak, group.peak if group else 0))
    finally:
        if group is not None:
            await asyncio.to_thread(group.close)


async def _lived(
    launch: Launch,
    command: Command,
    status: StatusFile,
    limit: int,
    stop: asyncio.Event,
    watcher: UsageWatcher,
    group: ControlGroup | None,
) -> Finished:
    def full() -> bool:
        return command.output.stat().st_size > limit

    started = time.monotonic()
    _leave_our_keyring()
    output = os.open(command.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            *(word.replace("{status}", str(status.fd)) for word in launch.argv),
            env=dict(launch.env),
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL if launch.lifeline is None else asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=(status.fd, *launch.inputs),
            start_new_session=True,
        )
    except OSError as error:  # not there, not executable, or a script longer than an argument may be (128 KiB)
        return Finished(None, time.monotonic() - started, failure=f"cannot start {launch.argv[0]}: {error.strerror}")
    finally:
        os.close(output)
    status.hand_over()
    if process.stdin is not None and launch.lifeline is not None:
        with contextlib.suppress(ConnectionError):
            process.stdin.write(launch.lifeline)
            await process.stdin.drain()
    ended = asyncio.ensure_future(process.wait())
    stopping = asyncio.ensure_future(stop.wait())
    looking = asyncio.ensure_future(_look(watcher, status, group, full))
    left: tuple[str, ...] = ()
    try:
        await asyncio.wait(
            {ended, stopping, looking},
            timeout=max(0.0, started + command.timeout_s - time.monotonic()),
            return_when=asyncio.FIRST_COMPLETED,
        )
        why = "output" if full() else _first(ended, stopping, looking)
        if why == "timeout" and (holder := status.read().holder):
            left = await running(holder.pid)
    finally:
        stopping.cancel()
        try:
            over = await _looked(looking)
        finally:  # whatever has gone wrong: nobody else ends it
            alive = await _end(process, ended, status)
    said = status.read()
    if command.lock is not None:
        forget(command.lock)
    if why == "output":
        os.truncate(command.output, limit)
    duration = time.monotonic() - started
    if alive:
        return Finished(None, duration, failure=f"process {alive} does not die although it was killed")
    if why == "timeout":
        return Finished(None, duration, timed_out=True, running=left)
    if why == "output":
        return Finished(FLOODED, duration, truncated=True)
    if over := over or (group.over() if group else ""):  # the kernel may have been quicker than the look
        return Finished(128 + signal.SIGKILL, duration, over=over)
    return _verdict(said, process.returncode, command.output, duration, watcher.peak)


async def _look(watcher: UsageWatcher, status: StatusFile, group: ControlGroup | None, full: Callable[[], bool]) -> str:
    """Look at the sandbox until it is over a limit; say which, '' for that of its output."""

    async def over(look: Look) -> str:
        holder: Holder | None = None
        while True:
            await asyncio.sleep(max(SANDBOX_LOOK_S, look.due - time.monotonic()))
            holder = holder or status.read().holder
            if holder and look.wanted() and (said := await asyncio.to_thread(look, holder.pid)):
                return said

    async def at_once() -> str:
        """The same, as far as no thread is needed."""
        said = ""
        while not full() and not said:
            await asyncio.sleep(SANDBOX_LOOK_S)
            said = group.over() if group else ""
        return said

    looking = [asyncio.ensure_future(at_once()), *(asyncio.ensure_future(over(look)) for look in watcher.looks)]
    try:
        done, _ = await asyncio.wait(looking, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for one in looking:
            one.cancel()
        await asyncio.wait(looking)


async def _looked(looking: asyncio.Future[str]) -> str:
    """End the looking. Return the limit it found, or ''."""
    if not looking.done():
        looking.cancel()
        await asyncio.wait({looking})
    return "" if looking.cancelled() else looking.result()


def _first(ended: asyncio.Future[Any], stopping: asyncio.Future[Any], looking: asyncio.Future[str]) -> str:
    """Return the reason for which the waiting is over: '' is the command's end."""
    if ended.done():
        return ""
    if stopping.done():
        return "cancelled"
    return "over" if looking.done() else "timeout"


async def _end(process: asyncio.subprocess.Process, ended: asyncio.Future[int], status: StatusFile) -> int:
    """Kill what is left and wait until it is gone. Returns the pid of what would not die, 0 when all is dead."""
    holder = status.read().holder
    if not ended.done():
        if process.stdin is not None:
            process.stdin.close()  # the launcher ends its commands and then itself
            await asyncio.wait({ended}, timeout=SANDBOX_END_S / 2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait({ended}, timeout=SANDBOX_END_S)
        if not ended.done():
            return process.pid
    # bwrap's outer process is gone as soon as the command is: its namespace may take a moment longer.
    return holder.pid if holder and holder.pid != process.pid and not await _gone(holder) else 0


async def _gone(holder: Holder) -> bool:
    pidfd = holder.pidfd()
    if pidfd is None:
        return True
    loop = asyncio.get_running_loop()
    dead = asyncio.Event()
    loop.add_reader(pidfd, dead.set)
    try:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(dead.wait(), SANDBOX_END_S)
        return dead.is_set()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def _verdict(status: SandboxStatus, code: int | None, output: Path, duration: float, peak: int) -> Finished:
    """The supervisor's own exit code says nothing: bwrap's failures are 1, like a failing command's."""
    if status.exit_code is not None:
        return Finished(status.exit_code, duration)
    if status.failure:
        return Finished(None, duration, failure=status.failure)
    if code is not None and code < 0:  # the supervisor itself, with all below it; a command's own death has a code
        return Finished(None, duration, failure=f"the sandbox was {killed(-code, peak)}", died=True)
    with open(output, "rb") as file:
        words = file.read(4096).decode(errors="replace").strip()
    return Finished(None, duration, failure=words or f"the sandbox ended with {code} before the command ran")


def _leave_our_keyring() -> None:
    """Give the calling thread, and what it starts from now on, a new and empty session keyring.

    The main thread starts every sandbox and keeps the newest of these keyrings itself, for an older one cannot be
    taken back: what it holds is nothing. A kernel without keys, or a container that forbids them, has none to pass on;
    where the owner's quota of keys is used up (200 at once), sandboxes share the last empty one until some are gone.
    """
    number = KEYCTL.get(platform.machine())
    if sys.platform == "linux" and number is not None:
        ctypes.CDLL(None).syscall(number, JOIN_SESSION_KEYRING, None)
