"""The bytes that a worktree takes on disk, counted by a walk only where the disk's free space says that it could
matter."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

from perdure.adapters.sandbox.process_tree import process_tree
from perdure.models.limits import SANDBOX_DISK_LOOK_S, SANDBOX_DISK_SLACK_BYTES

BLOCK = 512
LEAST_FILE_BYTES = 4096
"""The bytes that a file takes at least: millions of empty ones fill a disk's table of files."""

NOT_COUNTED = frozenset({".git", ".venv", "node_modules"})
"""Entries at the top of a worktree that are read-only to commands, so that no byte in them is theirs."""


class DiskUsage:
    """The bytes that one worktree takes on disk, walked through only when the disk's free space leaves open that they
    are over the limit.

    grown  bytes of free space that the disk had lost since the command began, when the worktree was then walked through
           for the first time; 0: its size was known before
    """

    def __init__(self, worktree: Path) -> None:
        self._worktree, self.grown = worktree, 0
        self._total_bytes, self._free_before, self._measured_at, self._complete = -1, 0, 0.0, True

    def begin_command(self) -> None:
        """Start to count for another command: set `grown` to 0, and forget the measured size if parts of the worktree
        could not be looked at. Where no size is known then, note the disk's free space as the start."""
        self.grown = 0
        if not self._complete:
            self._total_bytes = -1
        if not self.is_known:
            self._free_before, self._measured_at = _free_bytes(self._worktree), time.monotonic()

    @property
    def is_known(self) -> bool:
        """Return whether the worktree's size was measured."""
        return self._total_bytes >= 0

    def is_within(self, limit: int) -> bool:
        """Return whether the worktree is within `limit` bytes for certain, so that no walk is needed: its last measured
        size with all that the disk has lost since is within the limit, and no older than SANDBOX_DISK_LOOK_S.

        While no size is known: whether the command began at most SANDBOX_DISK_LOOK_S ago, and the disk has lost at most
        SANDBOX_DISK_SLACK_BYTES since.
        """
        grown = max(0, self._free_before - _free_bytes(self._worktree))
        has_room = self._total_bytes + grown <= limit if self.is_known else grown <= SANDBOX_DISK_SLACK_BYTES
        return has_room and time.monotonic() - self._measured_at <= SANDBOX_DISK_LOOK_S

    def measure(self, limit: int, root: int) -> int | None:
        """Return the bytes that the worktree takes, with deleted files that processes below the pid `root` hold open;
        walk through it unless `is_within` says that this is not needed. None: it was never walked through, and the
        command has written no more than it may in any case.

        Where parts of it cannot be looked at, the result is at least the last known size plus what the disk has lost
        since.
        """
        if self.is_within(limit):
            return self._total_bytes if self.is_known else None
        free_bytes, now = _free_bytes(self._worktree), time.monotonic()
        grown = max(0, self._free_before - free_bytes)
        self.grown = 0 if self.is_known else grown
        size, self._complete = measure_worktree(self._worktree)
        size += _deleted_file_bytes(root, self._worktree)
        if not self._complete and self.is_known:
            return max(size, self._total_bytes + grown)  # whatever was written meanwhile may be where nobody can look
        self._total_bytes, self._free_before, self._measured_at = size, free_bytes, now
        return size


_usages: dict[Path, DiskUsage] = {}


def disk_usage_of(worktree: Path) -> DiskUsage:
    """Return the DiskUsage of a worktree, kept from command to command so that it is not walked through for each. Of
    more than 1000 worktrees all are forgotten."""
    if len(_usages) > 1000:
        _usages.clear()
    return _usages.setdefault(worktree, DiskUsage(worktree))


def _free_bytes(path: Path) -> int:
    """Return the free bytes of a path's disk, plus LEAST_FILE_BYTES for each file that it can still hold: both become
    fewer by what is written. 0 when the disk cannot be asked."""
    try:
        stats = os.statvfs(path)
    except OSError:
        return 0
    return stats.f_bfree * stats.f_frsize + stats.f_ffree * LEAST_FILE_BYTES


def measure_worktree(worktree: Path) -> tuple[int, bool]:
    """Count the bytes on disk below a worktree, without what commands cannot write, and return them with whether all of
    it could be looked at.

    Each file counts LEAST_FILE_BYTES at least; one with two names counts twice.
    """
    total, complete = 0, True
    pending = [str(worktree)]
    while pending:
        directory = pending.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if directory == str(worktree) and entry.name in NOT_COUNTED:
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        total += max(LEAST_FILE_BYTES, entry.stat(follow_symlinks=False).st_blocks * BLOCK)
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it was removed meanwhile
        except OSError:
            complete = False
    return total, complete


def _deleted_file_bytes(root: int, worktree: Path) -> int:
    """Count the bytes of files on the worktree's disk that the process `root` or a descendant holds open after their
    last name was removed."""
    sizes: dict[int, int] = {}
    with contextlib.suppress(OSError):
        device = os.stat(worktree).st_dev
        for pid in process_tree(root):
            with contextlib.suppress(OSError):
                for number in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        file = os.stat(f"/proc/{pid}/fd/{number}")
                        if file.st_nlink == 0 and file.st_dev == device and stat.S_ISREG(file.st_mode):
                            sizes[file.st_ino] = file.st_blocks * BLOCK
    return sum(sizes.values())
