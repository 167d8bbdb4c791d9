"""Agents killed at a random moment of one scripted task: bare Claude Code and Codex with their own resume, and ours.

`make bench-agents`: N kills each (SIGKILL, of the agent's own process or of Perdure's worker), real programs, the
rehearsal as the model. Whoever runs a bare agent has to see that it died, know its session and type the resume.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import uuid
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from perdure.adapters.agents.prices import price
from perdure.local.supervisor import read_supervisor
from perdure.models.ledger import Usage
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.lab import Lab, finished, git, make_target, until
from tests.real_agents import claude, codex

N = int(os.environ.get("N", "20"))
SEED = int(os.environ.get("SEED", "20261123"))
TURNS = 5
TOOL_S = 0.6
TASK_S = 6.0
"""About as long as one task takes undisturbed: the kill comes in the middle half of it."""

WITHIN_S = 90.0
SETTLE_S = 1.5
"""After a kill, before anybody looks: an orphan has done by then what it was doing."""

MODEL = "claude-sonnet-5-5"
LOG = "log.txt"
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
            total += price(MODEL, usage) or 0.0
    return total


def again(twin: Rehearsal) -> int:
    """Replies beyond the first for a turn that had been answered whole."""
    answered = Counter(call.turn for call in twin.calls if call.outcome == "reply" and not call.dropped)
    return sum(count - 1 for count in answered.values())


@dataclass(frozen=True)
class Bare:
    """An agent as anybody runs it. `resumed`: its words for a session; `accounted`: dollars that its results tell."""

    begin: Callable[[str, str], tuple[list[str], dict[str, str]]]
    resumed: Callable[[str, str], tuple[list[str], dict[str, str]]]
    accounted: Callable[[list[dict[str, object]]], float]
    session: Callable[[Path], str | None]
    writes: bool = True


def _claude_cost(results: list[dict[str, object]]) -> float:
    """It adds up over resumes: the last one tells all."""
    told = [result["total_cost_usd"] for result in results if result.get("type") == "result"]
    return float(str(told[-1])) if told else 0.0


def _codex_cost(results: list[dict[str, object]]) -> float:
    """Tokens alone, of the thread so far; at the price of the model the rehearsal stands for."""
    told = [result["usage"] for result in results if result.get("type") == "turn.completed"]
    if not told or not isinstance(told[-1], dict):
        return 0.0
    cached = int(told[-1].get("cached_input_tokens", 0))
    fresh = int(told[-1].get("input_tokens", 0)) - cached
    usage = Usage(input_tokens=fresh, cache_read_tokens=cached, output_tokens=int(told[-1].get("output_tokens", 0)))
    return price(MODEL, usage) or 0.0


def _claude_session(home: Path) -> str | None:
    return next((path.stem for path in home.glob("claude/projects/*/*.jsonl")), None)


def _codex_session(home: Path) -> str | None:
    found = next(home.glob("codex/sessions/**/rollout-*.jsonl"), None)
    return found.stem[-36:] if found else None


BARE = {
    "claude -p, --resume": Bare(
        lambda url, session: claude("--bare", "--session-id", session, url=url),
        lambda url, session: claude("--bare", "--resume", session, url=url),
        _claude_cost,
        _claude_session,
    ),
    "codex exec, resume": Bare(
        lambda url, _: codex(url=url),
        lambda url, session: _resuming(codex(url=url), session),
        _codex_cost,
        _codex_session,
        writes=False,
    ),
}


def _resuming(agent: tuple[list[str], dict[str, str]], session: str) -> tuple[list[str], dict[str, str]]:
    words, env = agent
    return [*words[:2], "resume", *words[2:-1], session, "-"], env


async def _start(
    agent: tuple[list[str], dict[str, str]], prompt: str, tree: Path, home: Path
) -> asyncio.subprocess.Process:
    words, variables = agent
    own = {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / "claude"), "CODEX_HOME": str(home / "codex")}
    (home / "codex").mkdir(parents=True, exist_ok=True)
    env = {"PATH": os.environ["PATH"], **own, **variables}
    process = await asyncio.create_subprocess_exec(
        *words, cwd=tree, env=env, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )
    assert process.stdin is not None
    process.stdin.write(prompt.encode())
    process.stdin.close()
    return process


async def _whole(process: asyncio.subprocess.Process) -> list[dict[str, object]]:
    assert process.stdout is not None
    said = await asyncio.wait_for(process.stdout.read(), WITHIN_S)
    await asyncio.wait_for(process.wait(), WITHIN_S)
    return [json.loads(line) for line in said.splitlines() if line.startswith(b"{")]


def _living(tree: Path) -> list[psutil.Process]:
    """Processes that work in this tree."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(tree) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


