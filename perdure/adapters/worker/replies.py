"""Model replies, written down before anything is done with them, so that a retry does not pay again."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

from perdure.adapters.git.command import GitError
from perdure.adapters.system.files import make_directory, write_whole
from perdure.models.errors import DiskFull

DISK_FREE_TURN_BYTES = 32 * 1024**2
"""Free bytes that the disk needs before the model is asked: a reply that cannot be written down would be paid for again
and again."""


class ReplyStore:
    """The files `replies/<key>.json` of one delivery. The key covers step, attempt, turn and request bytes, and the
    rewind behind it: a retry finds what was bought, a rewound run samples anew, a changed request is another question
    (holes.md H20). The key does not cover the checkpoint: a turn done again makes another checkpoint with the same
    content, and the replies of the turns after it were bought."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "replies"

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what was received under this key, whole, or None; what a disk has damaged was not received."""
        try:
            stored = json.loads((self._directory / f"{key}.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return stored if isinstance(stored, dict) else None

    def put(self, key: str, reply: dict[str, Any]) -> None:
        """Write a reply under this key, so that it survives a power cut."""
        write_whole(self._directory / f"{key}.json", json.dumps(reply, ensure_ascii=False).encode())

    def require_free_disk(self) -> None:
        """Raise DiskFull when a reply could not be kept: it would be paid for again. Makes the directory where it is
        missing."""
        make_directory(self._directory)
        if shutil.disk_usage(self._directory).free < DISK_FREE_TURN_BYTES:
            raise disk_full_error(str(self._directory))


_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, or one that caused it, is a disk without room: in our own writes or in git's."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        if isinstance(error, GitError) and ("No space left" in error.stderr or "quota exceeded" in error.stderr):
            return True
        error = error.__cause__
    return False


def disk_full_error(where: str = "") -> DiskFull:
    """Return the error with which a step waits until there is room on the disk."""
    return DiskFull("this host's disk has no room", where=where, fix="make room; the delivery then goes on by itself")
