"""Single keys of a terminal, read by the event loop; the terminal's mode is restored when the context ends. Used where
a person decides at a gate, by `perdure top`, and by the demo."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import termios
import tty
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

ENTER = ("\n", "\r")

_KEY = re.compile(r"\x1b(?:\[[0-9;]*[a-z~]|o[a-z])|.", re.DOTALL)
"""One key as a terminal sends it: an arrow is one key, and never the letter that its sequence ends with."""

_ARROWS = {"\x1b[a": "up", "\x1b[b": "down", "\x1boa": "up", "\x1bob": "down"}


class TerminalKeys:
    """The keys that a person presses. `handlers`: by small letter or arrow name, what is called at once for a key."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[], None]] = {}
        self._pressed: asyncio.Queue[str] = asyncio.Queue()

    @classmethod
    @asynccontextmanager
    async def read_terminal(cls) -> AsyncIterator[TerminalKeys]:
        """Read keys from standard input while the context is open, without line buffering and echo.

        Ctrl-C and Ctrl-Z work as always. The terminal's mode is restored at the end.
        """
        keys, fd = cls(), sys.stdin.fileno()
        loop, saved_mode = asyncio.get_running_loop(), termios.tcgetattr(fd)
        tty.setcbreak(fd, termios.TCSANOW)
        loop.add_reader(fd, keys._read_keys, fd)
        try:
            yield keys
        finally:
            loop.remove_reader(fd)
            termios.tcsetattr(fd, termios.TCSADRAIN, saved_mode)

    def discard_pressed(self) -> None:
        """Drop every key pressed so far, also those that the terminal still holds.

        To be called before a question is shown, not after: a key pressed because of the question counts, one meant for
        something else does not.
        """
        discard_typed()
        while not self._pressed.empty():
            self._pressed.get_nowait()

    async def wait_for(self, *keys: str) -> str:
        """Wait until one of `keys` is pressed and return it; drop other keys. A key pressed since `discard_pressed`
        counts."""
        while (key := await self._pressed.get()) not in keys:
            pass
        return key

    async def next_key(self) -> str:
        """Return the next key, also one that was pressed before this call; wait for it if need be."""
        return await self._pressed.get()

    def _read_keys(self, fd: int) -> None:
        """Read what the terminal holds, queue each key and call its handler; called by the event loop.

        A terminal that is gone counts as Enter, once, and is not read any more.
        """
        try:
            data = os.read(fd, 64)
        except OSError:  # EIO: the terminal is gone
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(fd)
            data = b"\n"  # nobody can press a key any more: act as if Enter was pressed
        for key in _KEY.findall(data.decode(errors="replace").lower()):
            key = _ARROWS.get(key, key)
            self._pressed.put_nowait(key)
            if key in self.handlers:
                self.handlers[key]()


def discard_typed() -> None:
    """Drop the lines and keys that the terminal still holds: typed before a question, they are no answer to it."""
    with suppress(termios.error, OSError, ValueError):  # standard input is closed or no terminal
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def is_at_terminal() -> bool:
    """Return whether a person can press keys here: standard input is a terminal, and this process is in the foreground.

    A process in the background would be stopped for trying to read keys.
    """
    try:
        fd = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    if not os.isatty(fd):
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # a terminal, but not this session's: reading it stops nobody
        return True
