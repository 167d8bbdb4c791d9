"""Contents of a repository's objects, read through one git process, however many objects are read and however often."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any, cast

from perdure.adapters.git.command import Git, GitError
from perdure.models.limits import GIT_TIMEOUT_S

_COMMAND = ("cat-file", "--batch")
_NAMES_AT_ONCE = (
    60  # names, 65 bytes each at most: what the smallest pipe takes, so that asking never waits for an answer
)
_CHUNK = 1 << 20


class ObjectReader:
    """A reader of objects by their full names, until it is closed or garbage-collected. Not for several threads.

    The first reading starts the process; each one after that costs only what it reads. After `close` the next one
    starts it anew.
    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._wrapper: Any = None
        self._buffer = bytearray()

    def read_objects(
        self, names: Sequence[str], max_bytes: int, remaining_bytes: int
    ) -> Iterator[tuple[str, bytes | None]]:
        """Yield each name with the content of its object; None for one that is missing, larger than `max_bytes`, or
        larger than what is left of `remaining_bytes` for all of them. Of these nothing is kept in memory.

        Raises GitError when git ends, or sends nothing for GIT_TIMEOUT_S. An error, or a caller that stops half-way,
        ends the process.
        """
        try:
            for start in range(0, len(names), _NAMES_AT_ONCE):
                batch = names[start : start + _NAMES_AT_ONCE]
                self._send_names(batch)
                for name in batch:
                    data = self._receive_object(min(max_bytes, remaining_bytes))
                    remaining_bytes -= len(data or b"")
                    yield name, data
        except BaseException:  # half an answer in the pipe: nobody may take it for the next one
            self.close()
            raise

    def close(self) -> None:
        """Kill the git process, if there is one, and forget what it has sent."""
        wrapper, self._wrapper = self._wrapper, None
        self._buffer.clear()
        if wrapper is not None:
            process = cast("subprocess.Popen[bytes]", wrapper.proc)
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                process.communicate()

    def _send_names(self, names: Sequence[str]) -> None:
        """Send object names to git, which is started if it is not running. Raises GitError when it has ended."""
        if self._wrapper is None:
            self._wrapper = self._git.start_process(*_COMMAND, settings=("core.bigFileThreshold=1m",))
        try:
            os.write(self._wrapper.proc.stdin.fileno(), "".join(f"{name}\n" for name in names).encode())
        except BrokenPipeError:
            raise self._kill_for_error() from None

    def _receive_object(self, max_bytes: int) -> bytes | None:
        """Return the content of the next object that git sends; None when git reports it as missing, or when it is
        larger than `max_bytes` and therefore dropped."""
        head = self._receive_line().split()
        if len(head) != 3 or not head[2].isdigit():  # `NAME missing`
            return None
        length = int(head[2])
        data = None
        if length <= max_bytes:
            data = self._receive_bytes(length)
        else:
            self._skip_bytes(length)
        self._skip_bytes(1)
        return data

    def _receive_line(self) -> bytes:
        """Return the next line of git's output, without its newline."""
        while (end := self._buffer.find(b"\n")) < 0:
            self._fill_buffer()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _receive_bytes(self, length: int) -> bytes:
        """Return the next `length` bytes of git's output."""
        while len(self._buffer) < length:
            self._fill_buffer()
        data = bytes(self._buffer[:length])
        del self._buffer[:length]
        return data

    def _skip_bytes(self, length: int) -> None:
        """Read past the next `length` bytes of git's output without holding all of them in memory."""
        while length > len(self._buffer):
            length -= len(self._buffer)
            self._buffer.clear()
            self._fill_buffer()
        del self._buffer[:length]

    def _fill_buffer(self) -> None:
        """Read more of git's output into the buffer. Raises GitError when git has ended, or sends nothing for
        GIT_TIMEOUT_S."""
        output_fd = self._wrapper.proc.stdout.fileno()
        poll = select.poll()
        poll.register(output_fd, select.POLLIN)
        if not poll.poll(GIT_TIMEOUT_S * 1000):
            raise GitError(_COMMAND, None, f"nothing for {GIT_TIMEOUT_S:g} s")
        data = os.read(output_fd, _CHUNK)
        if not data:
            raise self._kill_for_error()
        self._buffer += data

    def _kill_for_error(self) -> GitError:
        """Kill git and return the GitError that tells how it ended."""
        process = cast("subprocess.Popen[bytes]", self._wrapper.proc)
        process.kill()
        _, stderr = process.communicate()
        return GitError(_COMMAND, process.returncode, stderr.decode(errors="replace"))
