"""The traces of a running sandbox on disk, and the proof that nothing of it lives any more.

A sandbox's supervisor (bwrap's outer process, or our launcher) keeps one descriptor open: the workspace's lock file,
with a shared flock on it. It is outside the sandbox's pid namespace, so a command can neither reach the descriptor
nor unlock it; the sandbox's own pid 1, which `--sync-fd` would use, can be reached by `pidfd_getfd`. Before the
command starts, the supervisor writes into the same file who it started, because a kernel closes a dying process's
files *before* it kills the rest of its pid namespace: the lock alone would be free a moment too early.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from perdure.models.errors import Superseded

SANDBOX_LOCK_WAIT_S = 1.0
"""A proof of death holds the lock for milliseconds; whoever holds it longer owns the workspace."""


REGION = 1024
"""Bytes of the lock file one sandbox writes into; its two lines need about 250."""


@dataclass(frozen=True)
class Holder:
    """The process whose end is the end of all of a sandbox's processes.

    namespace  inode of the pid namespace it is pid 1 of (bubblewrap); None for the launcher
    started    clock ticks after boot (launcher), so that a reused pid is not mistaken for it
    """

    pid: int
    namespace: int | None = None
    started: int | None = None

    def pidfd(self) -> int | None:
        """A descriptor that becomes readable when it is dead, its whole namespace with it; None: it is gone."""
        if sys.platform != "linux":
            return None  # grade `off` only: there the lock is all the proof there is
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self._is_it():
            return fd
        os.close(fd)
        return None

    def _is_it(self) -> bool:
        try:
            if self.namespace is not None:
                return os.stat(f"/proc/{self.pid}/ns/pid").st_ino == self.namespace
            return start_time(self.pid) == self.started
        except OSError:
            return False


@dataclass(frozen=True)
class SandboxStatus:
    """The supervisor's words: who it started, how the command ended, why it could not start."""

    holder: Holder | None = None
    exit_code: int | None = None
    failure: str = ""


class StatusFile:
    """One sandbox's region of the lock file. `fd` goes to the supervisor; close it here as soon as that has it."""

    def __init__(self, lock: Path | None) -> None:
        self._lock = lock
        if lock is None:
            with tempfile.TemporaryFile() as nameless:
                self.fd = os.dup(nameless.fileno())
            self._reader, self._offset = os.dup(self.fd), 0
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.fd = os.open(lock, flags, 0o600)
        self._reader, self._offset = os.open(lock, os.O_RDONLY | os.O_CLOEXEC), 0
        _unread[lock] += 1

    @classmethod
    async def open(cls, lock: Path | None) -> StatusFile:
        """Take the shared lock and a region of its own. Superseded: someone holds the workspace for themselves."""
        status = cls(lock)
        if lock is None:
            return status
        try:
            await _share(status.fd, lock)
            os.write(status.fd, b"\n" * REGION)  # O_APPEND: two sandboxes never get the same region
            status._offset = os.lseek(status.fd, 0, os.SEEK_CUR) - REGION
            fcntl.fcntl(status.fd, fcntl.F_SETFL, 0)
            os.lseek(status.fd, status._offset, os.SEEK_SET)
        except BaseException:
            status.__exit__(None, None, None)
            raise
        return status

    def hand_over(self) -> None:
        """Close our copy of the descriptor: from now on the lock lives and dies with the supervisor, not with us."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def read(self) -> SandboxStatus:
        return parse(os.pread(self._reader, REGION, self._offset))

    def __enter__(self) -> StatusFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.hand_over()
        os.close(self._reader)
        if self._lock is not None:
            _unread[self._lock] -= 1
            if not _unread[self._lock]:
                del _unread[self._lock]


async def _share(fd: int, lock: Path) -> None:
    deadline = time.monotonic() + SANDBOX_LOCK_WAIT_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Superseded("another attempt owns the workspace; nothing was run", where=str(lock)) from None
            await asyncio.sleep(0.01)


_unread: Counter[Path] = Counter()
"""Sandboxes of this process by their lock file: one that has ended holds it no more, and may still have to be read."""


def forget(lock: Path) -> None:
    """Empty the lock file if no other sandbox uses it: one region per command ever run would add up."""
    if _unread[lock] > 1:
        return
    with open(lock, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        file.truncate(0)


def parse(data: bytes) -> SandboxStatus:
    """Lines of JSON between padding; a line cut short by a death counts as not written."""
    holder, code, failure = None, None, ""
    for line in re.findall(rb"[^\0\n]+", data):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "child-pid" in entry:
            holder = Holder(entry["child-pid"], entry.get("pid-namespace"), entry.get("started"))
        code = entry.get("exit-code", code)
        failure = entry.get("failure", failure)
    return SandboxStatus(holder, code, failure)


def end_sandboxes(lock: Path, timeout_s: float) -> bool:
    """Kill whatever sandboxes hold `lock`, whoever started them, and wait for proof that all of it is gone.

    True: no process of theirs lives, and none can have written after this returned. False: no proof within
    `timeout_s` seconds, so the worktree must not be used. Kills only sandboxes, never a worker. Blocks: call it in
    a thread. Raise the workspace's generation first (see Command.fence), or the writer may start another one.
    """
    deadline = time.monotonic() + timeout_s
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        while not _end(fd, deadline) or not _nobody_left(fd):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True
    finally:
        os.close(fd)


def _end(fd: int, deadline: float) -> bool:
    """Kill what the file names and wait for it; False if something is still there at the deadline."""
    for holder in _holders(fd):
        pidfd = holder.pidfd()
        if pidfd is None:
            continue
        try:
            # The launcher has to end its commands itself; the kernel does it for a pid namespace.
            signal.pidfd_send_signal(pidfd, signal.SIGTERM if holder.namespace is None else signal.SIGKILL)
            if not dead(pidfd, deadline - time.monotonic()):
                return False
        except ProcessLookupError:
            continue
        finally:
            os.close(pidfd)
    return True


def _nobody_left(fd: int) -> bool:
    """Take the lock for ourselves and look once more: a sandbox may have started since we looked."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    for holder in _holders(fd):
        pidfd = holder.pidfd()
        if pidfd is not None:
            gone = dead(pidfd, 0)
            os.close(pidfd)
            if not gone:
                fcntl.flock(fd, fcntl.LOCK_UN)
                return False
    os.ftruncate(fd, 0)
    return True


def _holders(fd: int) -> list[Holder]:
    size = os.fstat(fd).st_size
    regions = (os.pread(fd, REGION, offset) for offset in range(0, size, REGION))
    return [holder for holder in (parse(region).holder for region in regions) if holder]


def dead(pidfd: int, timeout_s: float) -> bool:
    """True where the process, with its pid namespace, ends within `timeout_s` seconds. Blocks unless that is 0."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


def start_time(pid: int) -> int:
    """Clock ticks after boot at which a process started, from /proc/PID/stat (field 22)."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
