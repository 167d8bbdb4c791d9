"""A report taken over while it is written, through a pipe: what the runner has said, nobody can take back.

The file it would be otherwise belongs to the tested process as well, which could write another one over it at its end.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from perdure.models.limits import JUNIT_BYTES

_CHUNK = 64 * 1024
_PROLOG = b"<?xml "


class Receiver:
    """Reads `pipe`, which it makes, into `into`, a file out of the command's reach; absent where nothing was written.

    One byte more than a report may have is kept, and the rest thrown away, so that no writer ever waits.
    """

    def __init__(self, pipe: Path, into: Path) -> None:
        os.mkfifo(pipe, 0o600)
        self._pipe, self._into, self._made = pipe, into, os.lstat(pipe)
        self._from = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # a writer of our own: it never ends
        pipe.chmod(0o200)  # whoever reads it elsewhere would wait for ever, or take the report away
        self._wakes, self._wake = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._read, name="report", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """To be called when no process of the command lives any more. A pipe that was put aside has told nothing."""
        os.close(self._wake)
        self._thread.join()
        os.close(self._wakes)
        os.close(self._from)
        with contextlib.suppress(FileNotFoundError):
            there = os.lstat(self._pipe)
            if stat.S_ISFIFO(there.st_mode) and there.st_ino == self._made.st_ino:
                return
        self._into.unlink(missing_ok=True)

    def _read(self) -> None:
        left = JUNIT_BYTES + 1
        self._into.unlink(missing_ok=True)
        waits = select.poll()
        waits.register(self._from, select.POLLIN)
        waits.register(self._wakes, select.POLLIN)
        while True:
            ready = {fd for fd, _ in waits.poll()}
            for data in self._pending():
                with self._into.open("ab") as file:
                    file.write(data[:left])
                left -= len(data[:left])
            if self._wakes in ready:
                return

    def _pending(self) -> Iterator[bytes]:
        with contextlib.suppress(BlockingIOError):
            while True:
                yield os.read(self._from, _CHUNK)


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
