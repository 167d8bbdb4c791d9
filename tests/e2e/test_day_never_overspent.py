"""A budget of the day that is never overspent: many deliveries on two workers of a host, and one killed in a reply."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.agents.prices import price
from perdure.models.ledger import Usage
from tests.cli.conftest import Cli
from tests.lab import Lab, finished, make_target, until

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


def uppers(lab: Lab) -> list[float]:
    """The most that each request could cost, as the hosts' spend logs have it."""
    lines = [json.loads(line) for path in lab.root.rglob("spend.jsonl") for line in path.read_text().splitlines()]
    return [line["upper_usd"] for line in lines if "intent" in line]


def billed(lab: Lab) -> float:
    """By the vendor's count, with our prices."""
    assert lab.rehearsal is not None
    used = [call.usage for call in lab.rehearsal.calls if call.usage is not None]
    costs = [
        price(
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


async def table(lab: Lab) -> Any:
    return json.loads(
        (await asyncio.to_thread(Cli(lab.home.root, lab.root, lab.env), "budget", "--shared", "--json")).out
    )


async def waits(lab: Lab, id: str) -> str:
    waiting = str((await lab.handle(id).query("progress"))["waiting"])
    return waiting if "the day's budget" in waiting else ""


async def measured(root: Path, origin: Path) -> float:
    """The most that one request can cost."""
    async with Lab.open(root, STORY) as lab:
        lab.worker()
        await finished(await lab.submit(origin, **ASKED), lab)
        return max(uppers(lab))


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_many_deliveries_at_once_on_two_workers_never_spend_more_than_the_days_budget(tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git")
    upper = await measured(tmp_path / "first", origin)
    budget, names = round(3.2 * upper, 6), [f"night-{n}" for n in range(6)]
    env = budgets(tmp_path / "budgets.toml", budget)
    async with Lab.open(tmp_path / "lab", STORY, env=env) as lab:
        lab.worker()
        lab.worker()
        for name in names:
            await lab.submit(origin, id=name, **ASKED)

        async def over() -> bool:
            ends = [(await lab.perdure.delivery(name).describe()).outcome == "no_changes" for name in names]
            return all([end or await waits(lab, name) for end, name in zip(ends, names, strict=True)])

        await until(over, timeout=100)
        assert lab.rehearsal is not None
        calls = len(lab.rehearsal.calls)
        assert 3 <= calls < len(names), "those whose next request is covered, and no others"
        assert billed(lab) <= budget
        assert len(uppers(lab)) == calls, "nothing was reserved that was not sent"
        told = await table(lab)
        assert told["budgets"][0]["spent"] == pytest.approx(billed(lab), abs=1e-4)
        assert budget - told["budgets"][0]["spent"] < upper


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_reply_that_a_killed_worker_was_waiting_for_counts_in_full_before_the_next_is_asked_for(
    tmp_path: Path,
) -> None:
    origin = make_target(tmp_path / "calc.git")
    upper = await measured(tmp_path / "first", origin)
    env = budgets(tmp_path / "budgets.toml", round(1.5 * upper, 6))
    async with Lab.open(tmp_path / "lab", STORY, env=env) as lab:
        lab.kept(PERDURE_CRASH_AT="waiting-for-model")
        submitted = await lab.submit(origin, id="night", **ASKED)
        words = await until(lambda: waits(lab, "night"), timeout=100)
        assert words.startswith("the day's budget of label team-a does not cover the next request"), words
        assert lab.model_calls() == 1, "the one that it died in"
        assert (await table(lab))["budgets"][0]["spent"] == pytest.approx(upper, abs=1e-5)
        cli = Cli(lab.home.root, lab.root, lab.env)
        added = await asyncio.to_thread(cli, "budget", "--shared", "label:team-a", "--add", "1")
        assert added.code == 0, added
        await finished(submitted, lab)
        assert lab.model_calls() == 2
