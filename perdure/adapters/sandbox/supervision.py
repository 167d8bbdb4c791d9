"""The supervision of one sandboxed process tree from spawn to proven end: deadline, limits of output and of resources,
cancellation. Used by the sandboxes of all grades."""

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

from perdure.adapters.sandbox.base import SandboxCommand, SandboxResult
from perdure.adapters.sandbox.control_groups import ControlGroup, make_control_group
from perdure.adapters.sandbox.status import Holder, SandboxStatus, StatusFile, empty_if_unused
from perdure.adapters.sandbox.usage import LimitCheck, ResourceCaps, UsageWatcher, describe_kill, list_running_commands
from perdure.models.config.host import CommandLimits
from perdure.models.limits import OUTPUT_FILE_BYTES, SANDBOX_END_S

SANDBOX_CHECK_S = 0.1
"""Seconds between two checks of a running sandbox: at 2 GB/s, the most that one process was seen to fill, 0.2 GB too
late. No more output fits in between than RLIMIT_FSIZE allows."""


OUTPUT_LIMIT_EXIT_CODE = 128 + signal.SIGXFSZ
"""Exit code of a command that was ended because it wrote too much, as if RLIMIT_FSIZE had done it."""

KEYCTL = {"x86_64": 250, "aarch64": 219}
JOIN_SESSION_KEYRING = 1
"""Numbers of the system call keyctl, by machine, and of the operation asked of it."""


@dataclass(frozen=True)
class SupervisorLaunch:
    """The start of a supervisor process (bwrap or our launcher).

    argv      may contain `{status}`: replaced by the number of the status descriptor
    inputs    descriptors the supervisor inherits; they stay the caller's to close
    layers    directories inside in which written files are memory, all on one file system
    lifeline  a line for the supervisor's stdin, which then stays open: its end tells a launcher to stop. None: no stdin
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    inputs: tuple[int, ...] = ()
    lifeline: bytes | None = None
    layers: tuple[str, ...] = ()


async def supervise_command(
    launch: SupervisorLaunch,
    command: SandboxCommand,
    status: StatusFile,
    output_limit: int = OUTPUT_FILE_BYTES,
    caps: ResourceCaps | None = None,
) -> SandboxResult:
    """Run a command under its supervisor to the end, within its time, the limit of its output (bytes) and `caps`, and
    return its result. Everything it started is dead on return, also when the caller is cancelled.

    Raises RuntimeError outside of the main thread: parent-death signals fire when the spawning *thread* ends, so
    commands started from another one die at random.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("sandboxes are started from the main thread only")
    stop = asyncio.Event()
    # In a task of its own: a cancellation that arrives while we wait for the dead must not end the waiting. The
    # worktree of setup is not measured: which files setup opens is recorded (system/opened_files.py), and a walk
    # through them would count as that.
    worktree = None if command.network else command.source or command.worktree
    watcher = UsageWatcher(caps or ResourceCaps.from_limits(CommandLimits()), worktree, launch.layers)
    supervision = asyncio.ensure_future(_run_in_control_group(launch, command, status, output_limit, stop, watcher))
    cancelled: asyncio.CancelledError | None = None
    while not supervision.done():
        try:
            await asyncio.shield(supervision)
        except asyncio.CancelledError as error:
            if supervision.cancelled():
                raise
            cancelled = error
            stop.set()
    if cancelled is not None:
        supervision.exception()  # mark as seen: the caller gets the cancellation
        raise cancelled
    return supervision.result()


async def _run_in_control_group(
    launch: SupervisorLaunch,
    command: SandboxCommand,
    status: StatusFile,
    output_limit: int,
    stop: asyncio.Event,
    watcher: UsageWatcher,
) -> SandboxResult:
    """Run a command in a control group of its own, where the host allows one, and return its result with the most
    memory that was seen. The group, with all that is left in it, is removed at the end."""
    group = await asyncio.to_thread(make_control_group, command.worktree.name, watcher.caps)
    try:
        launch = replace(launch, argv=group.joining_command(launch.argv)) if group else launch
        finished = await _run_supervisor(launch, command, status, output_limit, stop, watcher, group)
        return replace(finished, peak=max(watcher.peak, group.peak if group else 0))
    finally:
        if group is not None:
            await asyncio.to_thread(group.remove)


