"""Files and locks that survive or tell a process's death: small files that are written whole or not at all, lines
appended, syncing, sizes, bounded reading of files of strangers, flocks that are free when their holder is dead, and the
id of the machine's boot, so that what was not synced is not believed after a power cut."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import json
import os
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from perdure.models import limits
from perdure.models.base import Json
from perdure.models.errors import PerdureError


def make_directory(path: Path) -> None:
    """Make a directory and what is missing above it, each durably: a synced file in an unsynced one is lost with it.
    Does nothing where it exists."""
    if path.is_dir():
        return
    missing = list(itertools.takewhile(lambda directory: not directory.exists(), (path, *path.parents)))
    path.mkdir(parents=True, exist_ok=True)
    for directory_made in missing:
        sync_directory(directory_made.parent)


def sync_directory(path: Path) -> None:
    """Sync a directory, so that the names in it survive a power cut: a file's own fsync does not see to that."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes, *, mode: int = 0o600, sync: bool = True) -> None:
    """Write a file so that after a crash, power loss included, `path` holds either the old bytes or all of `data`.
    Directories above are made. Where writing fails, the old file stays and the error is raised.

    `sync=False` covers the death of processes only, for what a restart of the machine makes meaningless anyway.
    """
    make_directory(path.parent)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    if sync:
        sync_directory(path.parent)


def read_regular_file(path: Path | str, max_bytes: int, directory: int | None = None) -> bytes | None:
    """Return the first bytes of a regular file, one more than `max_bytes` at most; None: it is no regular file.

    For what strangers have left: a link in its place is not followed, and nothing of it is waited for.

    directory  a descriptor that `path` is relative to
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(max_bytes + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else None


def size_on_disk(path: Path) -> int:
    """Return how many bytes on the disk all files below a directory take, one of several names once; what vanishes
    meanwhile counts nothing."""
    total, linked = 0, set[tuple[int, int]]()
    for directory, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                status = os.lstat(os.path.join(directory, name))
                identity = status.st_dev, status.st_ino
                total += status.st_blocks * 512 if identity not in linked else 0
                if status.st_nlink > 1:
                    linked.add(identity)
    return total


def append_json_line(path: Path, *entries: Json, sync: bool) -> None:
    """Append JSON objects to a file, a line each, in one write, so that lines of several processes never mix.

    A line that its writer died in is ended first. Directories above are made. Raises OSError where it did not fit.

    sync  the lines, and the file's name, survive a power cut once this returns
    """
    make_directory(path.parent)
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "rb+", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"  # the writer before us died in its write
        data = (b"\n" if torn else b"") + b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
        if file.write(data) != len(data):  # A full disk takes a part without an error.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if sync:
            os.fsync(file.fileno())
            _sync_name(path, os.fstat(file.fileno()).st_ino)


@lru_cache(4096)
def _sync_name(path: Path, inode: int) -> None:
    """Make the name of this file survive a power cut. Once a process is enough: appending changes no name."""
    sync_directory(path.parent)


def read_json_lines(path: Path) -> Iterator[Json]:
    """Yield the JSON objects of a line file, none where there is no file; a line that is torn by a death is skipped.

    Where the file begins with the lines that this process read last, only what was appended since is parsed.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    with _line_files_lock:
        known, entries = _line_files.pop(path, (b"", []))
        if not data.startswith(known):
            known, entries = b"", []
        whole = data[: data.rfind(b"\n") + 1]
        entries = [*entries, *parse_json_lines(whole[len(known) :])]
        _line_files[path] = whole, entries
        if len(_line_files) > KEPT_LINE_FILES:
            _line_files.pop(next(iter(_line_files)))
    for entry in (*entries, *parse_json_lines(data[len(whole) :])):
        yield dict(entry)


KEPT_LINE_FILES = 128
"""Line files whose objects a process keeps: those of 48 deliveries at once, some 50 KB each."""

_line_files: dict[Path, tuple[bytes, list[Json]]] = {}
"""The whole lines of each file as they were read last, and their objects; the file that was read last stands last."""

_line_files_lock = threading.Lock()


def parse_json_lines(data: bytes) -> Iterator[Json]:
    """Yield the JSON objects among these lines."""
    for line in data.splitlines():
        with suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                yield entry


def sync_all(path: Path) -> None:
    """Sync the whole file system of `path`, or all of them where only that is possible: what was written to it so far
    survives a power cut once this returns. Raises OSError when the system cannot."""
    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except AttributeError:  # not Linux
        os.sync()
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    finally:
        os.close(descriptor)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive flock on a file while the block runs; wait for it first.

    For critical sections of a few milliseconds. The file is made where it is missing.
    """
    make_directory(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def try_lock(path: Path) -> int | None:
    """Take an exclusive flock on a file and return its descriptor; None where another process or descriptor holds it.

    Closing the descriptor releases the lock. The file is made where it is missing.
    """
    make_directory(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def is_locked(lock: Path) -> bool:
    """Return whether a process holds an exclusive flock on this file; a file that does not exist is not locked.

    The test takes a shared lock for a moment, so that two who test at once do not see each other.
    """
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_OURS = uuid.uuid4().hex


def boot_id() -> str:
    """Return the kernel's id of this boot; where there is none, an id of this process.

    With the latter, what depends on it is made anew for each process: more often than needed, never too seldom.
    """
    try:
        return _BOOT_ID.read_text().strip() or _OURS
    except OSError:
        return _OURS


class LockBusy(PerdureError):
    """The error that somebody else held a lock for longer than any git command may take."""


@contextmanager
def hold_timed_lock(path: Path, timeout_s: float = limits.GIT_TIMEOUT_S) -> Iterator[int]:
    """Hold an exclusive flock on `path` while the block runs, and yield its descriptor.

    Pass the descriptor to git (`lock_fds=`): a command that survives its killed worker by some milliseconds then keeps
    the lock, and nobody writes beside it. Works between threads and processes; the file stays. Raises LockBusy after
    `timeout_s`.
    """
    make_directory(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire_lock(descriptor, path, timeout_s)
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire_lock(descriptor: int, path: Path, timeout_s: float) -> None:
    """Wait until the lock is free and lock it, trying every 1 to 50 ms. Raises LockBusy after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    pause = 0.001
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LockBusy(
                    f"another process has held a lock for {timeout_s:g} s",
                    where=str(path),
                    fix="see who holds it (`fuser` with this path) and end that process",
                ) from None
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
