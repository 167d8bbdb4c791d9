"""Single keys of a terminal, read by the event loop; the terminal is as before when the context ends."""

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
"""A key as a terminal sends it: an arrow is one, and never the letter it ends with."""

_ARROWS = {"\x1b[a": "up", "\x1b[b": "down", "\x1boa": "up", "\x1bob": "down"}


class Keys:
    """`on` holds what a key does, by its small letter; `wait` waits for one of several keys."""

    def __init__(self) -> None:
        self.on: dict[str, Callable[[], None]] = {}
        self._pressed: asyncio.Queue[str] = asyncio.Queue()

    @classmethod
    @asynccontextmanager
    async def of_terminal(cls) -> AsyncIterator[Keys]:
        """Without line buffering and echo; Ctrl-C and Ctrl-Z stay what they are."""
        keys, fd = cls(), sys.stdin.fileno()
        loop, before = asyncio.get_running_loop(), termios.tcgetattr(fd)
        tty.setcbreak(fd, termios.TCSANOW)
        loop.add_reader(fd, keys._read, fd)
        try:
            yield keys
        finally:
            loop.remove_reader(fd)
            termios.tcsetattr(fd, termios.TCSADRAIN, before)

    def forget(self) -> None:
        """Drop all that was pressed so far, also what the terminal still holds. Before something is shown, not after
        it: a key that is pressed because of it counts, and none that was meant for something else."""
        forget_typed()
        while not self._pressed.empty():
            self._pressed.get_nowait()

    async def wait(self, *wanted: str) -> str:
        """The first of `wanted` that is pressed, also before, since `forget`."""
        while (key := await self._pressed.get()) not in wanted:
            pass
        return key

    async def next(self) -> str:
        """The next key, also one that was pressed before."""
        return await self._pressed.get()

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, 64)
        except OSError:  # EIO: the terminal is gone
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(fd)
            data = b"\n"  # nobody will press anything any more: as if Enter
        for key in _KEY.findall(data.decode(errors="replace").lower()):
            key = _ARROWS.get(key, key)
            self._pressed.put_nowait(key)
            if key in self.on:
                self.on[key]()


def forget_typed() -> None:
    """Drop the lines and keys that the terminal still holds: typed before a question, they are no answer to it."""
    with suppress(termios.error, OSError, ValueError):  # it is gone, or is none
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def at_a_terminal() -> bool:
    """True where a person can press keys here: a process in the background would be stopped for trying to read them."""
    try:
        fd = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    if not os.isatty(fd):
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # a terminal, but not ours: nobody can be stopped over it
        return True
