"""The demo, as a visitor runs it: real processes, real kills, agents, a backlog, and nothing left behind."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from perdure.adapters.forges.github.site import SECRET_VARIABLES
from perdure.demo.demos import is_as_expected
from perdure.demo.environment import DemoDirectories, demo_variables, open_directories
from perdure.local.identity import ServerRecord
from perdure.local.places import Places
from perdure.models.backlog.state import BacklogProgress, ItemView
from perdure.models.config.repository import SandboxGrade
from tests import needs
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


__all__ = ["show", "visitor"]


@pytest.mark.story
def test_nothing_of_the_visitor_s_own_reaches_the_demo(tmp_path: Path) -> None:
    theirs = dict.fromkeys((*SECRET_VARIABLES, *ELSEWHERE, "PERDURE_GITHUB_URL", "https_proxy"), "theirs")
    world = demo_variables(
        DemoDirectories(tmp_path), "http://127.0.0.1:1", SandboxGrade.OFF, {**theirs, "PATH": "/usr/bin"}
    )
    assert "theirs" not in world.values()
    assert world["PATH"].startswith("/usr/bin")


def look_at_what_was_kept(show: Show) -> None:
    """As the demo's last lines say, word for word."""
    (kept,) = show.tmp.iterdir()
    told = show.seen.partition("To look at it:\n")[2].partition("\n\n")[0]
    script = re.sub(r"^  ", "", told, flags=re.MULTILINE)
    assert f"export PERDURE_HOME={kept}/home\n" in script
    ended = re.search(r"\S+ down(?= ends it)", script)
    assert ended is not None
    env = {"PATH": os.environ["PATH"], "HOME": str(show.root), "TMPDIR": str(show.tmp), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        ["bash", "-e", "-c", f"{script}\n{ended[0]}"],
        cwd=show.root,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
    assert "Delivered  " in ran.stdout
    assert "0 replies paid twice" in ran.stdout
    assert "✗" not in ran.stdout.partition("Delivered")[2], ran.stdout
    show.check_nothing_runs()


@pytest.mark.story
@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_issue_becomes_one_pull_request_though_the_worker_is_killed_twice_and_once_more_by_the_visitor(
    show: Show, visitor: int
) -> None:
    show.start("--fast", "--github", terminal=visitor)
    issue = show.until(
        r'issue +#1 "Make parse_duration accept \'1h30m\'" · (http://127\.0\.0\.1:\d+/me/durations/issues/1)'
    )
    show.until("GitHub +a twin of it on this machine")
    show.until(r"Worker (\d+)\. Kill me whenever you like: press K, or `kill -9 (\d+)`")
    assert "parse_duration" in opened(issue[1])
    show.until("✓ prepare        41 green")
    show.until("2 of 45 fail: test_sign, test_zero")
    show.until("1 blocker, 1 tech debt")
    os.write(show._reading, b"k")
    killed = show.until(r"✗ worker (\d+) killed by you")[1]
    assert show.until(r"↻ worker (\d+) took over")[1] != killed
    delivered = show.until(r"Delivered +(http://127\.0\.0\.1:\d+/me/durations/pull/2)")[1]
    # A worker that dies before it has taken anything in hand is no death of the delivery's.
    show.until("receipt  [23] worker deaths · [23] turns redone · 0 replies paid twice")
    show.until(r"Pull request #2  feat: accept compound durations")
    show.until("perdure-bot: .*#2")
    show.until("1 comment, [0-9]+ requests to GitHub")
    show.until("GitHub and the model were twins")
    show.until("perdure deliver --issue 12")
    show.until("These pages stay until you press Enter:")
    page, pull, web = (show.until(rf"{name} +(http://\S+)")[1] for name in ("issue #1", "pull request #2", "Web UI"))
    assert (page, pull) == (issue[1], delivered)
    assert re.search(r"Closes (<a [^>]*>)?#1\b", opened(pull))
    assert "#2" in opened(page)
    assert opened(web)
    os.write(show._reading, b"\n")
    assert show.end() == 0, show.seen
    assert re.findall(r"Pull request #(\d+)  ", show.seen) == ["2"]
    deaths = re.findall(r"✗ worker (\d+) killed in the middle of (\w+), turn (\d+)", show.seen)
    takeovers = re.findall(r"↻ worker (\d+) took over: turn (\d+) again from its checkpoint", show.seen)
    assert [(step, turn) for _, step, turn in deaths] == [("implement", "2"), ("fix_tests", "3")]
    assert [turn for _, turn in takeovers[:2]] == ["2", "3"]
    assert not {pid for pid, *_ in deaths[1:]} - {pid for pid, _ in takeovers}
    assert not re.findall(r"worker \d+ died", show.seen), "what forks workers is not told for one"
    for words in ("sandbox OFF", "no worker", "ghp_"):
        assert words not in show.seen
    show.check_nothing_runs()
    look_at_what_was_kept(show)


def opened(page: str) -> str:
    with urllib.request.urlopen(page, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.story
def test_a_demo_removes_what_the_one_before_it_left_unless_somebody_looks_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with open_directories(None) as first:
        first.finished_file.touch()
    with open_directories(None) as cut_off:
        assert not first.root.exists()
    assert not cut_off.root.exists()
    with open_directories(None) as looked_at:
        looked_at.finished_file.touch()
    with Places(looked_at.home).server_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open_directories(None):
            assert looked_at.root.exists()


@pytest.mark.story
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_demo_ends_the_server_of_one_that_was_killed_and_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    playing = (
        "import time, perdure.demo.environment as s\nwith s.open_directories(None) as it: print(it.root, "
        "flush=True); time.sleep(600)"
    )
    with ExitStack() as ended:
        demo = _started(ended, playing, TMPDIR=str(tmp_path))
        killed = DemoDirectories(Path(_first_line(demo)))
        serving = "import fcntl, sys, time\nfcntl.flock(file := open(sys.argv[1], 'w'), 2)\nprint(flush=True)\n"
        server = _started(ended, serving + "time.sleep(600)", str(Places(killed.home).server_lock))
        _first_line(server)
        record = ServerRecord(pid=server.pid, address="a:1", ui="http://a:2", temporal="", home_id="")
        Places(killed.home).server_record.write_text(record.model_dump_json())
        with open_directories(None):
            assert server.poll() is None, "it is played just now"
        demo.kill()
        demo.wait(patient(10))
        with open_directories(None):
            assert not killed.root.exists()
            assert server.wait(patient(10)) == -signal.SIGKILL


def _started(ended: ExitStack, script: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})
    ended.enter_context(process)
    ended.callback(process.kill)
    return process


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.story
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_visitor_presses_k_ten_times_and_the_demo_delivers(show: Show, visitor: int) -> None:
    """Most of them over the same turn: its third death is asked about, and the demo says that they were wanted."""
    show.start("--no-kill", terminal=visitor)
    show.until("✓ plan")
    show.until(r"▸ build +turn 2")
    for _ in range(10):
        os.write(show._reading, b"k")
        show.until("✗ worker [0-9]+ (killed by you|died)")
        show.until(r"↻ worker (\d+) took over")
    assert "the demo says yes" in show.seen
    show.until(r"The Web UI stays until you press Enter: ")
    os.write(show._reading, b"\n")
    assert show.end() == 0, show.seen
    # A worker that dies before it has taken anything in hand is no death of the delivery's.
    assert 4 <= int(re.findall(r"receipt  (\d+) worker deaths ", show.seen)[-1]) <= 10
    assert re.findall(r"Pull request #(\d+)", show.seen) == ["1"]
    show.check_nothing_runs()


@pytest.mark.story
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_for_a_program_the_answer_is_the_result_and_the_story_is_told_besides(show: Show) -> None:
    show.start("--fast", "--github", "--no-kill", "--json", apart=True)
    assert show.end() == 0, show.told
    result = json.loads(show.seen)
    assert result["delivery_id"] == "durations-issue-1"
    assert result["status"] == "delivered"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/me/durations/pull/2", result["pull_request"]["url"])
    assert "GitHub and the model were twins" in show.told
    show.check_nothing_runs()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "agent",
    [
        pytest.param("claude-code", marks=pytest.mark.needs("claude")),
        pytest.param("codex", marks=pytest.mark.needs("codex")),
        *(pytest.param(name, marks=pytest.mark.needs(name)) for name in needs.SPOKEN),
    ],
)
def test_one_pull_request_comes_out_of_two_deaths_and_no_reply_is_paid_twice(agent: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "perdure.cli", "demo", "--agent", agent, "--fast", "--yes", "--json", "--keep"]
    done = subprocess.run(
        [*words, str(tmp_path / "demo")], capture_output=True, text=True, timeout=patient(480), check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    receipt = result["receipt"]
    assert result["status"] == "delivered"
    assert (receipt["worker_deaths"], receipt["replies_paid_twice"]) == (2, 0)


def test_it_is_whole_only_when_all_landed_and_one_of_them_was_blocked_meanwhile() -> None:
    def played(blocked: dict[str, str], **other: str) -> bool:
        items = tuple(ItemView(id=id, phase=phase) for id, phase in ({"total": "landed"} | other).items())
        ended = BacklogProgress(backlog_id="night", run_id="r", repository="/r", status="ended", items=items)
        return is_as_expected(ended, blocked)

    assert played({"invoice": "halves"}, invoice="landed")
    assert not played({}, invoice="landed")
    assert not played({"invoice": "total"}, invoice="landed")
    assert not played({"invoice": "halves"}, invoice="blocked")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_eight_items_four_at_a_time_two_kills_and_three_zeros(show: Show) -> None:
    show.start("--backlog", "--fast", "--yes", "--json", apart=True)
    assert show.end(500) == 0, show.told
    progress = json.loads(show.seen)
    assert {view["phase"] for view in progress["items"]} == {"landed"}
    assert re.search(r"^✗ invoice .*by halves", show.told, re.MULTILINE), show.told
    assert re.search(r"^↻ .*backlog retry night halves", show.told, re.MULTILINE), show.told
    assert len(re.findall(r"^✗ worker \d+ killed", show.told, re.MULTILINE)) == 2
    assert "8 of 8 landed · items lost 0 · landed twice 0 · branches without an owner 0" in show.told
    (kept,) = show.tmp.iterdir()
    told = ["git", "-C", str(kept / "durations.git"), "log", "--format=%P|%s", f"main..{progress['branch']}"]
    landed = subprocess.run(told, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert len(landed) == 8
    assert all(len(line.partition("|")[0].split()) == 1 for line in landed), "linear"
    show.check_nothing_runs()
