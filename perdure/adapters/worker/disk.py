"""A full disk: told from other failures, whoever met it, and waited for."""

from __future__ import annotations

import errno

from perdure.adapters.git.door import GitError
from perdure.models.errors import DiskFull

_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: BaseException | None) -> bool:
    """True where an error, or what led to it, is a disk without room: our own writes and git's."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if isinstance(error, GitError) and ("No space left" in error.stderr or "quota exceeded" in error.stderr):
            return True
        error = error.__cause__
    return False


def disk_full(where: str = "") -> DiskFull:
    """The error to wait with."""
    return DiskFull("this host's disk has no room", where=where, fix="make room; the delivery then goes on by itself")
