"""Removing what programs of strangers leave, however deep and however closed."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from pathlib import Path


def remove(path: Path) -> None:
    """Remove a file or a whole directory, whose directories may be closed to their owner, and of any depth.

    Level by level, each directory moved up before it is looked into: what a runaway program nests thousands deep
    has paths longer than the system takes, and `shutil.rmtree` ends in a RecursionError.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    left, number, prefix = [str(path)], 0, f".removed-{uuid.uuid4().hex}-"
    while left:
        directory = left.pop()
        os.chmod(directory, stat.S_IRWXU)
        with os.scandir(directory) as found:
            entries = list(found)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            number += 1
            up = os.path.join(path, f"{prefix}{number}")
            os.chmod(entry.path, stat.S_IRWXU)
            os.rename(entry.path, up)
            left.append(up)
        if directory != str(path):
            os.rmdir(directory)
    os.rmdir(path)


def discard(path: Path) -> None:
    """Remove as much of it as can be removed: for what a program of strangers leaves, which nobody needs."""
    with contextlib.suppress(OSError):
        remove(path)
