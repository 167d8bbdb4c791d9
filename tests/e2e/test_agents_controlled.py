"""Claude Code and Codex in a delivery that people stop, speak to, cancel and rewind: one session, each reply once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

from perdure.adapters.git.checkpoint import read_turn
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.journal import SpendLog
from perdure.client import Delivery, Submission
from perdure.client.delivery.rewinding import rewind
from perdure.client.delivery.turns import turns
from tests import needs
from tests.engine import Engine, finished, make_target, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(150)]

ID = "calc-sub"
TURNS = 4
WORKS = 2
"""The turn whose command goes on until a test lets it end."""

NOTE = "echo line {0} >> notes.txt; touch begun-{0}; while [ {0} = 2 ] && [ ! -e go ]; do sleep 0.1; done"
STORY = (
    "[[line]]\nstep = 'classify'\nanswer = { kind = 'feature', reason = 'it adds a file' }\n"
    + "".join(
        f"[[line]]\nstep = 'implement'\nturn = {n}\n[[line.use]]\ntool = 'bash'\ninput.command = '{NOTE.format(n)}'\n"
        for n in range(1, TURNS)
    )
    + "[[line]]\nstep = 'implement'\nsay = 'Add notes'\n"
)
AGENTS = [
    pytest.param("claude-code", marks=pytest.mark.needs("claude")),
    pytest.param("codex", marks=pytest.mark.needs("codex")),
]


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{needs.AGENTS}{os.pathsep}{os.environ['PATH']}")


@asynccontextmanager
async def working(
    root: Path, agent: str, ports: int, *, more: str = "", phases: tuple[str, ...] = ("build",), **env: str
) -> AsyncIterator[tuple[Engine, Submission]]:
    """A delivery whose agent is in the middle of its second turn."""
    config = f"version = 1\n[setup]\ncommands = []\n[steps.implement]\nagent = '{agent}'\n{more}"
    origin = make_target(root / "calc.git")
    async with Engine.open(root, STORY, ports=ports, env=env) as engine:
        assert engine.rehearsal is not None
        engine.env |= {"OPENAI_BASE_URL": f"{engine.rehearsal.url}/v1", "OPENAI_API_KEY": "rehearsal"}
        engine.worker()
        submitted = await engine.submit(origin, "Add notes", id=ID, phases=[*phases], config=config)
        if agent == "codex":  # its model's price is not known: whether to go on without one is a gate of its own
            described = await until(lambda: asking(submitted.delivery), 60)
            await submitted.delivery.approve(described)
        await until((engine.home.tree(ID) / f"begun-{WORKS}").exists, 60)
        assert living(engine), "nobody would be missed"
        yield engine, submitted
        assert not living(engine), "a process of the agent is left"
        left = [path.name for path in engine.home.root.rglob("agent-home-*") if not path.name.endswith(".log")]
        assert left == []


async def asking(delivery: Delivery) -> str:
    """The decision it waits for, by name; empty: none."""
    asked = (await delivery.describe()).pending_decision
    return asked.target if asked is not None else ""


def go(engine: Engine) -> None:
    (engine.home.tree(ID) / "go").touch()


def living(engine: Engine) -> list[psutil.Process]:
    """Processes of an agent of this engine and of its commands: those to which a sandbox shows the worktree."""
    shown = "/".join(engine.home.tree(ID).parts[2:])  # without /tmp, which may be a file system of its own
    found = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if shown in Path(f"/proc/{process.pid}/mountinfo").read_text():
                found.append(process)
    return found


def begun(engine: Engine) -> int:
    """Count the processes of the agent, by the files they print to."""
    return len([*engine.home.root.rglob("agent-home-*.log")])


async def checkpoints(delivery: Delivery) -> list[str]:
    return [one.checkpoint for one in await turns(delivery) if one.step == "implement" and one.checkpoint]


async def check_once(engine: Engine, delivery: Delivery, *, paid: int = TURNS) -> list[str]:
    """One session over all turns, each with its checkpoint, and no reply bought twice; the requests' bodies."""
    kept = await checkpoints(delivery)
    assert len(kept) == TURNS
    vault = Workspace.open(engine.home, ID).vault
    assert len({read_turn(vault, one)["agent"]["session"] for one in kept}) == 1, "another session"
    assert engine.rehearsal is not None
    asked = [json.dumps(call.body) for call in engine.rehearsal.calls if call.step == "implement"]
    assert len(asked) == paid
    assert SpendLog(engine.home.workspace(ID)).count_repeats() == (0, 0)
    report = engine.rehearsal.report()
    assert (report["refused"], report["repeated"]) == (0, 0)
    notes = vault.git.text("show", f"{kept[-1]}:tree/notes.txt")
    assert notes.split("\n") == ["line 1", "line 2", "line 3"], "a tool was done twice"
    return asked


