"""A budget of the day that is never overspent: many deliveries on two workers of a host, and one killed in a reply."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.agents.prices import usage_cost
from perdure.models.budget.ledger import Usage
from tests.cli.conftest import Cli
from tests.engine import Engine, finished, make_target, until

MODEL, WORDS = "claude-opus-5-5", "word " * 6000
"""A reply about as long as it may be, so that few fit below a budget."""

STORY = f'[[line]]\nstep = "implement"\nsay = "{WORDS}"\n'
CONFIG = """version = 1
[setup]
commands = []
[steps.implement]
model = "claude-opus-5-5"
max_tokens = 8000
"""
ASKED: dict[str, Any] = {"phases": ["build"], "config": CONFIG, "labels": ["team-a"]}


def budgets(path: Path, usd: float) -> dict[str, str]:
    path.write_text(f'[[treasury]]\nlabel = "team-a"\nusd_per_day = {usd}\n')
    return {"PERDURE_TREASURY": str(path)}


def uppers(engine: Engine) -> list[float]:
    """The most that each request could cost, as the hosts' spend logs have it."""
    lines = [json.loads(line) for path in engine.root.rglob("spend.jsonl") for line in path.read_text().splitlines()]
    return [line["upper_usd"] for line in lines if "intent" in line]


def billed(engine: Engine) -> float:
    """By the vendor's count, with our prices."""
    assert engine.rehearsal is not None
    used = [call.usage for call in engine.rehearsal.calls if call.usage is not None]
    costs = [
        usage_cost(
            MODEL,
            Usage(
                input_tokens=one["input_tokens"],
                cache_write_tokens=one["cache_creation_input_tokens"],
                cache_read_tokens=one["cache_read_input_tokens"],
                output_tokens=one["output_tokens"],
            ),
        )
        for one in used
    ]
    return sum(cost or 0.0 for cost in costs)


async def table(engine: Engine) -> Any:
    return json.loads(
        (await asyncio.to_thread(Cli(engine.home.root, engine.root, engine.env), "budget", "--shared", "--json")).out
    )


async def waits(engine: Engine, id: str) -> str:
    waiting = str((await engine.handle(id).query("progress"))["waiting"])
    return waiting if "the day's budget" in waiting else ""


async def measured(root: Path, origin: Path) -> float:
    """The most that one request can cost."""
    async with Engine.open(root, STORY) as engine:
        engine.worker()
        await finished(await engine.submit(origin, **ASKED), engine)
        return max(uppers(engine))


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_many_deliveries_at_once_on_two_workers_never_spend_more_than_the_days_budget(tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git")
    upper = await measured(tmp_path / "first", origin)
    budget, names = round(3.2 * upper, 6), [f"night-{n}" for n in range(6)]
    env = budgets(tmp_path / "budgets.toml", budget)
    async with Engine.open(tmp_path / "engine", STORY, env=env) as engine:
        engine.worker()
        engine.worker()
        for name in names:
            await engine.submit(origin, id=name, **ASKED)

        async def over() -> bool:
            ends = [(await engine.perdure.delivery(name).describe()).outcome == "no_changes" for name in names]
            return all([end or await waits(engine, name) for end, name in zip(ends, names, strict=True)])

        await until(over, timeout=100)
        assert engine.rehearsal is not None
        calls = len(engine.rehearsal.calls)
        assert 3 <= calls < len(names), "those whose next request is covered, and no others"
        assert billed(engine) <= budget
        assert len(uppers(engine)) == calls, "nothing was reserved that was not sent"
        told = await table(engine)
        assert told["budgets"][0]["spent"] == pytest.approx(billed(engine), abs=1e-4)
        assert budget - told["budgets"][0]["spent"] < upper


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_reply_that_a_killed_worker_was_waiting_for_counts_in_full_before_the_next_is_asked_for(
    tmp_path: Path,
) -> None:
    origin = make_target(tmp_path / "calc.git")
    upper = await measured(tmp_path / "first", origin)
    env = budgets(tmp_path / "budgets.toml", round(1.5 * upper, 6))
    async with Engine.open(tmp_path / "engine", STORY, env=env) as engine:
        engine.kept(PERDURE_CRASH_AT="waiting-for-model")
        submitted = await engine.submit(origin, id="night", **ASKED)
        words = await until(lambda: waits(engine, "night"), timeout=100)
        assert words.startswith("the day's budget of label team-a does not cover the next request"), words
        assert engine.model_calls() == 1, "the one that it died in"
        assert (await table(engine))["budgets"][0]["spent"] == pytest.approx(upper, abs=1e-5)
        cli = Cli(engine.home.root, engine.root, engine.env)
        added = await asyncio.to_thread(cli, "budget", "--shared", "label:team-a", "--add", "1")
        assert added.code == 0, added
        await finished(submitted, engine)
        assert engine.model_calls() == 2
