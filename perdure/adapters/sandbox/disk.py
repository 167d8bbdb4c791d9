"""The bytes that lie in one worktree, walked through only where the disk's free space says that it could matter."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

from perdure.adapters.sandbox.processes import tree
from perdure.models.limits import SANDBOX_DISK_LOOK_S, SANDBOX_DISK_SLACK_BYTES

BLOCK = 512
LEAST = 4096
"""The bytes that a file takes at least: millions of empty ones fill a disk's table of files."""

NOT_OURS = frozenset({".git", ".venv", "node_modules"})
"""At the top of a worktree: read-only to commands, so nothing of it is theirs."""


class Room:
    """The size of one worktree, walked only when the disk's free space leaves open that it is over its limit.

    grown  what the disk had lost since it was walked through, or a command began, when it was walked through last
    """

    def __init__(self, worktree: Path) -> None:
        self._worktree, self.grown = worktree, 0
        self._total, self._free, self._at, self._whole = -1, 0, 0.0, True

    def begin(self) -> None:
        """For another command: what the disk lost before is not this one's, where it cannot be looked for."""
        self.grown = 0
        if not self._whole:
            self._total = -1
        if not self.known:
            self._free, self._at = _free(self._worktree), time.monotonic()

    @property
    def known(self) -> bool:
        return self._total >= 0

    def fits(self, limit: int) -> bool:
        """True where nobody can have written more than there is room for, and it was looked at not long ago."""
        grown = max(0, self._free - _free(self._worktree))
        fits = self._total + grown <= limit if self.known else grown <= SANDBOX_DISK_SLACK_BYTES
        return fits and time.monotonic() - self._at <= SANDBOX_DISK_LOOK_S

    def total(self, limit: int, root: int) -> int | None:
        """Bytes; None while it was never walked through, and nobody has written more than a command is left anyway."""
        if self.fits(limit):
            return self._total if self.known else None
        free, now = _free(self._worktree), time.monotonic()
        grown = max(0, self._free - free)
        self.grown = 0 if self.known else grown
        found, self._whole = written(self._worktree)
        found += _unnamed(root, self._worktree)
        if not self._whole and self.known:
            return max(found, self._total + grown)  # whatever was written meanwhile may be where nobody can look
        self._total, self._free, self._at = found, free, now
        return found


_rooms: dict[Path, Room] = {}


def room_of(worktree: Path) -> Room:
    """Kept from command to command, so that a worktree is not walked for each."""
    if len(_rooms) > 1000:
        _rooms.clear()
    return _rooms.setdefault(worktree, Room(worktree))


def _free(path: Path) -> int:
    """Bytes, and LEAST for each file that can still be made: both become fewer by what is written."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_bfree * found.f_frsize + found.f_ffree * LEAST


def written(worktree: Path) -> tuple[int, bool]:
    """Bytes on disk below a worktree without what commands cannot write, and whether all of it could be looked at.

    A file with two names counts twice.
    """
    total, whole = 0, True
    waiting = [str(worktree)]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    if here == str(worktree) and entry.name in NOT_OURS:
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        total += max(LEAST, entry.stat(follow_symlinks=False).st_blocks * BLOCK)
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it was removed meanwhile
        except OSError:
            whole = False
    return total, whole


def _unnamed(root: int, worktree: Path) -> int:
    """Bytes of files on the worktree's disk that processes below `root` hold open after their last name was removed."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError):
        device = os.stat(worktree).st_dev
        for pid in tree(root):
            with contextlib.suppress(OSError):
                for number in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        file = os.stat(f"/proc/{pid}/fd/{number}")
                        if file.st_nlink == 0 and file.st_dev == device and stat.S_ISREG(file.st_mode):
                            found[file.st_ino] = file.st_blocks * BLOCK
    return sum(found.values())
