"""Commands that an agent runs, in front and in the background: bounded, and nothing of them outlives its calls."""

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
from replies import use
from tool_calls import called, mistake, ok, run

from perdure.adapters.agents.builtin.tools import Toolbox, run_calls
from perdure.adapters.sandbox.base import SandboxCommand, SandboxResult
from perdure.adapters.sandbox.environment import Binds
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.models.config.repository import SandboxGrade
from perdure.models.errors import SandboxUnavailable, Superseded
from perdure.models.phases import Step
from tests.homes import fresh_home
from tests.waiting import patient


@pytest.mark.timeout(60)
async def test_the_exit_code_always_comes_first(toolbox: Toolbox) -> None:
    assert await ok(toolbox, "bash", command="echo hi; echo oops >&2") == "exit code 0\nhi\noops"
    assert await ok(toolbox, "bash", command="exit 3") == "exit code 3\n(no output)"


@pytest.mark.timeout(60)
async def test_commands_start_in_the_worktree_and_each_in_a_fresh_shell(toolbox: Toolbox, worktree: Path) -> None:
    assert str(worktree) in await ok(toolbox, "bash", command="pwd; cd src; X=1")
    assert await ok(toolbox, "bash", command="ls; echo [$X]") == "exit code 0\nsrc\n[]"


@pytest.mark.timeout(60)
async def test_a_command_that_does_not_end_is_killed_and_said_to_be(toolbox: Toolbox) -> None:
    text = await ok(toolbox, "bash", command="echo started; sleep 30", timeout=1)
    assert text == "killed after 1 s: it did not end in time; still running: sleep 30\nstarted"


@pytest.mark.timeout(60)
async def test_a_time_out_names_what_was_still_running_and_nothing_of_it_lives_on(walled: Toolbox) -> None:
    command = "(exec -a 'a server' sleep 4711) & (sleep 4712 | cat) & wait"
    text = await ok(walled, "bash", command=command, timeout=1)
    said = text.splitlines()[0].partition("; still running: ")[2].split(", ")
    assert sorted(said) == ["a server 4711", "cat", "sleep 4712"]
    assert not [line for line in processes() if "4711" in line or "4712" in line]
    many = await ok(walled, "bash", command="for n in $(seq 30); do sleep 4713 & done; wait", timeout=1)
    assert many.splitlines()[0].endswith(", 22 more")


def processes() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                found.append((entry / "cmdline").read_text())
    return found


@pytest.mark.timeout(60)
async def test_long_output_is_shown_head_and_tail_and_kept_whole(toolbox: Toolbox) -> None:
    (result,) = await run(toolbox, called("bash", {"command": "seq 1 20000"}, "toolu_../x"))
    text = result["content"]
    assert len(text) < 31_000
    assert text.startswith("exit code 0\n1\n2\n")
    assert text.endswith("\n20000")
    assert "left out" in text
    (log,) = toolbox.log_dir.iterdir()
    assert log.name == "toolu____x.log"
    assert len(log.read_text().splitlines()) == 20000


@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", ["", "  \n", "echo \0", "x" * 200_000])
async def test_a_command_that_cannot_be_started_is_the_models_mistake(toolbox: Toolbox, command: str) -> None:
    await mistake(toolbox, "bash", command=command)


@pytest.mark.timeout(60)
async def test_a_missing_command_gets_a_hint(toolbox: Toolbox) -> None:
    toolbox.explain_missing = lambda output, code: (
        "`uv` is on the host" if code == 127 and "not found" in output else None
    )
    text = await ok(toolbox, "bash", command="surely-not-there")
    assert text.startswith("exit code 127\n")
    assert text.endswith("`uv` is on the host")
    assert "on the host" not in await ok(toolbox, "bash", command="exit 1")


@pytest.mark.timeout(60)
async def test_a_failing_sandbox_is_not_a_failing_command(toolbox: Toolbox) -> None:
    class Broken:
        grade = SandboxGrade.FULL

        async def run_command(self, command: SandboxCommand) -> SandboxResult:
            return SandboxResult(None, 0.0, failure="bwrap: no permission")

    toolbox.sandbox = Broken()
    with pytest.raises(SandboxUnavailable, match="no permission"):
        await run(toolbox, called("bash", {"command": "true"}))


@pytest.mark.timeout(60)
async def test_in_the_sandbox_writing_steps_write_and_reading_steps_cannot(walled: Toolbox, worktree: Path) -> None:
    assert "exit code 0" in await ok(walled, "bash", command="echo made > made.txt")
    assert (worktree / "made.txt").read_text() == "made\n"
    for step in (Step.PLAN, Step.REVIEW):
        (result,) = await run(walled, called("bash", {"command": "cat made.txt; echo no > no.txt"}), step=step)
        assert "made\n" in result["content"]
        assert "Read-only file system" in result["content"]
    assert not (worktree / "no.txt").exists()


