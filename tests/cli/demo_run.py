"""One run of `perdure demo`, as a visitor sees it, with everything it may write below one directory."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.waiting import patient

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "TEMPORAL_ADDRESS": "127.0.0.1:1",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
    "ANTHROPIC_API_KEY": "not-for-the-demo",
    "HTTP_PROXY": "http://127.0.0.1:1",
    "GH_TOKEN": "not-for-the-demo",
    "PERDURE_GITHUB_URL": "https://127.0.0.1:1",
    "PERDURE_GITHUB_APP_ID": "1",
    "PERDURE_SANDBOX": "off",
    "PERDURE_PORTS_BACKEND": "1024-1024",
}
"""Settings of the visitor's own that would break the demo if it listened to them."""


@dataclass
class Show:
    """One run of `perdure demo`; everything it may write lies below `root`."""

    root: Path
    seen: str = ""
    told: str = ""
    _found: int = 0
    _reading: int = -1
    _process: subprocess.Popen[bytes] = field(init=False)

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    def start(self, *options: str, terminal: int | None = None, apart: bool = False) -> None:
        """`terminal`: the slave side of a pseudo-terminal; without one, a pipe is read.

        `apart`: what goes to standard error is not `seen`, but `told` in the end.
        """
        self.tmp.mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        ours = {
            "TMPDIR": str(self.tmp),
            "PYTHONPATH": str(ROOT),
            "PERDURE_HOME": str(self.root / "home"),
            "TERM": "xterm",
        }
        reading, writing = os.pipe() if terminal is None else (-1, terminal)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perdure.cli", "demo", *options],
            cwd=self.root,
            env=kept | ELSEWHERE | ours,
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=writing,
            stderr=(self.root / "told").open("wb") if apart else writing,
            start_new_session=True,
        )
        if terminal is None:
            os.close(writing)
            self._reading = reading

    def until(self, pattern: str, timeout: float = 90) -> re.Match[str]:
        """Read on until the output holds `pattern` behind what was found last."""
        end = time.monotonic() + timeout
        while not (found := re.compile(pattern).search(self.seen, self._found)):
            assert self._read(end), f"no {pattern!r} in:\n{self.seen}"
        self._found = found.end()
        return found

    def end(self, timeout: float = 90) -> int:
        """The exit code; a pseudo-terminal that we hold open has no end of its own."""
        end = time.monotonic() + timeout
        while self._process.poll() is None:
            self._read(end)
        while self._read(end):
            pass
        if (told := self.root / "told").exists():
            self.told = told.read_text(encoding="utf-8")
        return self._process.returncode

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(patient(10))
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(OSError):
            os.close(self._reading)

    def processes(self) -> list[psutil.Process]:
        """Whoever was started by the demo: known by the directory in its command line or environment."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = [*process.cmdline(), *process.environ().values()]
                if process.pid != os.getpid() and any(str(self.tmp) in word for word in words):
                    found.append(process)
        return found

    def check_nothing_is_left(self) -> None:
        """Of a demo that was not played to its end."""
        assert list(self.tmp.iterdir()) == []
        self.check_nothing_runs()

    def check_nothing_runs(self) -> None:
        assert self.processes() == []
        assert not (self.root / "home").exists(), "the visitor's own home was touched"

    def _read(self, end: float) -> bool:
        """Read what is there; False once nothing more can come."""
        ready: list[int] = []
        while not ready:
            over = self._process.poll() is not None
            ready, _, _ = select.select([self._reading], [], [], 0.1)
            if not ready and over:
                return False
            assert ready or time.monotonic() < end, f"nothing more came in time:\n{self.seen}"
        data = os.read(self._reading, 65536)
        self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", data.decode(errors="replace"))
        return bool(data)


@pytest.fixture
def show(tmp_path: Path) -> Iterator[Show]:
    show = Show(tmp_path)
    try:
        yield show
    finally:
        show.close()


@pytest.fixture
def visitor(show: Show) -> Iterator[int]:
    """A pseudo-terminal: what its side of the keyboard is; the show plays on the other one."""
    keyboard, screen = pty.openpty()
    termios.tcsetwinsize(screen, (40, 120))
    before = termios.tcgetattr(screen)
    show._reading = keyboard
    try:
        yield screen
        if show.ended:
            assert termios.tcgetattr(screen) == before, "the terminal was not put back"
    finally:
        os.close(screen)
