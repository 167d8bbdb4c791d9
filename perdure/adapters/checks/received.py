"""A report taken over while it is written, or as it is closed: what the runner has said, nobody can take back.

The file it would be otherwise belongs to the tested process as well, which could write another one over it at its end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import stat
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from perdure.models.limits import JUNIT_BYTES

_CHUNK = 64 * 1024
_PROLOG = b"<?xml "
_LINKED, _CLOSED, _OPEN = 0x4, 0x8, 0x20
_EVENT = struct.Struct("iIII")


class _Receiver(ABC):
    """Takes what is written to `report` over into `into`, a file out of the command's reach; absent where that is
    nothing, or `report` is no longer what it was.

    One byte more than a report may have is kept.
    """

    def __init__(self, report: Path, into: Path) -> None:
        self._report, self._into = report, into
        into.unlink(missing_ok=True)
        self._from = self._make(report)
        self._made = os.lstat(report)
        self._wakes, self._wake = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._read, name="report", daemon=True)
        self._thread.start()

    @abstractmethod
    def _make(self, report: Path) -> int:
        """The file made, and a descriptor that tells of it, without waiting."""

    @abstractmethod
    def _take(self, data: bytes) -> None:
        """Take in what the descriptor said."""

    def close(self) -> None:
        """To be called when no process of the command lives any more."""
        os.close(self._wake)
        self._thread.join()
        os.close(self._wakes)
        os.close(self._from)
        with contextlib.suppress(FileNotFoundError):
            there = os.lstat(self._report)
            if (stat.S_IFMT(there.st_mode), there.st_ino) == (stat.S_IFMT(self._made.st_mode), self._made.st_ino):
                return
        self._into.unlink(missing_ok=True)

    def _read(self) -> None:
        waits = select.poll()
        waits.register(self._from, select.POLLIN)
        waits.register(self._wakes, select.POLLIN)
        while True:
            ready = {fd for fd, _ in waits.poll()}
            for data in self._pending():
                self._take(data)
            if self._wakes in ready:
                return

    def _pending(self) -> Iterator[bytes]:
        with contextlib.suppress(BlockingIOError):
            while True:
                yield os.read(self._from, _CHUNK)


class Piped(_Receiver):
    """A pipe; what is beyond the size of a report is thrown away, so that no writer ever waits."""

    _left = JUNIT_BYTES + 1

    def _make(self, report: Path) -> int:
        os.mkfifo(report, 0o600)
        there = os.open(report, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # a writer of our own: it never ends
        report.chmod(0o200)  # whoever reads it elsewhere would wait for ever, or take the report away
        return there

    def _take(self, data: bytes) -> None:
        with self._into.open("ab") as file:
            file.write(data[: self._left])
        self._left -= len(data[: self._left])


class ClosedReport(_Receiver):
    """A file of a runner that opens it to read and write, which nobody may do with a pipe that others cannot empty.

    It is opened once and closed once: whoever else does has written another report, or wants to, and none counts.
    """

    _opened = _closed = _others = 0

    def _make(self, report: Path) -> int:
        report.touch(0o600)
        self._file = os.open(report, os.O_RDONLY | os.O_CLOEXEC)
        libc = ctypes.CDLL(None, use_errno=True)
        there = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._watch = libc.inotify_add_watch(there, os.fsencode(report), _OPEN | _CLOSED | _LINKED)
        # Equal events that follow each other are made one: that of the directory stands between any two.
        above = libc.inotify_add_watch(there, os.fsencode(report.parent), _OPEN | _CLOSED)
        if -1 in (there, self._watch, above):
            raise OSError(ctypes.get_errno(), "inotify")
        return there

    def _take(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            if watch == self._watch:
                self._others += bool(mask & _LINKED)
                self._opened += bool(mask & _OPEN)
                self._closed += bool(mask & _CLOSED)
                if mask & _CLOSED and self._closed == 1:
                    self._into.write_bytes(os.pread(self._file, JUNIT_BYTES + 1, 0))

    def close(self) -> None:
        super().close()
        os.close(self._file)
        if (self._opened, self._closed, self._others) != (1, 1, 0):
            self._into.unlink(missing_ok=True)


def documents(report: Path) -> list[Path]:
    """The JUnit documents in what was received, each in a file of its own beside it, as they came."""
    try:
        data = report.read_bytes()
    except OSError:
        return [report]
    parts = data.split(_PROLOG)
    if len(parts) < 3 or parts[0].strip():
        return [report]
    found = []
    for number, part in enumerate(parts[1:]):
        found.append(report.with_name(f"{report.name}.{number}"))
        found[-1].write_bytes(_PROLOG + part)
    return found
