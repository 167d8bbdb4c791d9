"""Deliveries through the command line alone: the real executable, server, worker, sandbox, git and HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.cli.conftest import Cli, Ran
from tests.lab import HAPPY, pulls

SLOW = """
title = "takes its time"
[[line]]
step = "classify"
contains = ["Take your time"]
answer = { kind = "chore", reason = "slow" }
[[line]]
step = "plan"
contains = ["Take your time"]
[line.answer]
title = "Sleep"
problem = "p"
solution = "s"
relevant_files = ["calc.py"]
tasks = [{ title = "t", details = "d", files = ["calc.py"] }]
validation = ["v"]
[[line]]
step = "implement"
contains = ["Take your time"]
use = [{ tool = "bash", input = { command = "sleep 100" } }]
"""

SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
async def perdure(cli: Cli) -> AsyncIterator[Cli]:
    """With a rehearsal as the model; whatever the commands have started is ended by `perdure down`."""
    screenplay = SLOW + textwrap.dedent(HAPPY).split("\n", 2)[2]
    async with Rehearsal(Screenplay.parse(screenplay)) as rehearsal:
        cli.env.update(
            ANTHROPIC_BASE_URL=rehearsal.url,
            ANTHROPIC_API_KEY="rehearsal",
            PERDURE_SQLITE_SYNCHRONOUS="1",
            PERDURE_PORTS_BACKEND="23100-23114",
            PERDURE_PORTS_FRONTEND="23200-23214",
        )
        try:
            yield cli
        finally:
            ended = await asyncio.to_thread(cli, "down")
            assert ended.code == 0, ended.err


async def done(cli: Cli, *args: str, code: int = 0) -> str:
    """Standard output of a command that ends with `code`. In a thread, for the rehearsal answers from this one."""
    ran: Ran = await asyncio.to_thread(cli, *args)
    assert ran.code == code, (args, ran)
    return ran.out


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_one_command_delivers_and_the_others_show_it(perdure: Cli, origin: Path) -> None:
    (perdure.cwd / "notes.txt").write_text("not committed")

    told = await done(perdure, "deliver", "Add sub", "--id", "calc-sub")
    assert re.search(r"starting Temporal at .+\nworker started", told)
    assert f"→ origin {origin} (main at " in told
    assert "not included  1 uncommitted file" in told
    assert "perdure.toml on main · sandbox bubblewrap · budget $5.00" in told
    marks = [line.split()[:2] for line in told.splitlines() if line.startswith(("✓", "✗", "!"))]
    assert marks == [["✓", name] for name in ("prepare", "plan", "build", "test", "review", "ship")]
    assert f"Delivered  {origin}#pull/1" in told
    assert "0 replies paid twice" in told
    assert "\x1b" not in told, "no colours where there is no terminal"
    assert len(pulls(origin)) == 1

    again = json.loads(await done(perdure, "deliver", "Add sub", "--id", "calc-sub", "--json"))
    assert (again["status"], again["pull_request"]["number"]) == ("delivered", 1)
    assert len(pulls(origin)) == 1
    assert json.loads(await done(perdure, "show", "calc", "--json")) == again
    assert [one["delivery_id"] for one in json.loads(await done(perdure, "list", "--json"))] == ["calc-sub"]
    assert "calc-sub  delivered" in await done(perdure, "list")
    assert "Delivered" in await done(perdure, "watch", "@last")
    assert "implement  turn 2" in await done(perdure, "logs")
    assert "+def sub(a, b):" in await done(perdure, "diff", "calc-sub")
    assert "#1  open  feat: add sub" in await done(perdure, "pulls")
    assert f"git fetch {origin} refs/pull/1/head && git checkout FETCH_HEAD" in await done(perdure, "pulls", "1")
    assert "calc-sub" in await done(perdure, "temporal", "workflow", "list")
    assert (await done(perdure, "ui", "--print")).startswith("http://127.0.0.1:")
    assert "is delivered" in (await asyncio.to_thread(perdure, "retry", "calc-sub")).err

    coloured, plain = await on_a_terminal(perdure, "show"), await on_a_terminal(perdure, "show", NO_COLOR="1")
    assert "\x1b[32m✓" in coloured
    assert SGR.sub("", coloured) == plain == await done(perdure, "show")


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_ctrl_c_leaves_cancel_stops_and_retry_goes_on(perdure: Cli) -> None:
    process = perdure.start("deliver", "Take your time", "--id", "slow")
    try:
        before = await asyncio.to_thread(read_until, process, "✓ plan")
        await until_running(perdure, "sleep 100")
        process.send_signal(signal.SIGINT)
        after, _ = await asyncio.to_thread(process.communicate, timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, before + after
    assert "perdure watch slow" in after
    assert "perdure cancel slow" in after

    assert "▸ build" in await done(perdure, "show", "slow")
    cancelled = await done(perdure, "cancel", "slow", "--now")
    assert re.search(r"Cancelled  .*checkpoint [0-9a-f]{7} kept", cancelled)
    assert "Cancelled" in await done(perdure, "watch", "slow", code=5)
    assert "has ended" in (await asyncio.to_thread(perdure, "cancel", "slow")).err

    refused = await asyncio.to_thread(perdure, "deliver", "Take your time", "--id", "slow")
    assert (refused.code, "perdure retry slow" in refused.err) == (2, True)
    assert "goes on from its last checkpoint" in await done(perdure, "retry", "slow", "--detach")
    await until_running(perdure, "sleep 100")
    result = json.loads(await done(perdure, "cancel", "slow", "--now", "--json"))
    assert [step["step"] for step in result["steps"]].count("plan") == 1, "retry repeats nothing that was done"


async def until_running(cli: Cli, doing: str) -> None:
    """Wait until the delivery's worker is inside a command."""
    for _ in range(60):
        listed = await done(cli, "temporal", "workflow", "describe", "-w", "slow", "-o", "json")
        if doing in listed or '"implement"' in listed:
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"{doing} never ran")


async def on_a_terminal(cli: Cli, *args: str, **env: str) -> str:
    ran: Ran = await asyncio.to_thread(cli.on_a_terminal, *args, TERM="xterm-256color", **env)
    assert ran.code == 0, ran
    return ran.out


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    assert process.stderr is not None
    raise AssertionError(seen + process.stderr.read())
