"""Processes that outlive their starter, known by the lock they hold and never by their pid alone; their logs; and the
launcher that starts them, for which this file is run as a script. Used by the other modules of `perdure.local` and the
demo."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def exec_detached(record: str, text: str, command: list[str]) -> None:
    """Fork, exit the parent, and replace the child by `command`, so that the program is nobody's child.

    Before it becomes the program the child writes the JSON object `text`, with its pid added, to the file `record`,
    unless that is empty; files that the program makes are then for its owner only. The starter does not write it,
    because one that is killed in between would leave a server unknown.
    """
    if os.fork():
        os._exit(0)
    if record:
        os.umask(0o077)  # the server's database is its owner's alone, whatever becomes of the directory
        unfinished = f"{record}.new"
        with open(unfinished, "w") as file:
            file.write(f'{{"pid": {os.getpid()}, {text.lstrip("{")}\n')
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, record)
    _exec_program(command)


def exec_tied_to_parent(parent: int, command: list[str]) -> None:
    """Replace this process by `command`, which gets SIGTERM when its parent dies, where the kernel can do that (Linux).

    Exits with code 1 when the process `parent` has died already.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # The parent died before we asked for its death signal.
        sys.exit(1)
    _exec_program(command)


def _exec_program(command: list[str]) -> None:
    """Replace this process by `command`, with the signals that Python ignores (SIGPIPE, SIGXFSZ) at their defaults."""
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    os.execvp(command[0], command)  # noqa: S606 (no shell wanted)


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    if mode == "detached":
        exec_detached(arguments[0], arguments[1], arguments[2:])
    else:
        exec_tied_to_parent(int(arguments[0]), arguments[1:])


LOG_BYTES = 10 * 1024**2
"""Size from which a log of the server or worker is set aside when they start; one older file is kept."""


_LAUNCHER = str(Path(__file__))
_POLL_S = 0.05


async def wait_until_released(lock: Path, within: float) -> bool:
    """Wait until nobody holds `lock`; return True when that happened within `within` seconds, else False."""
    from perdure.adapters.system.files import (
        is_locked,  # not above: as a script this file has the standard library alone
    )

    deadline = asyncio.get_running_loop().time() + within
    while is_locked(lock):
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def holds_lock(pid: int, lock: Path) -> bool:
    """Return whether the process `pid` has the file `lock` open, by its open files.

    The open files of workers and supervisors cannot be seen without the rights of root (perdure.secrets). For a process
    that hides them, return whether somebody holds the lock and the process is this user's; a stranger that got the same
    pid does not hide them. Without /proc (not Linux) return whether somebody holds the lock.
    """
    from perdure.adapters.system.files import (
        is_locked,  # not above: as a script this file has the standard library alone
    )

    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return is_locked(lock) and _effective_uid(pid) == os.geteuid()
    except FileNotFoundError:
        return sys.platform != "linux" and is_locked(lock)
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed since it was listed
            if os.path.samefile(f"/proc/{pid}/fd/{descriptor}", lock):
                return True
    return False


def _effective_uid(pid: int) -> int:
    """Return the effective user id of a process, -1 when it no longer exists, and on systems without /proc."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return -1
    return next((int(line.split()[2]) for line in lines if line.startswith("Uid:")), -1)


def signal_lock_holder(pid: int, lock: Path, number: signal.Signals) -> bool:
    """Send a signal to the process `pid` if it has `lock` open; return True when it was sent.

    False when there is no such process, or it has not that file open. On Linux the process is pinned by a pidfd before
    it is looked at, so that the signal cannot reach a stranger that got the same pid in between.
    """
    try:
        if sys.platform != "linux":
            if holds_lock(pid, lock):
                os.kill(pid, number)
                return True
            return False
        pidfd = os.pidfd_open(pid)
        try:
            if holds_lock(pid, lock):
                signal.pidfd_send_signal(pidfd, number)
                return True
            return False
        finally:
            os.close(pidfd)
    except ProcessLookupError:
        return False


def start_detached(
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
    cwd: Path,
    inherit: Sequence[int] = (),
    record: Path | None = None,
    text: str = "",
) -> None:
    """Start a program in a session of its own that outlives us, both outputs appended to `log`; return once it is
    launched.

    cwd      not ours: a program that stays for days must not hold on to somebody's directory
    inherit  descriptors the program keeps open, such as the lock it shall hold for life
    record   file the program writes before it starts: the JSON object `text` with "pid" added
    Creates the directory of `log`. Raises CalledProcessError when the launcher fails.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    launch = [sys.executable, "-I", "-S", _LAUNCHER, "detached", str(record or ""), text, *command]
    with open(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as output:
        subprocess.run(
            launch,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=inherit,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
            check=True,
        )


def command_tied_to_us(command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` as a child which gets SIGTERM when this process dies.

    Spawn it from the main thread: the kernel sends the signal when the *thread* that spawned the child ends.
    """
    return [sys.executable, "-I", "-S", _LAUNCHER, "with-parent", str(os.getpid()), *command]


def rotate_log(log: Path) -> int:
    """Move a log of LOG_BYTES or more to `*.log.1`, in place of the one there; return where the next process will
    write.

    That is the size of the log in bytes, 0 when it was moved or there is none.
    """
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return 0
    if size < LOG_BYTES:
        return size
    log.replace(log.with_suffix(".log.1"))
    return 0


def last_lines(log: Path, since: int = 0, lines: int = 5) -> str:
    """Return the last `lines` lines that are not blank of what a log got after byte `since`, for an error message.

    Reads at most the last 64 KiB; empty when there is no log.
    """
    try:
        with open(log, "rb") as file:
            file.seek(max(since, os.fstat(file.fileno()).st_size - 64 * 1024))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
