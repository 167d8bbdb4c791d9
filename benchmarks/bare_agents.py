"""Claude Code and Codex as anybody runs them: their words, their sessions, and what they say that they cost."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.agents.prices import usage_cost
from perdure.models.budget.ledger import Usage
from tests.real_agents import claude, codex

WITHIN_S = 90.0
MODEL = "claude-sonnet-5-5"


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
    return usage_cost(MODEL, usage) or 0.0


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


async def start(
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


async def whole(process: asyncio.subprocess.Process) -> list[dict[str, object]]:
    assert process.stdout is not None
    said = await asyncio.wait_for(process.stdout.read(), WITHIN_S)
    await asyncio.wait_for(process.wait(), WITHIN_S)
    return [json.loads(line) for line in said.splitlines() if line.startswith(b"{")]
