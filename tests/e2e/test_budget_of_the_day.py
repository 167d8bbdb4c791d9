"""A budget of the day, from the owner's file to the pull request, with a worker killed while the delivery waits."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from perdure.models.ledger import Spend
from perdure.models.treasury import SpentInput
from tests.cli.conftest import Cli
from tests.lab import BUILT, HAPPY, Lab, check_shipped, finished, make_target, until

BUDGET = '[[treasury]]\nlabel = "team-a"\nusd_per_day = 0.000001\n'


@pytest.mark.timeout(150)
async def test_a_delivery_over_the_days_budget_waits_through_a_dead_worker_until_a_person_adds(tmp_path: Path) -> None:
    origin = make_target(tmp_path / "calc.git")
    (tmp_path / "budgets.toml").write_text(BUDGET)
    env = {"PERDURE_TREASURY": str(tmp_path / "budgets.toml")}
    async with Lab.open(tmp_path / "lab", HAPPY, env=env, measured=True) as lab:
        lab.worker()
        submitted = await lab.submit(origin, labels=["team-a"], **BUILT)
        words = await until(lambda: waiting(lab))
        assert words.startswith("the day's budget of label team-a does not cover the next request"), words
        assert words.endswith("or perdure budget --shared label:team-a --add 5")
        assert lab.model_calls() == 0, "none that could overspend it"

        lab.kill_workers()
        lab.worker()
        await until(lambda: lab.worker_log().count("working on perdure") == 2)
        told = await perdure(lab, "budget", "--shared")
        assert told.splitlines()[0].split()[:2] == ["budget", "on"]
        assert "calc-sub  $0.00     waits  label:team-a" in told, told
        assert "there is no budget label:team-b" in await perdure(
            lab, "budget", "--shared", "label:team-b", "--add", "5", code=2
        )
        assert "only ever raised" in await perdure(lab, "budget", "--shared", "label:team-a", "--add", "-5", code=2)
        assert "✓ added $5.00 to label:team-a for today" in await perdure(
            lab, "budget", "--shared", "label:team-a", "--add", "5"
        )
        result = await finished(submitted, lab)
        check_shipped(origin, lab, result, {})
        table = json.loads(await perdure(lab, "budget", "--shared", "--json"))
        assert table["deliveries"] == []
        assert table["budgets"][0]["spent"] == pytest.approx(result.usage.cost_usd)
        log = await lab.client.execute_activity(  # as the Treasury does when a delivery is silent
            "spent",
            SpentInput(delivery="calc-sub"),
            id="spent-calc-sub",
            result_type=Spend,
            task_queue=lab.home.queue(),
            schedule_to_close_timeout=timedelta(seconds=30),
        )
        assert log.paid == pytest.approx(result.usage.cost_usd)


async def waiting(lab: Lab) -> str:
    return str((await lab.handle().query("progress"))["waiting"])


async def perdure(lab: Lab, *args: str, code: int = 0) -> str:
    """All that a command says."""
    ran = await asyncio.to_thread(Cli(lab.home.root, lab.root, lab.env), *args)
    assert ran.code == code, (args, ran)
    return ran.out + ran.err
