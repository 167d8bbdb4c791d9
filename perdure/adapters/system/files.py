"""Small files that must be whole or absent, and locks that die with their holder."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def make_directory(path: Path) -> None:
    """Make a directory and what is missing above it, each durably: a synced file in an unsynced one is lost with it."""
    if path.is_dir():
        return
    missing = list(itertools.takewhile(lambda one: not one.exists(), (path, *path.parents)))
    path.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def sync_directory(path: Path) -> None:
    """Write down which names a directory has: a file's own fsync does not."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes, *, mode: int = 0o600, sync: bool = True) -> None:
    """Write so that after a crash, power loss included, `path` holds either the old bytes or all of `data`.

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


def read_plain(path: Path | str, most: int, directory: int | None = None) -> bytes | None:
    """A regular file's first bytes, `most` and one at most; None where it is none. For what strangers have left: a link
    in its place is not followed, and nothing of it waited for. `directory`: a descriptor that `path` is relative to."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(most + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else None


def size_on_disk(path: Path) -> int:
    """Bytes on the disk of all files below a directory; what vanishes meanwhile counts nothing."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512
    return total


def append_line(path: Path, line: bytes, *, sync: bool) -> None:
    """Append one line in one write, so that lines of several processes never mix. OSError: it did not fit.

    `sync`: it outlives a power cut when this returns, and so does the file's name.
    """
    make_directory(path.parent)
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "rb+", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"  # the writer before us died in its write
        data = (b"\n" if torn else b"") + line + b"\n"
        if file.write(data) != len(data):  # a full disk takes a part without a word
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if sync:
            os.fsync(file.fileno())
    if sync:
        sync_directory(path.parent)


def sync_all(path: Path) -> None:
    """Return when everything that was written to the file system of `path` so far survives a power cut."""
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
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive flock, waiting for it: for critical sections of a few milliseconds."""
    make_directory(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def try_lock(path: Path) -> int | None:
    """An exclusive flock's descriptor, or None when somebody else holds it. Closing the descriptor lets go."""
    make_directory(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def held(lock: Path) -> bool:
    """True where a process holds an exclusive flock on `lock`. Ours is shared: two who look do not see each other."""
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
