"""The budget with the real worker: replies are billed once whatever dies, and what waits holds nothing."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError

from perdure.adapters.system.files import try_lock
from perdure.adapters.worker.journal import SpendLog
from perdure.models.delivery.decisions import PendingDecision
from tests.engine import BUILT, BUILT_CALLS, HAPPY, Engine, check_shipped, finished, make_target, sandboxes, until

CENT = 0.01


async def _asked(engine: Engine) -> PendingDecision | None:
    try:
        asked = (await engine.handle().query("progress"))["asked"]
    except RPCError:  # a busy machine: it is asked again
        return None
    return PendingDecision.model_validate(asked) if asked else None


def _log(engine: Engine) -> list[dict[str, Any]]:
    path = engine.home.workspace("calc-sub") / "spend.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.always
@pytest.mark.timeout(240)
async def test_a_killed_reply_and_a_retry_are_billed_once_and_the_limit_that_is_reached_holds_nothing(
    tmp_path: Path, ports: int
) -> None:
    """Killed while it waits for a reply, which may have been billed, and again as soon as one has arrived."""
    origin = make_target(tmp_path / "calc.git")
    crashes = {"PERDURE_CRASH_AT": "waiting-for-model,after-reply"}
    async with Engine.open(tmp_path, HAPPY, ports=ports, env=crashes, measured=True) as engine:
        engine.kept()
        submitted = await engine.submit(origin, budget_usd=CENT)
        asked = await until(lambda: _asked(engine))
        assert (asked.gate, asked.target) == ("budget", "1")
        spent = SpendLog(engine.home.workspace("calc-sub")).total_spend()
        newest = [line["usage"]["cost_usd"] for line in _log(engine) if "settled" in line][-1]
        assert spent.usd is not None
        paid = spent.usd + spent.at_risk_usd
        assert spent.at_risk_usd > 0
        assert paid - newest < CENT <= paid, "one reply more was paid for than the limit lets"
        calls = engine.model_calls()
        described = await engine.handle().describe()
        assert list(described.raw_description.pending_activities) == []
        lock = try_lock(engine.home.workspace("calc-sub") / "lease-tree")
        assert lock is not None, "what waits holds the worktree"
        os.close(lock)
        assert sandboxes(engine) == []

        await engine.handle().execute_update("reject", {"of": asked.target, "note": "not yet"})
        result = await finished(submitted, engine)
        assert (result.status, result.reason) == ("not_delivered", "budget")
        assert (result.receipt.worker_deaths, result.receipt.replies_cut) == (2, 1)
        assert (result.usage.cost_usd, result.usage.at_risk_usd) == (spent.usd, spent.at_risk_usd)

        await submitted.delivery.retry()
        again = await until(lambda: _asked(engine))
        assert (again.target, again.summary) == ("2", asked.summary), "a retry forgets nothing that was spent"
        assert engine.model_calls() == calls, "and pays for nothing before somebody allows it"

        engine.kill_workers()  # nobody takes an update now: the same decision is kept as a signal
        said = {"of": again.target, "usd": 5}
        for _ in range(2):
            await engine.handle().signal("decide", {"update": "add_budget", "said": said})
        engine.worker()
        delivered = await finished(submitted, engine)
        check_shipped(origin, engine, delivered, {})
        assert engine.model_calls() == 8 + 1, "it went on behind the turn it held at; one reply was cut off"
        settled = [line["settled"] for line in _log(engine) if "settled" in line]
        assert len(settled) == len(set(settled)) == 8
        assert delivered.usage.cost_usd == SpendLog(engine.home.workspace("calc-sub")).total_spend().usd
        assert delivered.receipt.replies_paid_twice == 0


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_time_that_is_over_while_a_tool_runs_ends_the_tool_and_more_of_it_does_the_turn_again(
    tmp_path: Path, ports: int
) -> None:
    """The tool sleeps for ever, until it is told not to by a program that has come to PATH: then it does its work."""
    origin = make_target(tmp_path / "calc.git")
    asked_for = {**BUILT, "config": BUILT["config"] + '[limits]\ntime = "10s"\n'}
    (go_on := tmp_path / "bin" / "go-on").parent.mkdir()
    env = {"PATH": f"{go_on.parent}:{os.environ['PATH']}"}
    assert "sleep 0.5" in HAPPY
    sleepy = HAPPY.replace("sleep 0.5", "{ go-on || sleep 100; }")
    async with Engine.open(tmp_path, sleepy, ports=ports, env=env, measured=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, **asked_for)
        asked = await until(lambda: _asked(engine))
        assert asked.summary == "the time limit of 0:00:10 is over"
        await until(lambda: not sandboxes(engine), timeout=10)
        calls = engine.model_calls()
        go_on.write_text("#!/bin/sh\n")
        go_on.chmod(0o755)
        await asyncio.sleep(2)
        assert engine.model_calls() == calls, "it goes on while it waits"
        await engine.handle().execute_update("add_budget", {"of": asked.target, "time": "1h"})
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, {})
        assert engine.model_calls() == BUILT_CALLS, "the reply that asked for the tool was paid for once"
        assert result.receipt.worker_deaths == 0