@pytest.mark.parametrize("agent", AGENTS)
async def test_words_are_in_the_next_request_of_the_same_session(agent: str, tmp_path: Path, ports: int) -> None:
    async with working(tmp_path, agent, ports) as (engine, submitted):
        await submitted.delivery.say("Write tidy notes, please.")
        go(engine)
        assert (await finished(submitted, engine)).status == "completed"
        asked = await check_once(engine, submitted.delivery)
        assert ["tidy notes" in one for one in asked] == [False, False, True, True]
        assert begun(engine) == 2, "its words were a prompt"


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agent_that_is_held_is_ended_after_a_while_and_goes_on_from_its_session(
    agent: str, tmp_path: Path, ports: int
) -> None:
    async with working(tmp_path, agent, ports, PERDURE_AGENT_IDLE_S="1") as (engine, submitted):
        await submitted.delivery.hold("let me look")
        go(engine)

        async def rests() -> bool:
            return (await submitted.delivery.progress()).waiting is not None and not living(engine)

        await until(rests, 30)
        assert len(await checkpoints(submitted.delivery)) == WORKS
        assert engine.model_calls() == WORKS
        await submitted.delivery.resume()
        assert (await finished(submitted, engine)).status == "completed"
        await check_once(engine, submitted.delivery)
        assert begun(engine) == 2


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_cancel_ends_it_in_the_middle_of_a_turn_and_a_retry_buys_nothing_again(
    agent: str, tmp_path: Path, ports: int
) -> None:
    async with working(tmp_path, agent, ports) as (engine, submitted):
        await submitted.delivery.cancel()
        result = await finished(submitted, engine, timeout=30)
        assert result.status == "cancelled"
        assert not living(engine)
        vault = Workspace.open(engine.home, ID).vault
        assert vault.git.text("show", f"{result.checkpoint}:tree/notes.txt") == "line 1", "not the last turn's end"
        (engine.home.tree(ID) / f"begun-{WORKS}").unlink()
        await submitted.delivery.retry()
        await until((engine.home.tree(ID) / f"begun-{WORKS}").exists, 20)
        go(engine)
        assert (await finished(submitted, engine)).status == "completed"
        await check_once(engine, submitted.delivery)


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_rewind_takes_files_and_session_back_together_and_pays_no_earlier_turn(
    agent: str, tmp_path: Path, ports: int
) -> None:
    more = "[ship]\nallow_untested = true\n[gates]\nbefore = ['pull_request']\n"
    async with working(tmp_path, agent, ports, more=more, phases=("build", "ship")) as (engine, submitted):
        delivery = submitted.delivery

        async def at_the_gate(run: str = "") -> str:
            now = (await delivery.describe()).run_id
            return now if now != run and await asking(delivery) else ""

        go(engine)
        run = await until(lambda: at_the_gate(), 60)
        first, calls = await checkpoints(delivery), begun(engine)
        await rewind(delivery, f"implement:{WORKS}", say="Write tidy notes, please.")
        tree = engine.home.tree(ID)  # without the files of later turns
        await until(lambda: (tree / f"begun-{WORKS}").exists() and not (tree / "begun-3").exists(), 60)
        go(engine)
        await until(lambda: at_the_gate(run), 60)
        assert begun(engine) == calls + 1
        anew = await checkpoints(delivery)
        assert anew[: WORKS - 1] == first[: WORKS - 1]
        asked = await check_once(engine, delivery, paid=TURNS + TURNS + 1 - WORKS)
        again = asked[TURNS]
        assert "tidy notes" in again
        assert "begun-1" in again, "its memory is gone"
        assert "begun-2" not in again, "it remembers what was taken back"
        await delivery.cancel()
        await asyncio.wait_for(finished(submitted, engine), 60)
