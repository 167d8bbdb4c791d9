from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
from tool_calls import called, mistake, ok, run

from perdure.adapters.agents.builtin.tools import Toolbox
from perdure.adapters.sandbox.base import SandboxCommand, SandboxResult
from perdure.adapters.sandbox.environment import Binds
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.models.config.repository import SandboxGrade
from perdure.models.errors import SandboxUnavailable, Superseded
from perdure.models.phases import Step
from tests.homes import fresh_home

pytestmark = pytest.mark.timeout(60)


async def test_the_exit_code_always_comes_first(toolbox: Toolbox) -> None:
    assert await ok(toolbox, "bash", command="echo hi; echo oops >&2") == "exit code 0\nhi\noops"
    assert await ok(toolbox, "bash", command="exit 3") == "exit code 3\n(no output)"


async def test_commands_start_in_the_worktree_and_each_in_a_fresh_shell(toolbox: Toolbox, worktree: Path) -> None:
    assert str(worktree) in await ok(toolbox, "bash", command="pwd; cd src; X=1")
    assert await ok(toolbox, "bash", command="ls; echo [$X]") == "exit code 0\nsrc\n[]"


async def test_a_command_that_does_not_end_is_killed_and_said_to_be(toolbox: Toolbox) -> None:
    text = await ok(toolbox, "bash", command="echo started; sleep 30", timeout=1)
    assert text == "killed after 1 s: it did not end in time; still running: sleep 30\nstarted"


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


@pytest.mark.parametrize("command", ["", "  \n", "echo \0", "x" * 200_000])
async def test_a_command_that_cannot_be_started_is_the_models_mistake(toolbox: Toolbox, command: str) -> None:
    await mistake(toolbox, "bash", command=command)


async def test_a_missing_command_gets_a_hint(toolbox: Toolbox) -> None:
    toolbox.explain_missing = lambda output, code: (
        "`uv` is on the host" if code == 127 and "not found" in output else None
    )
    text = await ok(toolbox, "bash", command="surely-not-there")
    assert text.startswith("exit code 127\n")
    assert text.endswith("`uv` is on the host")
    assert "on the host" not in await ok(toolbox, "bash", command="exit 1")


async def test_a_failing_sandbox_is_not_a_failing_command(toolbox: Toolbox) -> None:
    class Broken:
        grade = SandboxGrade.FULL

        async def run_command(self, command: SandboxCommand) -> SandboxResult:
            return SandboxResult(None, 0.0, failure="bwrap: no permission")

    toolbox.sandbox = Broken()
    with pytest.raises(SandboxUnavailable, match="no permission"):
        await run(toolbox, called("bash", {"command": "true"}))


async def test_in_the_sandbox_writing_steps_write_and_reading_steps_cannot(walled: Toolbox, worktree: Path) -> None:
    assert "exit code 0" in await ok(walled, "bash", command="echo made > made.txt")
    assert (worktree / "made.txt").read_text() == "made\n"
    for step in (Step.PLAN, Step.REVIEW):
        (result,) = await run(walled, called("bash", {"command": "cat made.txt; echo no > no.txt"}), step=step)
        assert "made\n" in result["content"]
        assert "Read-only file system" in result["content"]
    assert not (worktree / "no.txt").exists()


async def test_a_command_over_its_limit_is_a_result_to_read_and_the_next_one_runs(
    walled: Toolbox, tmp_path: Path, binds: Binds
) -> None:
    caps = ResourceCaps(memory=200 << 20, processes=200, disk=1 << 30)
    walled.sandbox = sandbox_for(SandboxGrade.FULL, fresh_home(tmp_path / "home"), binds, caps)
    hungry = "python3 -c 'x = bytearray(400 << 20); import time; time.sleep(30)'"
    assert (await ok(walled, "bash", command=hungry)).startswith("ended: over its memory limit of 0.2 GB, peak 0.")
    assert await ok(walled, "bash", command="echo on") == "exit code 0\non"


async def test_in_the_sandbox_there_is_no_network_and_none_of_our_environment(
    walled: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-for-tools")
    text = await ok(walled, "bash", command="cat /proc/*/environ | tr '\\0' '\\n'; cat < /dev/tcp/192.0.2.1/80")
    assert "sk-not-for-tools" not in text
    assert "unreachable" in text


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
