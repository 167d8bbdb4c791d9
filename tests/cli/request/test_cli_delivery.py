"""Deliveries and single phases by the command line alone: real executable, server, worker, sandbox, git and HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.cli.conftest import Cli, Ran
from tests.engine import FIXES, git, heads, pulls

pytestmark = pytest.mark.story

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


together = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cli]:
    """One home for all of them, with a rehearsal as the model: to start server and worker costs more than a delivery.

    Whatever the commands have started is ended by `perdure down`.
    """
    root = tmp_path_factory.mktemp("world")
    screenplay = SLOW + textwrap.dedent(FIXES).split("\n", 2)[2]
    async with Rehearsal(Screenplay.parse(screenplay)) as rehearsal:
        env = {
            "ANTHROPIC_BASE_URL": rehearsal.url,
            "ANTHROPIC_API_KEY": "rehearsal",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # this environment's pytest in sight
            "PERDURE_SQLITE_SYNCHRONOUS": "1",
            "PERDURE_PORTS_BACKEND": "23100-23114",
            "PERDURE_PORTS_FRONTEND": "23200-23214",
        }
        cli = Cli(root / "home", root, env)
        try:
            yield cli
        finally:
            ended = await asyncio.to_thread(cli, "down")
            assert ended.code == 0, ended.err


@pytest.fixture
def perdure(world: Cli, cli: Cli) -> Cli:
    """There, in a checkout of its own."""
    return Cli(world.home, cli.cwd, world.env)


@pytest.fixture
def topic(origin: Path) -> str:
    """Ada's branch: add is broken on it, and there is a sub without a docstring."""
    work = origin.with_name(f"{origin.name}-work")
    git(work, "switch", "-qc", "topic")
    (work / "calc.py").write_text("def add(a, b):\n    return a - b\n\n\ndef sub(a, b):\n    return a - b\n")
    git(work, "commit", "-qam", "Subtract numbers")
    git(work, "push", "-q", str(origin), "topic")
    return heads(origin)["topic"]


async def done(cli: Cli, *args: str, code: int = 0) -> str:
    """Standard output of a command that ends with `code`. In a thread, for the rehearsal answers from this one."""
    ran: Ran = await asyncio.to_thread(cli, *args)
    assert ran.code == code, (args, ran)
    return ran.out


async def ran(cli: Cli, *args: str, code: int = 0) -> Ran:
    """A command that ends with `code`. In a thread, for the rehearsal answers from this one."""
    done: Ran = await asyncio.to_thread(cli, "run", *args)
    assert done.code == code, (args, done)
    return done


@pytest.mark.long
@pytest.mark.timeout(180)
@together
async def test_one_command_delivers_and_the_others_show_it(perdure: Cli, origin: Path) -> None:
    (perdure.cwd / "notes.txt").write_text("not committed")

    told = await done(perdure, "deliver", "Add sub", "--id", "calc-sub")
    assert f"→ origin {origin} (main at " in told
    assert "not included  1 uncommitted file" in told
    assert "perdure.toml on main · sandbox bubblewrap · budget $5.00" in told
    marks = [" ".join(line.split()[:2]) for line in told.splitlines() if line.startswith(("✓", "✗", "!"))]
    assert marks[:5] == ["✓ prepare", "✓ plan", "✓ build", "✗ test", "✓ test"]
    assert marks[5:] == ["! review", "✓ review", "✓ review", "✓ ship"]
    assert f"Delivered  {origin}#pull/1" in told
    assert "0 replies paid twice" in told
    assert "\x1b" not in told, "no colours where there is no terminal"
    assert len(pulls(origin)) == 1

    again = json.loads(await done(perdure, "deliver", "Add sub", "--id", "calc-sub", "--json"))
    assert (again["status"], again["pull_request"]["number"]) == ("delivered", 1)
    assert len(pulls(origin)) == 1
    assert json.loads(await done(perdure, "show", "calc-su", "--json")) == again
    assert "calc-sub" in [one["delivery_id"] for one in json.loads(await done(perdure, "list", "--json"))]
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
@together
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


@pytest.mark.long
@pytest.mark.timeout(300)
@together
async def test_each_phase_works_alone_on_somebodys_branch(
    perdure: Cli, origin: Path, topic: str, tmp_path: Path
) -> None:
    by_test = tmp_path / "pytest.toml"
    command = f"{sys.executable} -m pytest -q"
    by_test.write_text(f"version = 1\n[setup]\ncommands = []\n[[test]]\nname = 'unit'\ncommand = '{command}'\n")
    red = await ran(perdure, "test", "--branch", "topic", "--config", str(by_test), code=1)
    assert f"(topic at {topic[:7]}, against main at " in red.out
    assert f"tests of {topic[:7]}, compared with main\n" in red.out
    assert "\n✗ unit: failed, exit code 1, new, 1 failed, " in red.out
    assert "\n  ✗ tests/test_calc.py::AddTest::test_adds\n" in red.out
    assert "AssertionError: -1 != 5" in red.out
    assert "-m pytest tests/test_calc.py::AddTest::test_adds\n" in red.out, "to repeat it"
    assert "\nNot delivered  tests are red: 1 of 1 fails: test_adds\n" in red.out

    planned = await ran(perdure, "plan", "--request", "Add sub")
    assert planned.out.startswith("# Add sub\n\n## Problem\n"), "nothing but the plan"
    assert "✓ plan " in planned.err
    plan = tmp_path / "plan.md"
    plan.write_text(planned.out)

    review = ("review", "--branch", "topic", "--plan", str(plan))
    reviewed = await ran(perdure, *review, code=1)
    assert "\nreview: 1 blocker, 1 tech debt\n" in reviewed.out
    assert "\n✗ blocker, reviewer: sub has no docstring  calc.py:5\n" in reviewed.out
    assert reviewed.out.index("✗ blocker") < reviewed.out.index("! tech debt")
    assert heads(origin)["topic"] == topic, "nothing was asked to be changed"

    mended = json.loads((await ran(perdure, *review, "--fix", "--json")).out)
    assert (mended["status"], mended["message"]) == ("completed", "2 commits pushed to topic")
    steps = [step["step"] for step in mended["steps"]]
    assert steps.index("fix_review") < len(steps) - 1 - steps[::-1].index("run_tests"), "each fix is tested again"
    assert mended["found"]["report"]["commit"] == mended["head_sha"] == heads(origin)["topic"]
    assert [issue["severity"] for issue in mended["found"]["review"]["issues"]] == ["tech_debt"]
    assert git(origin, "rev-list", "--count", f"{topic}..topic") == "2"
    assert pulls(origin) == []

    shipped = await ran(perdure, "ship", "--branch", "topic", "--request", "Subtract numbers")
    assert f"\nDraft  {origin}#pull/1" in shipped.out
    assert [(pull["head"], pull["title"]) for pull in pulls(origin)] == [("topic", "chore: subtract numbers")]

    untested = tmp_path / "untested.toml"
    untested.write_text("version = 1\ntest = []\n[setup]\ncommands = []\n")
    nothing = await ran(perdure, "test", "--branch", "topic", "--config", str(untested), code=1)
    assert nothing.err.startswith("error: nothing was tested: no test command is known\n")


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
