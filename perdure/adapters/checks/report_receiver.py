"""Copy test reports while their runner writes them, or as it closes them, so that what was written cannot be changed
afterwards. `perdure.adapters.checks.tests` uses it around a run. Also splits a copy that holds several reports.

The report's file would otherwise belong to the tested process as well, which could write another report over it at its
end.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import re
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
_PROLOG_OR_SECTION = re.compile(rb"<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?xml ", re.DOTALL)
_LINKED, _CLOSED, _OPEN = 0x4, 0x8, 0x20
_EVENT = struct.Struct("iIII")


class _ReportReceiver(ABC):
    """Makes the file `report` and copies what is written to it into `copy`, a file out of the command's reach, in a
    thread.

    There is no copy where nothing was written, or where `report` has become another file. One byte more than a report
    may have is kept, to show that it is too large.
    """

    def __init__(self, report: Path, copy: Path) -> None:
        self._report, self._copy = report, copy
        copy.unlink(missing_ok=True)
        self._source_fd = self._open_report(report)
        self._original = os.lstat(report)
        self._stop_read_fd, self._stop_write_fd = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._handle_until_stopped, name="report", daemon=True)
        self._thread.start()

    @abstractmethod
    def _open_report(self, report: Path) -> int:
        """Make the report's file, and return a descriptor that can be polled for what is written to it."""

    @abstractmethod
    def _handle_data(self, data: bytes) -> None:
        """Handle the bytes that were read from that descriptor."""

    def close(self) -> None:
        """Stop copying, wait for the thread, and remove the copy where the report's file was replaced or removed.

        To be called when no process of the command lives any more.
        """
        os.close(self._stop_write_fd)
        self._thread.join()
        os.close(self._stop_read_fd)
        os.close(self._source_fd)
        with contextlib.suppress(FileNotFoundError):
            current = os.lstat(self._report)
            if (stat.S_IFMT(current.st_mode), current.st_ino) == (
                stat.S_IFMT(self._original.st_mode),
                self._original.st_ino,
            ):
                return
        self._copy.unlink(missing_ok=True)

    def _handle_until_stopped(self) -> None:
        """Handle all that the descriptor brings, waiting for more, until close() asks to stop; what is pending then is
        handled first. Runs in the thread."""
        poller = select.poll()
        poller.register(self._source_fd, select.POLLIN)
        poller.register(self._stop_read_fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll()}
            for data in self._pending_data():
                self._handle_data(data)
            if self._stop_read_fd in ready:
                return

    def _pending_data(self) -> Iterator[bytes]:
        """Yield what can be read from the descriptor without waiting, in chunks of 64 KiB."""
        with contextlib.suppress(BlockingIOError):
            while True:
                yield os.read(self._source_fd, _CHUNK)


class PipedReport(_ReportReceiver):
    """A report that is a pipe, copied while it is written; what exceeds the size of a report is dropped, so that no
    writer waits."""

    _remaining_bytes = JUNIT_BYTES + 1

    def _open_report(self, report: Path) -> int:
        """Make a pipe that the command may only write to, and return a descriptor that reads from it without
        waiting."""
        os.mkfifo(report, 0o600)
        descriptor = os.open(report, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # a writer of our own: it never ends
        report.chmod(0o200)  # whoever reads it elsewhere would wait for ever, or take the report away
        return descriptor

    def _handle_data(self, data: bytes) -> None:
        """Append the data to the copy, as far as a report of the greatest size plus one byte goes; drop the rest."""
        with self._copy.open("ab") as file:
            file.write(data[: self._remaining_bytes])
        self._remaining_bytes -= len(data[: self._remaining_bytes])


class ClosedReport(_ReportReceiver):
    """A report that is a file, copied when its runner closes it: for runners that open it to read as well, which a pipe
    that others cannot empty does not allow.

    It must be opened once and closed once: whoever else opens it has written another report, or wants to, and then none
    counts.
    """

    _open_count = _close_count = _attribute_changes = 0

    def _open_report(self, report: Path) -> int:
        """Make an empty file, open it in `_report_fd`, and return an inotify descriptor that tells when it is opened,
        closed after writing, or its attributes change, as by a link. Its directory is watched too, so that equal events
        stay two.

        Raises OSError, with nothing left open, when inotify cannot watch it.
        """
        report.touch(0o600)
        self._report_fd = os.open(report, os.O_RDONLY | os.O_CLOEXEC)
        libc = ctypes.CDLL(None, use_errno=True)
        inotify = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._watch = libc.inotify_add_watch(inotify, os.fsencode(report), _OPEN | _CLOSED | _LINKED)
        # Equal events that follow each other are made one: that of the directory stands between any two.
        parent_watch = libc.inotify_add_watch(inotify, os.fsencode(report.parent), _OPEN | _CLOSED)
        if -1 in (inotify, self._watch, parent_watch):
            error = OSError(ctypes.get_errno(), "inotify")
            for descriptor in {self._report_fd, inotify} - {-1}:
                os.close(descriptor)
            raise error
        return inotify

    def _handle_data(self, data: bytes) -> None:
        """Count how often the report was opened, closed after writing and changed in its attributes, as inotify's
        events in `data` tell, and copy the file when it is closed for the first time."""
        offset = 0
        while offset < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size + length
            if watch == self._watch:
                self._attribute_changes += bool(mask & _LINKED)
                self._open_count += bool(mask & _OPEN)
                self._close_count += bool(mask & _CLOSED)
                if mask & _CLOSED and self._close_count == 1:
                    with self._copy.open("wb") as copy:
                        for position in range(0, JUNIT_BYTES + 1, _CHUNK):
                            copy.write(os.pread(self._report_fd, min(_CHUNK, JUNIT_BYTES + 1 - position), position))

    def close(self) -> None:
        """Stop as every receiver does, and remove the copy unless the report was opened once and closed once, and its
        attributes never changed, as they do when it is linked elsewhere."""
        super().close()
        os.close(self._report_fd)
        if (self._open_count, self._close_count, self._attribute_changes) != (1, 1, 0):
            self._copy.unlink(missing_ok=True)


def split_documents(report: Path) -> list[Path]:
    """Return the JUnit documents in a received report, in the order they came.

    Where there are several, each is written to a file of its own beside the report (`<report>.0`, …); otherwise, and
    where it cannot be read or split, the report itself is returned. A document that a test has printed stands in a
    section of text, and is none.
    """
    try:
        with report.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            starts = [match.start() for match in _PROLOG_OR_SECTION.finditer(data) if match[0] == _PROLOG]
            if len(starts) < 2 or data[: starts[0]].strip():
                return [report]
            files = []
            for number, (start, end) in enumerate(itertools.pairwise([*starts, len(data)])):
                files.append(report.with_name(f"{report.name}.{number}"))
                with files[-1].open("wb") as copy:
                    for position in range(start, end, _CHUNK):
                        copy.write(data[position : min(position + _CHUNK, end)])
            return files
    except (OSError, ValueError):
        return [report]