async def _run_supervisor(
    launch: SupervisorLaunch,
    command: SandboxCommand,
    status: StatusFile,
    output_limit: int,
    stop: asyncio.Event,
    watcher: UsageWatcher,
    group: ControlGroup | None,
) -> SandboxResult:
    """Start the supervisor, wait until the command ends, its time is over, it exceeds a limit (also that of its output)
    or `stop` is set, kill whatever lives, and return the result. A supervisor that cannot be started, and a process
    that survives the kill, make it a `failure`.

    The output file is emptied at the start. Output beyond `output_limit` ends the command, and is cut off. `group` is
    only asked whether a limit was exceeded, not used to kill. The status file is handed to the supervisor. At a
    time-out the result lists the commands that were running. At the end the command's lock file is emptied when no
    other sandbox uses it.
    """

    def is_output_full() -> bool:
        """Return whether the output file is longer than its limit."""
        return command.output.stat().st_size > output_limit

    started_at = time.monotonic()
    _join_new_keyring()
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
        return SandboxResult(
            None, time.monotonic() - started_at, failure=f"cannot start {launch.argv[0]}: {error.strerror}"
        )
    finally:
        os.close(output)
    status.hand_over()
    if process.stdin is not None and launch.lifeline is not None:
        with contextlib.suppress(ConnectionError):
            process.stdin.write(launch.lifeline)
            await process.stdin.drain()
    process_end = asyncio.ensure_future(process.wait())
    stop_request = asyncio.ensure_future(stop.wait())
    limit_watch = asyncio.ensure_future(_watch_limits(watcher, status, group, is_output_full))
    running_commands: tuple[str, ...] = ()
    try:
        await asyncio.wait(
            {process_end, stop_request, limit_watch},
            timeout=max(0.0, started_at + command.timeout_s - time.monotonic()),
            return_when=asyncio.FIRST_COMPLETED,
        )
        end_reason = "output" if is_output_full() else _end_reason(process_end, stop_request, limit_watch)
        if end_reason == "timeout" and (holder := status.read_status().holder):
            running_commands = await list_running_commands(holder.pid)
    finally:
        stop_request.cancel()
        try:
            exceeded = await _stop_watching(limit_watch)
        finally:  # whatever has gone wrong: nobody else ends it
            survivor = await _kill_and_wait(process, process_end, status)
    last_status = status.read_status()
    if command.lock is not None:
        empty_if_unused(command.lock)
    if end_reason == "output":
        os.truncate(command.output, output_limit)
    duration = time.monotonic() - started_at
    if survivor:
        return SandboxResult(None, duration, failure=f"process {survivor} does not die although it was killed")
    if end_reason == "timeout":
        return SandboxResult(None, duration, timed_out=True, running=running_commands)
    if end_reason == "output":
        return SandboxResult(OUTPUT_LIMIT_EXIT_CODE, duration, truncated=True)
    if exceeded := exceeded or (
        group.exceeded_limit() if group else ""
    ):  # the kernel may have been quicker than the check
        return SandboxResult(128 + signal.SIGKILL, duration, over=exceeded)
    return _result_from_status(last_status, process.returncode, command.output, duration, watcher.peak)


async def _watch_limits(
    watcher: UsageWatcher, status: StatusFile, group: ControlGroup | None, is_output_full: Callable[[], bool]
) -> str:
    """Wait until the sandbox is over a limit, and return which, in words; '' when it was the limit of its output. Runs
    until it is cancelled when no limit is exceeded."""

    async def watch_usage(check: LimitCheck) -> str:
        """Repeat one of the watcher's checks in a thread, whenever it is due, until it finds a limit exceeded; return
        that."""
        holder: Holder | None = None
        while True:
            await asyncio.sleep(max(SANDBOX_CHECK_S, check.due - time.monotonic()))
            holder = holder or status.read_status().holder
            if holder and check.is_needed() and (exceeded := await asyncio.to_thread(check, holder.pid)):
                return exceeded

    async def watch_without_threads() -> str:
        """Check the size of the output and the control group every SANDBOX_CHECK_S until one is over its limit; return
        the group's limit, or '' for the output's. These checks need no thread."""
        exceeded = ""
        while not is_output_full() and not exceeded:
            await asyncio.sleep(SANDBOX_CHECK_S)
            exceeded = group.exceeded_limit() if group else ""
        return exceeded

    watches = [
        asyncio.ensure_future(watch_without_threads()),
        *(asyncio.ensure_future(watch_usage(check)) for check in watcher.checks),
    ]
    try:
        done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.wait(watches)


