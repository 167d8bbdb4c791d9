"""Output files of commands: their ends, their lines as they come, the command they say is missing."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from perdure.adapters.system.threads import in_thread
from perdure.models.limits import FAILURE_TAIL_CHARS, FAILURE_TAIL_LINES, OUTPUT_FILE_BYTES
from perdure.text import without_control

_LINE_BYTES = 2_000  # of one line shown while a command runs
_FLOOD_BYTES = 1_000_000
_POLL_S = 0.2

# "bash: line 1: uv: command not found", "sh: 1: jest: not found", "exec: tox: not found"
_MISSING = re.compile(r"(?:^|: )([^\s:]+): (?:command )?not found$", re.MULTILINE)


def tail(path: Path, chars: int) -> str:
    """At most the last `chars` characters of a file, colours removed; empty when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 4 * chars))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return without_control(text)[-chars:]


def last_lines(text: str) -> str:
    """Return an error's share of a failed command's output: FAILURE_TAIL_LINES lines within FAILURE_TAIL_CHARS."""
    return "\n".join(text.rstrip().splitlines()[-FAILURE_TAIL_LINES:])[-FAILURE_TAIL_CHARS:]


def flooded() -> str:
    """Say why a command was ended that wrote more than its output file may hold."""
    return f"ended, as its output grew beyond {OUTPUT_FILE_BYTES // 1_000_000} MB"


def missing_command(text: str) -> str:
    """The command a shell could not find, or empty."""
    found = _MISSING.findall(text)
    return found[-1] if found else ""


@asynccontextmanager
async def followed(path: Path, on_line: Callable[[str], None]) -> AsyncIterator[None]:
    """While the block runs, call `on_line` with each whole line that appears in `path`; at the end with the rest."""
    reader = _Lines(path)
    ended = asyncio.Event()

    async def follow() -> None:
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), _POLL_S)
            for line in await in_thread(reader.new):
                on_line(line)
        for line in reader.rest():
            on_line(line)

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        ended.set()  # not cancelled: lines just read would be lost
        await task


class _Lines:
    """Reads on where it stopped; a line longer than _LINE_BYTES is cut, of a flood only the end is read."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset, self.open = path, 0, b""

    def new(self) -> list[str]:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                self.offset = max(self.offset, size - _FLOOD_BYTES)
                file.seek(self.offset)
                read = file.read(_FLOOD_BYTES)
        except FileNotFoundError:
            return []
        self.offset += len(read)
        *whole, self.open = (self.open + read).split(b"\n")
        self.open = self.open[:_LINE_BYTES]
        return [_shown(line) for line in whole if line.strip()]

    def rest(self) -> list[str]:
        """Return what stands behind the last newline."""
        return [_shown(self.open)] if self.open.strip() else []


def _shown(line: bytes) -> str:
    """Progress bars overwrite a line with carriage returns: what stands last is what a person would see."""
    return without_control(line.rstrip(b"\r").split(b"\r")[-1][:_LINE_BYTES].decode("utf-8", errors="replace"))
