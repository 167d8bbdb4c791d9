"""What a power cut leaves of the files that this process wrote."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest


class Disk:
    """Files after a power cut: contents of those that were synced, names in directories that were synced since."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._contents: dict[int, int] = {}
        self._file_syncs = list[int]()
        self._names: set[tuple[int, str]] = set()
        self._directory_syncs = list[int]()
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, fd: int) -> None:
        self._fsync(fd)
        inode = os.fstat(fd).st_ino
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            self._names.update((inode, name) for name in os.listdir(fd))
            self._directory_syncs.append(inode)
        else:
            self._contents[inode] = os.fstat(fd).st_size
            self._file_syncs.append(inode)

    def syncs_of(self, directory: Path) -> int:
        """The number of times that a directory was synced."""
        return self._directory_syncs.count(directory.stat().st_ino)

    def syncs_of_file(self, path: Path) -> int:
        """The number of times that a file was synced."""
        return self._file_syncs.count(path.stat().st_ino)

    def keeps(self, path: Path, below: Path) -> bool:
        """Return True when a file, with every directory that leads to it from `below`, is there after a power cut."""
        chain = [path, *(parent for parent in path.parents if parent.is_relative_to(below) and parent != below)]
        named = all((one.parent.stat().st_ino, one.name) in self._names for one in chain)
        return named and self.keeps_content(path)

    def keeps_content(self, path: Path) -> bool:
        """Return True when a file has its content after a power cut, whatever its name then is."""
        return path.stat().st_ino in self._contents

    def cut_power(self, path: Path, below: Path) -> None:
        """Leave of a file that is appended to what a power cut may: the bytes that were synced; nothing of it where its
        name was not."""
        if not self.keeps(path, below):
            path.unlink()
        else:
            os.truncate(path, self._contents[path.stat().st_ino])
