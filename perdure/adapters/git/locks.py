"""Exclusive locks on files, which stay locked exactly as long as their holder or a git command of its lives."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure.adapters.system.files import make_directory
from perdure.models import limits
from perdure.models.errors import PerdureError


class LockBusy(PerdureError):
    """The error that somebody else held a lock for longer than any git command may take."""


@contextmanager
def hold_lock(path: Path, timeout_s: float = limits.GIT_TIMEOUT_S) -> Iterator[int]:
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
