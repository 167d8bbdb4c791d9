"""A budget of the day, from the owner's file to the pull request, with a worker killed while the delivery waits."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from perdure.models.budget.ledger import Spend
from perdure.models.budget.treasury import SpentInput
from tests.cli.conftest import Cli
from tests.engine import BUILT, HAPPY, Engine, check_shipped, finished, make_target, until

BUDGET = '[[treasury]]\nlabel = "team-a"\nusd_per_day = 0.000001\n'


@pytest.mark.timeout(150)
async def test_a_delivery_over_the_days_budget_waits_through_a_dead_worker_until_a_person_adds(tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git")
    (tmp_path / "budgets.toml").write_text(BUDGET)
    env = {"PERDURE_TREASURY": str(tmp_path / "budgets.toml")}
    async with Engine.open(tmp_path / "engine", HAPPY, env=env, measured=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, labels=["team-a"], **BUILT)
        words = await until(lambda: waiting(engine))
        assert words.startswith("the day's budget of label team-a does not cover the next request"), words
        assert words.endswith("or perdure budget --shared label:team-a --add 5")
        assert engine.model_calls() == 0, "none that could overspend it"

        engine.kill_workers()
        engine.worker()
        await until(lambda: engine.worker_log().count("working on perdure") == 2)
        told = await perdure(engine, "budget", "--shared")
        assert told.splitlines()[0].split()[:2] == ["budget", "on"]
        assert "calc-sub  $0.00     waits  label:team-a" in told, told
        assert "there is no budget label:team-b" in await perdure(
            engine, "budget", "--shared", "label:team-b", "--add", "5", code=2
        )
        assert "only ever raised" in await perdure(engine, "budget", "--shared", "label:team-a", "--add", "-5", code=2)
        assert "✓ added $5.00 to label:team-a for today" in await perdure(
            engine, "budget", "--shared", "label:team-a", "--add", "5"
        )
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, {})
        table = json.loads(await perdure(engine, "budget", "--shared", "--json"))
        assert table["deliveries"] == []
        assert table["budgets"][0]["spent"] == pytest.approx(result.usage.cost_usd)
        log = await engine.client.execute_activity(  # as the Treasury does when a delivery is silent
            "spent",
            SpentInput(delivery="calc-sub"),
            id="spent-calc-sub",
            result_type=Spend,
            task_queue=engine.home.queue(),
            schedule_to_close_timeout=timedelta(seconds=30),
        )
        assert log.counted_usd == pytest.approx(result.usage.cost_usd)


async def waiting(engine: Engine) -> str:
    return str((await engine.handle().query("progress"))["waiting"])


async def perdure(engine: Engine, *args: str, code: int = 0) -> str:
    """All that a command says."""
    ran = await asyncio.to_thread(Cli(engine.home.root, engine.root, engine.env), *args)
    assert ran.code == code, (args, ran)
    return ran.out + ran.err
