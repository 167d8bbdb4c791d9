"""The demo itself, as a visitor runs it: real processes, real kills, and nothing left behind."""

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
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "TEMPORAL_ADDRESS": "127.0.0.1:1",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
    "ANTHROPIC_API_KEY": "not-for-the-demo",
    "HTTP_PROXY": "http://127.0.0.1:1",
    "PERDURE_SANDBOX": "off",
    "PERDURE_PORTS_BACKEND": "1024-1024",
}
"""Settings of the visitor's own that would break the demo if it listened to them."""


@dataclass
class Show:
    """One run of `perdure demo`; everything it may write lies below `root`."""

    root: Path
    before: tuple[str, ...] = ()
    seen: str = ""
    _found: int = 0
    _reading: int = -1
    _process: subprocess.Popen[bytes] = field(init=False)

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    def start(self, *options: str, terminal: int | None = None) -> None:
        """`terminal`: the slave side of a pseudo-terminal; without one, a pipe is read."""
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
            [*self.before, sys.executable, "-m", "perdure.cli", "demo", *options],
            cwd=self.root,
            env=kept | ELSEWHERE | ours,
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=writing,
            stderr=writing,
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
        return self._process.returncode

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        """To the demo itself, not to what was put before it."""
        family = [psutil.Process(self._process.pid)]
        family += family[0].children(recursive=True)
        for process in family:
            with contextlib.suppress(psutil.Error):  # gone since it was listed
                if process.cmdline()[1:4] == ["-m", "perdure.cli", "demo"]:
                    return process.send_signal(number)
        raise AssertionError("there is no demo")

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)
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
        assert self.processes() == []
        assert list(self.tmp.iterdir()) == []
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


@pytest.mark.timeout(180)
def test_the_demo_kills_its_worker_twice_and_ends_with_exactly_one_pull_request(show: Show) -> None:
    show.start("--fast")
    assert show.end() == 0, show.seen
    assert "41 tests green on main" in show.seen
    assert "2 of 45 fail: test_sign, test_zero" in show.seen
    assert "1 blocker, 1 tech debt" in show.seen
    deaths = re.findall(r"✗ worker (\d+) killed in the middle of (\w+), turn (\d+)", show.seen)
    takeovers = re.findall(r"↻ worker (\d+) took over: turn (\d+) again from its checkpoint", show.seen)
    assert [(step, turn) for _, step, turn in deaths] == [("implement", "2"), ("fix_tests", "3")]
    assert [turn for _, turn in takeovers] == ["2", "3"]
    assert not {pid for pid, *_ in deaths[1:]} - {pid for pid, _ in takeovers}
    assert "receipt  2 worker deaths · 2 turns redone · 0 replies paid twice" in show.seen
    assert re.findall(r"Pull request #(\d+)", show.seen) == ["1"]
    assert "sandbox OFF" not in show.seen
    show.check_nothing_is_left()


@pytest.mark.timeout(180)
def test_a_visitor_presses_k_and_gets_one_pull_request_anyway(show: Show, visitor: int) -> None:
    show.start("--fast", "--no-kill", terminal=visitor)
    pid = show.until(r"Worker (\d+)\. Kill me whenever you like: press K, or `kill -9 (\d+)`")[1]
    show.until("✓ plan")
    os.write(show._reading, b"k")
    show.until(f"✗ worker {pid} killed by you")
    taken = show.until(r"↻ worker (\d+) took over")[1]
    assert taken != pid
    page = show.until(r"The Web UI stays until you press Enter: (http://\S+)")[1]
    with urllib.request.urlopen(page, timeout=10) as answer:
        assert answer.status == 200
    os.write(show._reading, b"\n")
    assert show.end() == 0, show.seen
    assert "receipt  1 worker death " in show.seen
    assert re.findall(r"Pull request #(\d+)", show.seen) == ["1"]
    show.check_nothing_is_left()


@pytest.mark.timeout(180)
def test_the_third_death_of_a_turn_ends_it_and_r_goes_on(show: Show, visitor: int) -> None:
    show.start("--no-kill", terminal=visitor)
    show.until("✓ plan")
    show.until(r"▸ build +turn 2")
    for last in (False, False, True):
        os.write(show._reading, b"k")
        show.until("✗ worker [0-9]+ killed by you in the middle of implement, turn 2")
        if not last:
            show.until("↻ worker [0-9]+ took over: turn 2 again from its checkpoint")
    show.until("Not delivered +limits")
    show.until("press R to go on")
    os.write(show._reading, b"r")
    show.until("it goes on from its last checkpoint")
    show.until(r"▸ build +turn 3")
    show.signal(signal.SIGINT)
    assert show.end() == 130, show.seen
    show.check_nothing_is_left()


@pytest.mark.timeout(120)
def test_without_bubblewrap_it_names_the_weaker_grade_and_goes_on_and_sigterm_leaves_nothing(show: Show) -> None:
    show.before = ("bwrap", "--dev-bind", "/", "/", "--ro-bind", "/dev/null", "/usr/bin/bwrap", "--")
    show.start("--fast")
    show.until(r"sandbox (REDUCED|OFF)")
    show.until("! the sandbox cannot start: bubblewrap is not installed")
    show.until("✓ plan")  # its tools have run
    show.signal(signal.SIGTERM)
    assert show.end() == 143, show.seen
    show.check_nothing_is_left()
