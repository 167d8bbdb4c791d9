"""Background commands: a server under test answers beside itself, and nothing of it outlives the reply's calls."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.agents.builtin.tools import Toolbox, run_calls
from perdure.models.phases import Step
from tests.adapters.agents.builtin.replies import use
from tests.waiting import patient

pytestmark = pytest.mark.timeout(120)

SERVER = "echo up; exec python3 -m http.server 8123 --bind 127.0.0.1"
GET = (
    "for n in $(seq 100); do python3 -c 'import urllib.request as u; "
    'print(u.urlopen("http://127.0.0.1:8123/src/durations.py").read().decode())\' 2>/dev/null && break; sleep 0.1; done'
)


async def told(box: Toolbox, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    named = [call | {"id": f"toolu_{number}"} for number, call in enumerate(calls, 1)]
    return await run_calls({"content": named}, box, Step.IMPLEMENT)


def bash(command: str = "", **more: Any) -> dict[str, Any]:
    return use("bash", command=command, **more)


def alive(word: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and int(entry.name) != os.getpid() and word in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


async def test_a_server_answers_the_commands_beside_it_and_no_others_and_is_stopped(walled: Toolbox) -> None:
    started, got, alone, words, stopped, gone = await told(
        walled,
        bash(SERVER, background=True),
        bash(GET, handle="b1"),
        bash(GET.replace("100", "2")),
        bash(handle="b1"),
        bash(handle="b1", stop=True),
        bash(GET, handle="b1"),
    )
    assert started["content"].startswith("runs in the background as b1")
    said = started["content"] + got["content"] + words["content"]
    assert "up" in said, "at once, or on a busy machine with a later call"
    assert got["content"].startswith("exit code 0\n")
    assert "return int(text)" in got["content"]
    assert "return int" not in alone["content"], "other sandboxes have networks of their own"
    assert "[b1 says:]" in words["content"]
    assert stopped["content"].startswith("b1 is stopped.")
    assert gone["is_error"]
    assert "nothing runs as b1" in gone["content"]
    assert not alive("8123")


async def test_what_is_not_stopped_ends_with_the_replys_calls(walled: Toolbox) -> None:
    seen = (
        "for n in $(seq 100); do "
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 98701' && break; sleep 0.1; done"
    )
    _, ran = await told(walled, bash("sleep 98701 & sleep 98701", background=True), bash(seen, handle="b1"))
    assert "sleep 98701" in ran["content"]
    assert not alive("sleep\x0098701")
    [later] = await told(walled, bash("true", handle="b2"))
    assert later["is_error"]


async def test_a_background_command_and_those_beside_it_cannot_write_to_the_repository(
    walled: Toolbox, worktree: Path
) -> None:
    _, beside = await told(
        walled,
        bash("touch src/new; ln -s /etc away; sleep 60", background=True),
        bash("touch src/newer; touch 1.sh; ls /; id -u", handle="b1"),
    )
    assert "Read-only" in beside["content"]
    assert sorted(path.name for path in worktree.iterdir()) == ["src"]
    assert [path.name for path in (worktree / "src").iterdir()] == ["durations.py"]


async def test_a_command_beside_it_has_an_exit_code_a_limit_and_the_news_of_the_first(walled: Toolbox) -> None:
    _, failed, slow, news = await told(
        walled,
        bash("echo first; sleep 2; echo second; exit 7", background=True),
        bash("echo said; exit 3", handle="b1"),
        bash("sleep 60", handle="b1", timeout=3),
        bash("true", handle="b1"),
    )
    assert failed["content"].startswith("exit code 3\nsaid\n")
    assert slow["content"].startswith("killed after 3 s")
    assert "second" in slow["content"]
    assert "b1 is not running any more." in news["content"]


async def test_too_many_and_those_in_a_weaker_sandbox_are_refused(walled: Toolbox, toolbox: Toolbox) -> None:
    many = await told(walled, *[bash("sleep 60", background=True)] * 4)
    assert [one.get("is_error", False) for one in many] == [False, False, False, True]


async def test_without_a_sandbox_there_is_no_background(toolbox: Toolbox) -> None:
    [refused] = await told(toolbox, bash("sleep 60", background=True))
    assert refused["is_error"]


async def test_a_turn_that_is_cut_off_leaves_nothing_running(walled: Toolbox) -> None:
    turn = asyncio.ensure_future(told(walled, bash("sleep 98702", background=True), bash("sleep 60")))
    async with asyncio.timeout(patient(30)):
        while not alive("98702"):
            await asyncio.sleep(0.05)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert not alive("98702")


WORKER = """
import asyncio, sys
from pathlib import Path
from perdure.adapters.agents.builtin.tools import Toolbox, run_calls
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.adapters.sandbox.environment import compute_binds
from perdure.adapters.system.home import Home
from perdure.models.config.repository import SandboxGrade
from perdure.models.phases import Step
root = Path(sys.argv[1])
(root / "tree").mkdir(parents=True)
binds = compute_binds(root / "tree", "/usr/bin:/bin", Path.home())
box = Toolbox(root / "tree", sandbox_for(SandboxGrade.FULL, Home(root / "home"), binds), root / "logs", lambda: None)
uses = [{"command": "sleep 98703", "background": True}, {"command": "sleep 98703"}]
calls = [{"type": "tool_use", "id": f"t{n}", "name": "bash", "input": given} for n, given in enumerate(uses)]
asyncio.run(run_calls({"content": calls}, box, Step.IMPLEMENT))
"""


async def test_a_worker_that_is_killed_takes_them_along(walled: Toolbox, tmp_path: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path / "other")])
    try:
        deadline = time.monotonic() + patient(30)
        while len(alive("sleep\x0098703")) < 2 and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert len(alive("sleep\x0098703")) == 2
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    deadline = time.monotonic() + patient(10)
    while alive("98703") and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert not alive("98703")