async def _stop_watching(limit_watch: asyncio.Future[str]) -> str:
    """Stop watching the limits, and return the limit that was found exceeded, or ''."""
    if not limit_watch.done():
        limit_watch.cancel()
        await asyncio.wait({limit_watch})
    return "" if limit_watch.cancelled() else limit_watch.result()


def _end_reason(
    process_end: asyncio.Future[Any], stop_request: asyncio.Future[Any], limit_watch: asyncio.Future[str]
) -> str:
    """Return the reason for which the wait is over: '' when the command ended, "cancelled", "over" for a limit,
    "timeout"."""
    if process_end.done():
        return ""
    if stop_request.done():
        return "cancelled"
    return "over" if limit_watch.done() else "timeout"


async def _kill_and_wait(
    process: asyncio.subprocess.Process, process_end: asyncio.Future[int], status: StatusFile
) -> int:
    """Kill what is left of the sandbox and wait until it is dead: the supervisor by SIGKILL to its process group (a
    launcher gets half of SANDBOX_END_S to do it itself), and the sandbox's first process. Returns the pid of what did
    not die, 0 when all is dead."""
    holder = status.read_status().holder
    if not process_end.done():
        if process.stdin is not None:
            process.stdin.close()  # the launcher ends its commands and then itself
            await asyncio.wait({process_end}, timeout=SANDBOX_END_S / 2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait({process_end}, timeout=SANDBOX_END_S)
        if not process_end.done():
            return process.pid
    # bwrap's outer process is gone as soon as the command is: its namespace may take a moment longer.
    return holder.pid if holder and holder.pid != process.pid and not await _kill_holder(holder) else 0


async def _kill_holder(holder: Holder) -> bool:
    """Kill the sandbox's first process, with its pid namespace, and wait up to SANDBOX_END_S for its end. Returns
    whether it is dead."""
    pidfd = holder.open_pidfd()
    if pidfd is None:
        return True
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), SANDBOX_END_S)
        return ended.is_set()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


def _result_from_status(
    status: SandboxStatus, supervisor_code: int | None, output: Path, duration: float, peak: int
) -> SandboxResult:
    """Return the result of a supervisor that has ended by itself, or that somebody else killed: from the status it
    wrote; else, with a `failure`, from the signal that killed it or the message in the output.

    Its own exit code says nothing: bwrap's failures are 1, like a failing command's.
    """
    if status.exit_code is not None:
        return SandboxResult(status.exit_code, duration)
    if status.failure:
        return SandboxResult(None, duration, failure=status.failure)
    if (
        supervisor_code is not None and supervisor_code < 0
    ):  # the supervisor itself, with all below it; a command's own death has a code
        return SandboxResult(
            None, duration, failure=f"the sandbox was {describe_kill(-supervisor_code, peak)}", died=True
        )
    with open(output, "rb") as file:
        message = file.read(4096).decode(errors="replace").strip()
    return SandboxResult(
        None, duration, failure=message or f"the sandbox ended with {supervisor_code} before the command ran"
    )


def _join_new_keyring() -> None:
    """Give the calling thread, and what it starts from now on, a new and empty session keyring.

    The main thread starts every sandbox and keeps the newest of these keyrings itself, because an older one cannot be
    taken back: what it holds is nothing. A kernel without keys, or a container that forbids them, has none to pass on;
    where the owner's quota of keys is used up (200 at once), sandboxes share the last empty one until some are gone.
    """
    number = KEYCTL.get(platform.machine())
    if sys.platform == "linux" and number is not None:
        ctypes.CDLL(None).syscall(number, JOIN_SESSION_KEYRING, None)
