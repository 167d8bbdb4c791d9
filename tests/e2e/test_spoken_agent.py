"""An agent of the Agent Client Protocol in whole deliveries: it implements a step, is killed, held and cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.models.ids import delivery_key
from tests.engine import BUILT, Engine, finished, git, make_target, sandboxes, until
from tests.stand_in_agent import TWO_FILES, StandIn
from tests.waiting import patient

PLAY = TWO_FILES.replace("echo two", "touch started; sleep SECONDS; echo two")
CONFIG = {**BUILT, "config": BUILT["config"] + '[steps.implement]\nagent = "stand-in"\n'}


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_it_implements_a_step_is_killed_with_its_worker_and_held_and_its_change_is_shipped_once(
    tmp_path: Path, ports: int
) -> None:
    origin, env = make_target(tmp_path / "calc.git"), StandIn(tmp_path, "speaks", spoken=True).env
    async with Engine.open(tmp_path, PLAY.replace("SECONDS", "2"), ports=ports) as engine:
        engine.worker(**env)
        submitted = await engine.submit(origin, **CONFIG)
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
    async with Engine.open(tmp_path, PLAY.replace("SECONDS", "100"), ports=ports) as engine:
        engine.worker(**env)
        submitted = await engine.submit(origin, **CONFIG)
        started = engine.home.tree(delivery_key("calc-sub")) / "started"
        await until(started.exists)
        await submitted.delivery.cancel()
        result = await finished(submitted, engine, 90)
        assert result.status == "cancelled"
        await until(lambda: not sandboxes(engine))
        assert git(origin, "branch", "--list", "perdure/*") == ""
