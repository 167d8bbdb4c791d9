"""Removal of what programs of strangers leave, however deep it is and whatever its modes are."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from pathlib import Path


def remove_path(path: Path) -> None:
    """Remove a file or a whole directory, whose directories may be closed to their owner, and of any depth.

    It goes level by level, and moves each directory to the top before it looks into it: what a runaway program nests
    thousands deep has paths longer than the system takes, and `shutil.rmtree` ends in a RecursionError.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    to_remove, number, prefix = [str(path)], 0, f".removed-{uuid.uuid4().hex}-"
    while to_remove:
        directory = to_remove.pop()
        os.chmod(directory, stat.S_IRWXU)
        with os.scandir(directory) as scan:
            entries = list(scan)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            number += 1
            moved_path = os.path.join(path, f"{prefix}{number}")
            os.chmod(entry.path, stat.S_IRWXU)
            os.rename(entry.path, moved_path)
            to_remove.append(moved_path)
        if directory != str(path):
            os.rmdir(directory)
    os.rmdir(path)


def discard(path: Path) -> None:
    """Remove as much of a file or directory as can be removed: OSErrors are ignored.

    For what a program of strangers leaves and nobody needs.
    """
    with contextlib.suppress(OSError):
        remove_path(path)