async def undisturbed(agent: Bare, root: Path) -> tuple[float, float]:
    """Dollars paid for one task that nobody kills, and those its result tells: the same, or nothing can be compared."""
    tree = root / "tree"
    tree.mkdir(parents=True)
    async with Rehearsal(Screenplay.parse(PLAY)) as twin:
        process = await _start(agent.begin(twin.url, str(uuid.uuid4())), PROMPT, tree, root / "home")
        told = agent.accounted(await _whole(process))
        return paid(twin, writes=agent.writes), told


async def bare(agent: Bare, root: Path, rng: random.Random, counts: Counts) -> None:
    """One task, killed once and resumed once."""
    tree, home = root / "tree", root / "home"
    tree.mkdir(parents=True)
    async with Rehearsal(Screenplay.parse(PLAY)) as twin:
        process = await _start(
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
            process = await _start(words, "Go on." if session else PROMPT, tree, home)
            results = await _whole(process)
        finally:
            for left in _living(tree):
                left.kill()
        spent = paid(twin, writes=agent.writes)
        counts.add(read(tree / LOG), len(twin.calls), again(twin), spent, agent.accounted(results))


async def ours(lab: Lab, origin: Path, number: int, rng: random.Random, counts: Counts) -> None:
    """One delivery of the built-in agent, its worker killed once."""
    assert lab.rehearsal is not None
    del lab.rehearsal.calls[:]
    id = f"calc-{number}"
    submitted = await lab.submit(origin, id=id, phases=["build"], config=CONFIG)
    await until(lambda: bool(lab.rehearsal and lab.rehearsal.calls), timeout=WITHIN_S)
    await asyncio.sleep(rng.uniform(0.1 * TASK_S, 0.7 * TASK_S))
    record = read_supervisor(lab.home)
    assert record is not None
    assert record.worker_pid is not None
    tree = lab.home.tree(id)
    os.kill(record.worker_pid, signal.SIGKILL)
    await asyncio.sleep(0.1)
    counts.orphans += bool(_living(tree))
    result = await finished(submitted, lab)
    vault = next(lab.home.vaults.glob("*.git"))
    commit = next(step.commit for step in result.steps if step.commit)
    log = git(vault, "show", f"{commit}:{LOG}") + "\n"
    counts.torn_trees += torn(log)
    told = (result.usage.cost_usd or 0.0) + result.usage.at_risk_usd  # a reply that broke off: the most it can cost
    counts.add(log, len(lab.rehearsal.calls), result.receipt.replies_paid_twice, paid(lab.rehearsal), told)


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
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
        for name, agent in BARE.items():
            rows[name], rng = Counts(), random.Random(SEED)
            whole, told = await undisturbed(agent, Path(scratch) / f"{len(rows)}-undisturbed")
            print(f"{name}, undisturbed: paid ${whole:.4f}, its result says ${told:.4f}", flush=True)
            for number in range(N):
                await bare(agent, Path(scratch) / f"{len(rows)}-{number}", rng, rows[name])
                print(f"{name}: {rows[name]}", flush=True)
        rows["Perdure, built-in"], rng = Counts(), random.Random(SEED)
        root = Path(scratch) / "ours"
        async with Lab.open(root, PLAY, ports=22100, own_server=True) as lab:
            origin = make_target(root / "calc.git")
            lab.supervised()
            for number in range(N):
                await ours(lab, origin, number, rng, rows["Perdure, built-in"])
                print(f"built-in: {rows['Perdure, built-in']}", flush=True)
    print(" " * 20 + "".join(f"{name:>20}" for name in rows))
    show(rows)
    print(f"load: {' '.join(f'{load:.1f}' for load in os.getloadavg())} (1, 5, 15 minutes, at the end)")
    return 0


if __name__ == "__main__":
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit
