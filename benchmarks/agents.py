"""Agents killed at a random moment of one scripted task: bare Claude Code and Codex with their own resume, and ours.

`make bench-agents`: N kills each (SIGKILL, of the agent's own process or of Perdure's worker), real programs, the
rehearsal as the model. Whoever runs a bare agent has to see that it died, know its session and type the resume.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import tempfile
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.bare_agents import BARE, MODEL, WITHIN_S, Bare, start, whole
from perdure.adapters.agents.prices import usage_cost
from perdure.adapters.worker.journal import SpendLog
from perdure.client import Submission
from perdure.local.places import read_running_supervisor
from perdure.models.budget.ledger import Usage
from perdure.models.config.repository import BUILT_IN
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests import needs
from tests.engine import Engine, finished, git, make_target, until

N = int(os.environ.get("N", "20"))
ONLY = os.environ.get("ONLY", "")
"""Parts of rows' names, `bare,Perdure codex`: the others are left out."""

SEED = int(os.environ.get("SEED", "20261123"))
TURNS = 5
TOOL_S = 0.6
TASK_S = 6.0
"""About as long as one task takes undisturbed: the kill comes in the middle half of it."""

SETTLE_S = 1.5
"""After a kill, before anybody looks: an orphan has done by then what it was doing."""

LOG = "log.txt"
INSIDE = (BUILT_IN, "claude-code", "codex")
CONFIG = "version = 1\n[setup]\ncommands = []\n"
PROMPT = "Step: implement\n\nWrite the log.\n"

PLAY = (
    "title = 'a log'\n"
    + "".join(
        f"""
[[line]]
step = "implement"
turn = {turn}
seconds = 0.3
[[line.use]]
tool = "bash"
input.command = "echo begin {turn} >> {LOG}; sleep {TOOL_S}; echo end {turn} >> {LOG}"
"""
        for turn in range(1, TURNS + 1)
    )
    + "[[line]]\nstep = 'implement'\nsay = 'Done.'\n"
)


@dataclass
class Counts:
    """Of so many kills: in how many of them a process of the agent lived on, a tool was done twice, the tree that was
    gone on from was none between two turns, a person had to act; replies and dollars
    over all of them. `missing_usd`: paid, and in no account of the agent's."""

    kills: int = 0
    orphans: int = 0
    tools_twice: int = 0
    torn_trees: int = 0
    human_actions: int = 0
    replies: int = 0
    replies_paid_twice: int = 0
    paid_usd: float = 0.0
    missing_usd: float = 0.0

    def add(self, log: str, replies: int, again: int, spent: float, told: float) -> None:
        lines = Counter(log.split("\n")[:-1])
        self.kills += 1
        self.tools_twice += any(count > 1 for count in lines.values())
        self.replies += replies
        self.replies_paid_twice += again
        self.paid_usd += spent
        self.missing_usd += max(0.0, spent - told)


def torn(log: str) -> bool:
    """True for a log that no turn has ended with."""
    lines = log.split("\n")[:-1]
    pairs = [f"{word} {turn}" for turn in range(1, TURNS + 1) for word in ("begin", "end")]
    return lines != pairs[: len(lines)] or len(lines) % 2 == 1


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def paid(twin: Rehearsal, *, writes: bool = True) -> float:
    """Dollars of every reply that was begun, by our table for MODEL, which the rehearsal stands for. `writes`: what is
    written to the cache has a price of its own; on OpenAI's wires it is input like any other."""
    total = 0.0
    for call in twin.calls:
        if call.usage:
            fresh, written = call.usage["input_tokens"], call.usage["cache_creation_input_tokens"]
            usage = Usage(
                input_tokens=fresh if writes else fresh + written,
                cache_read_tokens=call.usage["cache_read_input_tokens"],
                cache_write_tokens=written if writes else 0,
                output_tokens=call.usage["output_tokens"],
            )
            total += usage_cost(MODEL, usage) or 0.0
    return total


def again(twin: Rehearsal) -> int:
    """Replies beyond the first for a turn that had been answered whole."""
    answered = Counter(call.turn for call in twin.calls if call.outcome == "reply" and not call.dropped)
    return sum(count - 1 for count in answered.values())


def _living(tree: Path) -> list[psutil.Process]:
    """Processes that work in this tree, or in a sandbox that shows it."""
    shown, found = "/".join(tree.parts[2:]), []
    for process in psutil.process_iter(["pid", "name", "cmdline"]):
        with suppress(OSError, psutil.Error):
            inside = process.cwd() == str(tree) or shown in Path(f"/proc/{process.pid}/mountinfo").read_text()
            if inside and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


async def undisturbed(agent: Bare, root: Path) -> tuple[float, float]:
    """Dollars paid for one task that nobody kills, and those its result tells: the same, or nothing can be compared."""
    tree = root / "tree"
    tree.mkdir(parents=True)
    async with Rehearsal(Screenplay.parse(PLAY)) as twin:
        process = await start(agent.begin(twin.url, str(uuid.uuid4())), PROMPT, tree, root / "home")
        told = agent.accounted(await whole(process))
        return paid(twin, writes=agent.writes), told


async def bare(agent: Bare, root: Path, rng: random.Random, counts: Counts) -> None:
    """One task, killed once and resumed once."""
    tree, home = root / "tree", root / "home"
    tree.mkdir(parents=True)
    async with Rehearsal(Screenplay.parse(PLAY)) as twin:
        process = await start(
            agent.begin(twin.url, str(uuid.UUID(int=rng.getrandbits(128), version=4))), PROMPT, tree, home
        )
        try:
            await until(lambda: bool(twin.calls), timeout=WITHIN_S)
            await asyncio.sleep(rng.uniform(0.1 * TASK_S, 0.7 * TASK_S))
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
            await asyncio.sleep(0.1)
            counts.orphans += bool(_living(tree))
            await asyncio.sleep(SETTLE_S)
            counts.torn_trees += torn(read(tree / LOG))
            counts.human_actions += 1
            session = agent.session(home)
            words = agent.resumed(twin.url, session) if session else agent.begin(twin.url, str(uuid.uuid4()))
            process = await start(words, "Go on." if session else PROMPT, tree, home)
            results = await whole(process)
        finally:
            for left in _living(tree):
                left.kill()
        spent = paid(twin, writes=agent.writes)
        counts.add(read(tree / LOG), len(twin.calls), again(twin), spent, agent.accounted(results))


async def _asking(submitted: Submission) -> str:
    asked = (await submitted.delivery.describe()).pending_decision
    return asked.target if asked is not None else ""


async def ours(engine: Engine, origin: Path, number: int, agent: str, rng: random.Random, counts: Counts) -> None:
    """One delivery whose worker is killed once."""
    assert engine.rehearsal is not None
    del engine.rehearsal.calls[:]
    id = f"calc-{number}"
    config = f"{CONFIG}[steps.implement]\nagent = '{agent}'\n"
    submitted = await engine.submit(origin, id=id, phases=["build"], config=config)
    await until(lambda: bool(engine.rehearsal and engine.rehearsal.calls), timeout=WITHIN_S)
    if agent == "codex":  # the price of its model is not known: a person is asked once, killed or not
        await submitted.delivery.approve(await until(lambda: _asking(submitted), timeout=WITHIN_S))
    await asyncio.sleep(rng.uniform(0.1 * TASK_S, 0.7 * TASK_S))
    record = read_running_supervisor(engine.home)
    assert record is not None
    assert record.worker_pid is not None
    tree = engine.home.tree(id)
    before = _living(tree)
    os.kill(record.worker_pid, signal.SIGKILL)
    await asyncio.sleep(0.1)
    lived = [process for process in before if process in _living(tree)]  # not those of the worker that follows
    if lived:
        print(f"lived on: {[process.info for process in lived]}", flush=True)
    counts.orphans += bool(lived)
    result = await finished(submitted, engine)
    counts.human_actions += result.status != "completed"
    vault = next(engine.home.vaults.glob("*.git"))
    commit = next(step.commit for step in result.steps if step.commit)
    log = git(vault, "show", f"{commit}:{LOG}") + "\n"
    counts.torn_trees += torn(log)
    told = (result.usage.cost_usd or 0.0) + result.usage.at_risk_usd  # a reply that broke off: the most it can cost
    if result.usage.cost_usd is None:  # its tokens, at the price of the model that the rehearsal stands for
        usage = Usage.model_validate(result.usage.model_dump(include=set(Usage.model_fields) - {"cost_usd"}))
        risk = Usage(output_tokens=SpendLog(engine.home.workspace(id)).total_spend().at_risk_tokens)
        told = (usage_cost(MODEL, usage) or 0.0) + (usage_cost(MODEL, risk) or 0.0)
    twice = max(result.receipt.replies_paid_twice, again(engine.rehearsal))
    counts.add(log, len(engine.rehearsal.calls), twice, paid(engine.rehearsal, writes=agent != "codex"), told)


def _wanted(row: str) -> bool:
    return not ONLY or any(word in row for word in ONLY.split(","))


def show(rows: dict[str, Counts]) -> None:
    names = [field.name for field in fields(Counts)]
    for name in names:
        told = [
            f"{getattr(counts, name):>20.4f}" if name.endswith("usd") else f"{getattr(counts, name):>20}"
            for counts in rows.values()
        ]
        print(f"{name:20}" + "".join(told))


async def main() -> int:
    rows: dict[str, Counts] = {}
    os.environ["PATH"] = f"{needs.AGENTS}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
        for name, agent in BARE.items():
            if not _wanted(f"bare {name}"):
                continue
            rows[name], rng = Counts(), random.Random(SEED)
            whole, told = await undisturbed(agent, Path(scratch) / f"{len(rows)}-undisturbed")
            print(f"{name}, undisturbed: paid ${whole:.4f}, its result says ${told:.4f}", flush=True)
            for number in range(N):
                await bare(agent, Path(scratch) / f"{len(rows)}-{number}", rng, rows[name])
                print(f"{name}: {rows[name]}", flush=True)
        for name in INSIDE:
            if not _wanted(f"Perdure {name}"):
                continue
            row = rows[f"Perdure {name}"] = Counts()
            root, rng = Path(scratch) / name, random.Random(SEED)
            async with Engine.open(root, PLAY, ports=22100, own_server=True) as engine:
                assert engine.rehearsal is not None
                engine.env |= {"OPENAI_BASE_URL": f"{engine.rehearsal.url}/v1", "OPENAI_API_KEY": "rehearsal"}
                origin = make_target(root / "calc.git")
                engine.supervised()
                for number in range(N):
                    await ours(engine, origin, number, name, rng, row)
                    print(f"Perdure, {name}: {row}", flush=True)
    print(" " * 20 + "".join(f"{name:>20}" for name in rows))
    show(rows)
    print(f"load: {' '.join(f'{load:.1f}' for load in os.getloadavg())} (1, 5, 15 minutes, at the end)")
    return 0


if __name__ == "__main__":
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit
