"""Contents of a repository's objects: one git process, however many are asked for, and however often."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any, cast

from perdure.adapters.git.door import Git, GitError
from perdure.models.limits import GIT_TIMEOUT_S

_COMMAND = ("cat-file", "--batch")
_AT_ONCE = 60  # names, 65 bytes each at most: what the smallest pipe takes, so that asking never waits for an answer
_CHUNK = 1 << 20


class Contents:
    """Reads objects by their full names, until it is closed or forgotten. Not for several threads.

    The first reading starts the process, each after that costs what it reads. After `close` one begins it anew.
    """

    def __init__(self, git: Git) -> None:
        self._git = git
        self._wrapper: Any = None
        self._buffer = bytearray()

    def read(self, names: Sequence[str], most: int, together: int) -> Iterator[tuple[str, bytes | None]]:
        """Each name with what it holds: None for one that is not there, is larger than `most` bytes, or than what is
        left of `together`; of these nothing is kept in memory.

        Raises GitError when git ends, or says nothing for GIT_TIMEOUT_S.
        """
        try:
            for at in range(0, len(names), _AT_ONCE):
                some = names[at : at + _AT_ONCE]
                self._ask(some)
                for name in some:
                    data = self._answer(min(most, together))
                    together -= len(data or b"")
                    yield name, data
        except BaseException:  # half an answer in the pipe: nobody may take it for the next one
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        wrapper, self._wrapper = self._wrapper, None
        self._buffer.clear()
        if wrapper is not None:
            process = cast("subprocess.Popen[bytes]", wrapper.proc)
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                process.communicate()

    def _ask(self, names: Sequence[str]) -> None:
        if self._wrapper is None:
            self._wrapper = self._git.start(*_COMMAND, settings=("core.bigFileThreshold=1m",))
        try:
            os.write(self._wrapper.proc.stdin.fileno(), "".join(f"{name}\n" for name in names).encode())
        except BrokenPipeError:
            raise self._ended() from None

    def _answer(self, most: int) -> bytes | None:
        head = self._until_newline().split()
        if len(head) != 3 or not head[2].isdigit():  # `NAME missing`
            return None
        length = int(head[2])
        data = None
        if length <= most:
            data = self._take(length)
        else:
            self._drop(length)
        self._drop(1)
        return data

    def _until_newline(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            self._more()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _take(self, length: int) -> bytes:
        while len(self._buffer) < length:
            self._more()
        data = bytes(self._buffer[:length])
        del self._buffer[:length]
        return data

    def _drop(self, length: int) -> None:
        while length > len(self._buffer):
            length -= len(self._buffer)
            self._buffer.clear()
            self._more()
        del self._buffer[:length]

    def _more(self) -> None:
        out = self._wrapper.proc.stdout.fileno()
        poll = select.poll()
        poll.register(out, select.POLLIN)
        if not poll.poll(GIT_TIMEOUT_S * 1000):
            raise GitError(_COMMAND, None, f"nothing for {GIT_TIMEOUT_S:g} s")
        data = os.read(out, _CHUNK)
        if not data:
            raise self._ended()
        self._buffer += data

    def _ended(self) -> GitError:
        process = cast("subprocess.Popen[bytes]", self._wrapper.proc)
        process.kill()
        _, told = process.communicate()
        return GitError(_COMMAND, process.returncode, told.decode(errors="replace"))