@pytest.mark.timeout(60)
async def test_a_command_over_its_limit_is_a_result_to_read_and_the_next_one_runs(
    walled: Toolbox, tmp_path: Path, binds: Binds
) -> None:
    caps = ResourceCaps(memory=200 << 20, processes=200, disk=1 << 30)
    walled.sandbox = sandbox_for(SandboxGrade.FULL, fresh_home(tmp_path / "home"), binds, caps)
    hungry = "python3 -c 'x = bytearray(400 << 20); import time; time.sleep(30)'"
    assert (await ok(walled, "bash", command=hungry)).startswith("ended: over its memory limit of 0.2 GB, peak 0.")
    assert await ok(walled, "bash", command="echo on") == "exit code 0\non"


@pytest.mark.timeout(60)
async def test_in_the_sandbox_there_is_no_network_and_none_of_our_environment(
    walled: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-for-tools")
    text = await ok(walled, "bash", command="cat /proc/*/environ | tr '\\0' '\\n'; cat < /dev/tcp/192.0.2.1/80")
    assert "sk-not-for-tools" not in text
    assert "unreachable" in text


@pytest.mark.timeout(60)
async def test_the_start_of_a_command_is_announced_while_it_runs(toolbox: Toolbox, worktree: Path) -> None:
    seen: list[bool] = []
    toolbox.on_spawn = lambda: seen.append((worktree / "ended").exists())
    await ok(toolbox, "bash", command="sleep 0.5; touch ended")
    assert seen == [False]
    await ok(toolbox, "bash", command="true")
    assert len(seen) == 2, "a quick command is announced as well"


def children() -> set[str]:
    """Of this process; one that other tests fork their workers from may be among them."""
    me = os.getpid()
    return set(Path(f"/proc/{me}/task/{me}/children").read_text().split())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("again", [False, True])
async def test_a_cancelled_command_is_dead_when_the_cancellation_arrives(walled: Toolbox, again: bool) -> None:
    before = children()
    started = asyncio.Event()
    walled.on_spawn = started.set
    task = asyncio.create_task(run(walled, called("bash", {"command": "echo $$ > pid; sleep 30; touch ended"})))
    await started.wait()
    task.cancel()
    if again:
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() <= before


@pytest.mark.timeout(60)
async def test_a_command_cancelled_before_its_start_was_announced_is_dead_as_well(walled: Toolbox) -> None:
    before = children()
    announced: list[str] = []
    walled.on_spawn = lambda: announced.append("started")
    task = asyncio.create_task(run(walled, called("bash", {"command": "sleep 30"})))
    while not list(walled.log_dir.glob("*.log")):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not announced
    assert children() <= before


@pytest.mark.timeout(60)
async def test_a_tool_of_an_attempt_that_was_taken_over_does_not_run(toolbox: Toolbox, worktree: Path) -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise Superseded("a newer attempt works here")

    toolbox.check = check
    with pytest.raises(Superseded):
        await run(
            toolbox,
            called("write", {"path": "one", "content": "1"}, "t1"),
            called("write", {"path": "two", "content": "2"}, "t2"),
            called("write", {"path": "three", "content": "3"}, "t3"),
        )
    assert (worktree / "two").exists()
    assert not (worktree / "three").exists()


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
            if (
                entry.name.isdecimal()
                and int(entry.name) != os.getpid()
                and word.encode() in (entry / "cmdline").read_bytes()
            ):
                found.append(int(entry.name))
    return found


@pytest.mark.timeout(120)
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


@pytest.mark.timeout(120)
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


@pytest.mark.timeout(120)
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


@pytest.mark.timeout(120)
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


@pytest.mark.timeout(120)
async def test_too_many_and_those_in_a_weaker_sandbox_are_refused(walled: Toolbox, toolbox: Toolbox) -> None:
    many = await told(walled, *[bash("sleep 60", background=True)] * 4)
    assert [one.get("is_error", False) for one in many] == [False, False, False, True]


@pytest.mark.timeout(120)
async def test_without_a_sandbox_there_is_no_background(toolbox: Toolbox) -> None:
    [refused] = await told(toolbox, bash("sleep 60", background=True))
    assert refused["is_error"]


@pytest.mark.timeout(120)
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


@pytest.mark.timeout(120)
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
