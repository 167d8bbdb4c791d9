"""Budgets with the real worker, of a delivery and of a day: what is paid is counted once, and never too much."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError

from perdure.adapters.agents.prices import usage_cost
from perdure.adapters.system.files import try_lock
from perdure.adapters.worker.journal import SpendLog
from perdure.client.delivery.rewinding import fork, rewind
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.budget.treasury import SpentInput
from perdure.models.delivery.decisions import PendingDecision
from tests.cli.conftest import Cli
from tests.engine import BUILT, BUILT_CALLS, HAPPY, Engine, check_shipped, finished, make_target, sandboxes, until

CENT = 0.01


async def asked_decision(engine: Engine) -> PendingDecision | None:
    try:
        asked = (await engine.handle().query("progress"))["asked"]
    except RPCError:  # a busy machine: it is asked again
        return None
    return PendingDecision.model_validate(asked) if asked else None


def _log(engine: Engine) -> list[dict[str, Any]]:
    path = engine.home.workspace("calc-sub") / "spend.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.timeout(300)
async def test_a_price_nobody_knows_is_asked_about_before_a_delivery_fork_or_rewind_asks_its_model(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        engine.kept()

        async def asked_about(model: str, delivery: Any, bought: int) -> None:
            async def pending() -> PendingDecision | None:
                asked = (await delivery.progress()).pending_decision
                return asked if asked is not None and asked.limit == "price" else None

            asked = await until(pending)
            assert f"the price of {model} is not known" in asked.summary
            assert engine.model_calls() == bought, "nothing was bought before somebody allowed it"

        submitted = await engine.submit(origin, model="gpt-foo")
        await asked_about("gpt-foo", submitted.delivery, 0)
        await submitted.delivery.approve()
        result = await finished(submitted, engine)
        assert (result.status, result.usage.cost_usd) == ("delivered", None)
        calls = engine.model_calls()
        forked = await fork(submitted.delivery, "plan:1", model="nosuch")
        await asked_about("nosuch", forked.delivery, calls)
        await forked.delivery.reject("no")
        again = await rewind(submitted.delivery, "review:1", model="nosuch2")
        assert again.place == "review:1"
        await asked_about("nosuch2", submitted.delivery, calls)
        await submitted.delivery.approve()


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
        asked = await until(lambda: asked_decision(engine))
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
        again = await until(lambda: asked_decision(engine))
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
        asked = await until(lambda: asked_decision(engine))
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
