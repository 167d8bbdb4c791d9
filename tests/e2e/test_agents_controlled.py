"""Agents that are programs, in whole deliveries: stopped, spoken to, forked, held to a budget; each reply once."""

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
from perdure.client.delivery.rewinding import fork, rewind
from perdure.client.delivery.turns import turns
from perdure.models.errors import BadInput
from perdure.models.ids import delivery_key
from tests import needs
from tests.e2e.test_budget import asked_decision
from tests.engine import BUILT, Engine, finished, git, make_target, sandboxes, until
from tests.stand_in_agent import PYTHON, TWO_FILES, StandIn
from tests.waiting import patient

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


@pytest.mark.long
@pytest.mark.timeout(150)
@pytest.mark.parametrize("agent", AGENTS)
async def test_words_are_in_the_next_request_of_the_same_session(agent: str, tmp_path: Path, ports: int) -> None:
    async with working(tmp_path, agent, ports) as (engine, submitted):
        await submitted.delivery.say("Write tidy notes, please.")
        go(engine)
        assert (await finished(submitted, engine)).status == "completed"
        asked = await check_once(engine, submitted.delivery)
        assert ["tidy notes" in one for one in asked] == [False, False, True, True]
        assert begun(engine) == 2, "its words were a prompt"


@pytest.mark.long
@pytest.mark.timeout(150)
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


@pytest.mark.long
@pytest.mark.timeout(150)
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


@pytest.mark.long
@pytest.mark.timeout(150)
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


ASKS = r"""
import json, os, sys, urllib.error, urllib.request
for model in ("claude-opus-5-5", "claude-sonnet-5-5"):
    body = {"model": model, "max_tokens": 16000,
            "messages": [{"role": "user", "content": "Step: implement\n\nA title, please."}]}
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    try:
        told = urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
    except urllib.error.HTTPError as error:
        told = error.read()
    print(model, told.decode())
"""
PLAY = """
[[line]]
step = "implement"
last = "A title, please"
say = "A title"
[[line]]
step = "implement"
turn = 1
[[line.use]]
tool = "bash"
input.command = '''echo before > before.txt; {python} -IS - <<'ASKS'
{asks}
ASKS'''
[[line]]
step = "implement"
turn = 2
contains = ["may ask claude-sonnet-5-5, not 'claude-opus-5-5'", "A title"]
use = [{{ tool = "bash", input = {{ command = "echo after > after.txt" }} }}]
[[line]]
step = "implement"
turn = 3
say = "Add both"
"""
CONFIG = """version = 1
[setup]
commands = []
[ship]
allow_untested = true
[steps.implement]
agent = "{agent}"
"""


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("agent", ["stand-in", pytest.param("claude-code", marks=pytest.mark.needs("claude"))])
async def test_a_request_that_is_not_covered_stops_the_turn_and_more_budget_does_it_again(
    tmp_path: Path, ports: int, agent: str
) -> None:
    origin = make_target(tmp_path / "calc.git")
    play = PLAY.format(python=PYTHON, asks=ASKS)
    async with Engine.open(
        tmp_path / "engine",
        play,
        ports=ports,
        env={**StandIn(tmp_path).env, "PATH": f"{needs.AGENTS}{os.pathsep}{os.environ['PATH']}"},
        measured=True,
    ) as engine:
        engine.worker()
        submitted = await engine.submit(
            origin, phases=["build", "ship"], config=CONFIG.format(agent=agent), budget_usd=0.1
        )
        asked = await until(lambda: asked_decision(engine))
        assert (asked.gate, asked.limit) == ("budget", "usd")
        assert "of $0.10 are spent, and the agent's next request may cost $0.16" in asked.summary
        assert sandboxes(engine) == []
        assert engine.model_calls() == 1, "neither the title nor the other model was asked"
        spent = SpendLog(engine.home.workspace("calc-sub")).total_spend()
        workspace = Workspace.open(engine.home, "calc-sub")
        assert spent.at_risk_usd == 0.0
        assert spent.usd
        assert not (workspace.path / "before.txt").exists()
        await asyncio.sleep(1)
        assert engine.model_calls() == 1, "it goes on while it waits"

        await engine.handle().execute_update("add_budget", {"of": asked.target, "usd": 1})
        result = await finished(submitted, engine)
        assert result.status == "delivered", result
        assert engine.model_calls() == 4, "the reply that began the turn was not bought again"
        assert result.receipt.replies_paid_twice == 0
        assert result.usage.cost_usd == SpendLog(engine.home.workspace("calc-sub")).total_spend().usd


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_fork_goes_on_with_an_agents_memory_and_another_agent_begins_only_at_the_beginning(
    tmp_path: Path, ports: int
) -> None:
    origin, env = make_target(tmp_path / "calc.git"), StandIn(tmp_path).env
    async with Engine.open(tmp_path / "engine", TWO_FILES, ports=ports, env=env) as engine:
        engine.worker()
        submitted = await engine.submit(origin, phases=["build", "ship"], config=CONFIG.format(agent="stand-in"))
        assert (await finished(submitted, engine)).status == "delivered"
        assert [one.place for one in await turns(submitted.delivery)] == ["implement:1", "implement:2", "implement:3"]

        calls = engine.model_calls()
        sibling = await fork(submitted.delivery, "implement:2", id="with-memory")
        ended = await asyncio.wait_for(sibling.delivery.result(), 120)
        assert ended.status == "delivered", ended.message
        assert engine.model_calls() == calls + 2, "it began anew, without the agent's memory"
        assert engine.rehearsal is not None
        assert "echo one" in str(engine.rehearsal.calls[calls].body), "the conversation until then"

        for attempt in (
            fork(submitted.delivery, "implement:2", agent="built-in"),
            rewind(submitted.delivery, "implement:2", agent="built-in"),
        ):
            with pytest.raises(BadInput, match="in the middle of a conversation of stand-in"):
                await attempt
        calls = engine.model_calls()
        other = await fork(submitted.delivery, "implement:1", agent="built-in", id="built-in")
        whole = await asyncio.wait_for(other.delivery.result(), 120)
        assert whole.status == "delivered", whole.message
        asked = engine.rehearsal.calls[calls].body
        assert "edit" in str(asked["tools"]), "the tools of the built-in agent"
        for id, head in (("with-memory", ended.head_sha), ("built-in", whole.head_sha)):
            files = git(origin, "show", f"{head}:one.txt"), git(origin, "show", f"{head}:two.txt")
            assert files == ("one", "two"), id


