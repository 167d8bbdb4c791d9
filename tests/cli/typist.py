"""A person at a pseudo terminal: reads what a command writes, and types when they have seen something."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time

from tests.cli.conftest import Cli
from tests.waiting import patient


class Typist:
    """`seen` is everything so far, without colours and cursor movements."""

    def __init__(self, cli: Cli, *args: str, **env: str) -> None:
        self._keyboard, screen = pty.openpty()
        termios.tcsetwinsize(screen, (50, 200))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perdure.cli", *args],
            cwd=cli.cwd,
            env=cli.environment(TERM="xterm", NO_COLOR="1", COLUMNS="200", **env),
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
        )
        os.close(screen)
        self.seen, self._found = "", 0

    def __enter__(self) -> Typist:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(patient(30))
        os.close(self._keyboard)

    def until(self, pattern: str, within: float = 60) -> str:
        """Read on until `pattern` stands behind what was found last."""
        end = time.monotonic() + within
        while not (found := re.compile(pattern).search(self.seen, self._found)):
            assert self._read(end), f"no {pattern!r} in:\n{self.seen}"
        self._found = found.end()
        return found[0]

    def types(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    def ends(self, within: float = 60) -> int:
        """The exit code, after everything is read."""
        end = time.monotonic() + within
        while self._read(end):
            pass
        return self._process.wait(max(end - time.monotonic(), 1))

    def _read(self, end: float) -> bool:
        """False once nothing more can come."""
        while not select.select([self._keyboard], [], [], 0.1)[0]:
            if time.monotonic() > end:
                return False
        try:
            data = os.read(self._keyboard, 65536)
        except OSError:  # EIO: nobody has the other side open any more
            return False
        self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", data.decode(errors="replace"))
        return bool(data)
