"""Output files of commands: their ends, their lines as they come, excerpts made safe for a terminal and a model, the
command they say is missing, and the text about too much output. Used by everything that runs commands: the agent's
tools, tests, setup, the browser."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
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


def read_tail(path: Path, chars: int) -> str:
    """Return at most the last `chars` characters of a file, without colours and control characters; empty: there is no
    file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 4 * chars))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return without_control(text)[-chars:]


def last_lines(text: str) -> str:
    """Return the part of a failed command's output that an error quotes: the last FAILURE_TAIL_LINES lines, and of
    these the last FAILURE_TAIL_CHARS characters."""
    return "\n".join(text.rstrip().splitlines()[-FAILURE_TAIL_LINES:])[-FAILURE_TAIL_CHARS:]


def flood_reason() -> str:
    """Return the reason why a command was ended that wrote more than its output file may hold."""
    return f"ended, as its output grew beyond {OUTPUT_FILE_BYTES // 1_000_000} MB"


def missing_command(text: str) -> str:
    """Return the last command that a shell said it could not find; empty: none."""
    names = _MISSING.findall(text)
    return names[-1] if names else ""


@asynccontextmanager
async def follow_lines(path: Path, on_line: Callable[[str], None]) -> AsyncIterator[None]:
    """Call `on_line` with each whole line that appears in a file while the block runs, some tenths of a second later;
    at the end with the rest.

    The file may appear later. Empty lines are left out, control characters and the end of long lines too; of a flood
    only the newest megabyte is read.
    """
    reader = _NewLineReader(path)
    ended = asyncio.Event()

    async def report_lines() -> None:
        """Report the new lines every _POLL_S until the block has ended, then those that are left."""
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), _POLL_S)
            for line in await in_thread(reader.read_new_lines):
                on_line(line)
        for line in reader.rest_lines():
            on_line(line)

    task = asyncio.create_task(report_lines())
    try:
        yield
    finally:
        ended.set()  # Not cancelled: lines that were just read would be lost.
        await task


class _NewLineReader:
    """A reader of a growing file that goes on where it stopped.

    A line longer than _LINE_BYTES is cut, and of a flood only the end is read. `unfinished`: what stands behind the
    last newline so far.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.offset, self.unfinished = path, 0, b""

    def read_new_lines(self) -> list[str]:
        """Return the whole lines that were added to the file since the last call, empty ones left out.

        None are there while the file does not exist.
        """
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                self.offset = max(self.offset, size - _FLOOD_BYTES)
                file.seek(self.offset)
                chunk = file.read(_FLOOD_BYTES)
        except FileNotFoundError:
            return []
        self.offset += len(chunk)
        *whole, self.unfinished = (self.unfinished + chunk).split(b"\n")
        self.unfinished = self.unfinished[:_LINE_BYTES]
        return [_visible_text(line) for line in whole if line.strip()]

    def rest_lines(self) -> list[str]:
        """Return what stands behind the last newline as a line; empty: nothing."""
        return [_visible_text(self.unfinished)] if self.unfinished.strip() else []


def _visible_text(line: bytes) -> str:
    """Return the part of a line that a person would see: progress bars overwrite it with carriage returns."""
    return without_control(line.rstrip(b"\r").split(b"\r")[-1][:_LINE_BYTES].decode("utf-8", errors="replace"))


def read_excerpt(path: Path, head: int, tail: int) -> str:
    """Read a file and return its text; of a long one its first `head` and last `tail` characters, and between them a
    line that says how many bytes are left out.

    Undecodable bytes become U+FFFD, terminal control sequences are removed. An absent file gives ''. Only the two ends
    of a long file are read.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            most_bytes = 4 * (head + tail)  # no character of UTF-8 is longer
            if size <= most_bytes:
                text = clean_output(file.read().decode(errors="replace"))
                if len(text) <= head + tail:
                    return text
                first, last = text[:head], text[len(text) - tail :]
                left_out = size - len(first.encode()) - len(last.encode())
                return _join_excerpt(first, max(1, left_out), last)
            start = codecs.getincrementaldecoder("utf-8")("replace").decode(file.read(4 * head))
            file.seek(size - 4 * tail)
            end = file.read().lstrip(bytes(range(0x80, 0xC0))).decode(errors="replace")
    except FileNotFoundError:
        return ""
    first, last = clean_output(start)[:head], clean_output(end)
    last = last[max(0, len(last) - tail) :]
    return _join_excerpt(first, max(1, size - len(first.encode()) - len(last.encode())), last)


def clean_output(text: str) -> str:
    """Return the text without control sequences; of a line that was overwritten, as by a progress bar, only the last
    state."""
    lines = text.replace("\r\n", "\n").split("\n")
    return without_control("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines))


def _join_excerpt(first: str, left_out: int, last: str) -> str:
    """Return the two parts with a line between them that says how many bytes were left out."""
    return f"{first}\n[… {left_out:,} bytes left out …]\n{last}"