SPOKEN_PLAY = TWO_FILES.replace("echo two", "touch started; sleep SECONDS; echo two")
SPOKEN_CONFIG = {**BUILT, "config": BUILT["config"] + '[steps.implement]\nagent = "stand-in"\n'}


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_it_implements_a_step_is_killed_with_its_worker_and_held_and_its_change_is_shipped_once(
    tmp_path: Path, ports: int
) -> None:
    origin, env = make_target(tmp_path / "calc.git"), StandIn(tmp_path, "speaks", spoken=True).env
    async with Engine.open(tmp_path, SPOKEN_PLAY.replace("SECONDS", "2"), ports=ports) as engine:
        engine.worker(**env)
        submitted = await engine.submit(origin, **SPOKEN_CONFIG)
        started = engine.home.tree(delivery_key("calc-sub")) / "started"
        await until(started.exists)
        await submitted.delivery.hold("let me look")
        engine.kill_workers()
        engine.worker(**env)

        async def held() -> bool:
            seen = await submitted.delivery.describe()
            return seen.outcome == "waiting" and not seen.pending

        await until(held, timeout=patient(60))
        await asyncio.sleep(2)
        asked = engine.model_calls()
        await asyncio.sleep(2)
        assert engine.model_calls() == asked, "nothing is asked while it is held"
        await submitted.delivery.resume()
        result = await finished(submitted, engine, 150)
        assert result.status == "delivered", result.message
        assert git(origin, "show", "perdure/calc-sub:one.txt") == "one"
        assert git(origin, "show", "perdure/calc-sub:two.txt") == "two"
        assert result.receipt.worker_deaths >= 1
        assert result.receipt.replies_paid_twice == 0


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_it_is_cancelled_in_the_middle_of_a_tool_and_nothing_of_it_lives(tmp_path: Path, ports: int) -> None:
    origin, env = make_target(tmp_path / "calc.git"), StandIn(tmp_path, "speaks", spoken=True).env
    async with Engine.open(tmp_path, SPOKEN_PLAY.replace("SECONDS", "100"), ports=ports) as engine:
        engine.worker(**env)
        submitted = await engine.submit(origin, **SPOKEN_CONFIG)
        started = engine.home.tree(delivery_key("calc-sub")) / "started"
        await until(started.exists)
        await submitted.delivery.cancel()
        result = await finished(submitted, engine, 90)
        assert result.status == "cancelled"
        await until(lambda: not sandboxes(engine))
        assert git(origin, "branch", "--list", "perdure/*") == ""
