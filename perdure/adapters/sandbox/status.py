"""The traces of a running sandbox on disk, and the proof that nothing of it lives any more. The sandboxes write the
traces; the worker's lease asks for the proof.

A sandbox's supervisor (bwrap's outer process, or our launcher) keeps one descriptor open: the workspace's lock file,
with a shared flock on it. It is outside the sandbox's pid namespace, so a command can neither reach the descriptor nor
unlock it; the sandbox's own pid 1, which `--sync-fd` would use, can be reached by `pidfd_getfd`. Before the command
starts, the supervisor writes into the same file who it started, because a kernel closes a dying process's files
*before* it kills the rest of its pid namespace: the lock alone would be free a moment too early.
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
"""Seconds to wait for the shared lock. A proof of death holds it for milliseconds; whoever holds it longer owns the
workspace."""


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

    def open_pidfd(self) -> int | None:
        """Open a descriptor that becomes readable when the process is dead, its whole namespace with it; None when it
        is dead already, or its pid belongs to another process now, and always on other systems than Linux. The caller
        closes it."""
        if sys.platform != "linux":
            return None  # only in grade `off`: there the lock is all the proof there is
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self._is_same_process():
            return fd
        os.close(fd)
        return None

    def _is_same_process(self) -> bool:
        """Return whether the process with this pid is still the one that was recorded, by its pid namespace or its
        start time."""
        try:
            if self.namespace is not None:
                return os.stat(f"/proc/{self.pid}/ns/pid").st_ino == self.namespace
            return start_time(self.pid) == self.started
        except OSError:
            return False


@dataclass(frozen=True)
class SandboxStatus:
    """The content that a supervisor has written: which process it started, how the command ended, why it could not
    start."""

    holder: Holder | None = None
    exit_code: int | None = None
    failure: str = ""


class StatusFile:
    """A sandbox's region of the lock file. `fd` goes to the supervisor; close it here as soon as that has it."""

    def __init__(self, lock: Path | None) -> None:
        """Open the lock file, or without one a nameless file. Nothing is locked yet: see `open_locked`."""
        self._lock = lock
        if lock is None:
            with tempfile.TemporaryFile() as nameless:
                self.fd = os.dup(nameless.fileno())
            self._reader, self._offset = os.dup(self.fd), 0
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.fd = os.open(lock, flags, 0o600)
        self._reader, self._offset = os.open(lock, os.O_RDONLY | os.O_CLOEXEC), 0
        _unread_files[lock] += 1

    @classmethod
    async def open_locked(cls, lock: Path | None) -> StatusFile:
        """Open the lock file, take the shared lock, and append a region of its own; return the StatusFile. Without a
        lock file it is a nameless file and nothing is locked. Raises Superseded when somebody holds the workspace for
        themselves."""
        status = cls(lock)
        if lock is None:
            return status
        try:
            await _lock_shared(status.fd, lock)
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

    def read_status(self) -> SandboxStatus:
        """Read what the supervisor has written so far."""
        return parse_status(os.pread(self._reader, REGION, self._offset))

    def __enter__(self) -> StatusFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Close both descriptors; the lock stays with the supervisor if it was handed over."""
        self.hand_over()
        os.close(self._reader)
        if self._lock is not None:
            _unread_files[self._lock] -= 1
            if not _unread_files[self._lock]:
                del _unread_files[self._lock]


async def _lock_shared(fd: int, lock: Path) -> None:
    """Take a shared flock, trying for SANDBOX_LOCK_WAIT_S. Raises Superseded when somebody holds the lock for
    longer."""
    deadline = time.monotonic() + SANDBOX_LOCK_WAIT_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Superseded("another attempt owns the workspace; nothing was run", where=str(lock)) from None
            await asyncio.sleep(0.01)


_unread_files: Counter[Path] = Counter()
"""Number of this process's sandboxes by their lock file: one that has ended no longer holds the lock, and may still
have to be read."""


def empty_if_unused(lock: Path) -> None:
    """Empty the lock file if no other sandbox uses it: otherwise one region for every command would add up."""
    if _unread_files[lock] > 1:
        return
    with open(lock, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        file.truncate(0)


def parse_status(data: bytes) -> SandboxStatus:
    """Parse lines of JSON between padding, as a supervisor writes them; a line cut short by a death counts as not
    written."""
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
    """Kill whatever sandboxes hold `lock`, whoever started them, and wait for proof that all their processes are dead.

    True: no process of theirs lives, and none can have written after this returned. False: no proof within `timeout_s`
    seconds, so the worktree must not be used. Kills only sandboxes, never a worker. Blocks: call it in a thread. Raise
    the workspace's generation first (see SandboxCommand.fence), or the writer may start another one.
    """
    deadline = time.monotonic() + timeout_s
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        while not _kill_holders(fd, deadline) or not _lock_if_all_dead(fd):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True
    finally:
        os.close(fd)


def _kill_holders(fd: int, deadline: float) -> bool:
    """Kill the sandboxes that the lock file names and wait for their end. Returns True when all of them are dead, False
    when one still lives at the deadline."""
    for holder in _read_holders(fd):
        pidfd = holder.open_pidfd()
        if pidfd is None:
            continue
        try:
            # The launcher has to end its commands itself, so it gets SIGTERM; the kernel does it for a pid namespace.
            signal.pidfd_send_signal(pidfd, signal.SIGTERM if holder.namespace is None else signal.SIGKILL)
            if not wait_for_end(pidfd, deadline - time.monotonic()):
                return False
        except ProcessLookupError:
            continue
        finally:
            os.close(pidfd)
    return True


def _lock_if_all_dead(fd: int) -> bool:
    """Take the exclusive lock and look once more whether a named sandbox lives: one may have started meanwhile. Returns
    True, and empties the file, when none does; False, without the lock, when the lock is held or one lives."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    for holder in _read_holders(fd):
        pidfd = holder.open_pidfd()
        if pidfd is not None:
            is_dead = wait_for_end(pidfd, 0)
            os.close(pidfd)
            if not is_dead:
                fcntl.flock(fd, fcntl.LOCK_UN)
                return False
    os.ftruncate(fd, 0)
    return True


def _read_holders(fd: int) -> list[Holder]:
    """Read from the lock file the processes that its sandboxes have named."""
    size = os.fstat(fd).st_size
    regions = (os.pread(fd, REGION, offset) for offset in range(0, size, REGION))
    return [holder for holder in (parse_status(region).holder for region in regions) if holder]


def wait_for_end(pidfd: int, timeout_s: float) -> bool:
    """Wait up to `timeout_s` seconds for the end of a process, with its pid namespace; return whether it has ended.
    Blocks unless that is 0."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


def start_time(pid: int) -> int:
    """Return the clock ticks after boot at which a process started, from /proc/PID/stat (field 22). Raises OSError when
    there is no such process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
