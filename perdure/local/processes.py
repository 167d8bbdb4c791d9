"""Processes that outlive their starter, known by the lock they hold and never by their number alone."""

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


def detached(record: str, text: str, command: list[str]) -> None:
    """Fork, so that the program is nobody's child, and become it; first write `text` with its pid into `record`.

    The program writes its own record, because a starter killed between the two would leave a server unknown.
    `text` is a JSON object; `record` may be empty.
    """
    if os.fork():
        os._exit(0)
    if record:
        os.umask(0o077)  # the server's database is its owner's alone, whatever becomes of the directory
        fresh = f"{record}.new"
        with open(fresh, "w") as file:
            file.write(f'{{"pid": {os.getpid()}, {text.lstrip("{")}\n')
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, record)
    _become(command)


def with_parent(parent: int, command: list[str]) -> None:
    """Become a program that gets SIGTERM when its parent dies, where the kernel can do that (Linux)."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
    _become(command)


def _become(command: list[str]) -> None:
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    os.execvp(command[0], command)  # noqa: S606 (no shell wanted)


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    if mode == "detached":
        detached(arguments[0], arguments[1], arguments[2:])
    else:
        with_parent(int(arguments[0]), arguments[1:])


LOG_BYTES = 10 * 1024**2
"""The server's and the worker's log are set aside at this size when they start; one older file is kept."""


_LAUNCHER = str(Path(__file__))
_POLL_S = 0.05


async def released(lock: Path, within: float) -> bool:
    """Wait until nobody holds `lock`: True when that happened within so many seconds."""
    from perdure.adapters.system.files import held  # not above: as a script this file has the standard library alone

    deadline = asyncio.get_running_loop().time() + within
    while held(lock):
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def holds(pid: int, lock: Path) -> bool:
    """True when the process `pid` has `lock` open, by its open files.

    Those of workers and supervisors cannot be seen without the rights of root (perdure.secrets): then it is
    true when the lock is held, and the process ours and closed like them. A stranger with the same number is not.
    """
    from perdure.adapters.system.files import held  # not above: as a script this file has the standard library alone

    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except PermissionError:
        return held(lock) and _runs_as(pid) == os.geteuid()
    except FileNotFoundError:
        return sys.platform != "linux" and held(lock)
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed since it was listed
            if os.path.samefile(f"/proc/{pid}/fd/{descriptor}", lock):
                return True
    return False


def _runs_as(pid: int) -> int:
    """The effective user of a process, -1 when it has gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return -1
    return next((int(line.split()[2]) for line in lines if line.startswith("Uid:")), -1)


def signal_holder(pid: int, lock: Path, number: signal.Signals) -> bool:
    """Send a signal to the process `pid` if it has `lock` open. False: there is no such process any more.

    Where the kernel has pidfds, the process is pinned before it is looked at, so that the signal cannot reach a
    stranger that was given the same number in between.
    """
    try:
        if sys.platform != "linux":
            if holds(pid, lock):
                os.kill(pid, number)
                return True
            return False
        pinned = os.pidfd_open(pid)
        try:
            if holds(pid, lock):
                signal.pidfd_send_signal(pinned, number)
                return True
            return False
        finally:
            os.close(pinned)
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
    """Start a program in a session of its own that outlives us, both outputs appended to `log`.

    cwd      not ours: a program that stays for days must not hold on to somebody's directory
    inherit  descriptors the program keeps open, such as the lock it shall hold for life
    record   file the program writes before it starts: the JSON object `text` with "pid" added
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


def dying_with_us(command: Sequence[str]) -> list[str]:
    """The command line of a child that gets SIGTERM when this process dies. To be spawned from the main thread:
    the kernel sends it when the *thread* that spawned the child ends (holes.md H33)."""
    return [sys.executable, "-I", "-S", _LAUNCHER, "with-parent", str(os.getpid()), *command]


def rotate(log: Path) -> int:
    """Set an overlong log aside; returns the size of what is left, where the next process's words begin."""
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return 0
    if size < LOG_BYTES:
        return size
    log.replace(log.with_suffix(".log.1"))
    return 0


def last_lines(log: Path, since: int = 0, lines: int = 5) -> str:
    """The last lines of a log written after byte `since`, for an error message."""
    try:
        with open(log, "rb") as file:
            file.seek(max(since, os.fstat(file.fileno()).st_size - 64 * 1024))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
