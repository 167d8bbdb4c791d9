"""A cancellation at any moment: never lost, nothing left behind, and never the claim that less exists than does."""

from __future__ import annotations

import asyncio
import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perdure.client import Submission
from tests.cli.conftest import Cli
from tests.engine import BUILT, FIXES, HAPPY, Engine, check_shipped, finished, git, heads, make_target, pulls, until

TURNS = "title = 'turns'\n" + "".join(
    f"""
[[line]]
step = "implement"
turn = {turn}
use = [{{ tool = "write", input = {{ path = "f{turn}.txt", content = "{turn}" }} }}]
"""
    for turn in range(1, 60)
)
CONFIG = "version = 1\n[setup]\ncommands = []\n"


@contextmanager
def holding(lock: Path) -> Iterator[None]:
    """Keep a lock that the engine needs, so that a step stands still where it takes it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def pending(submitted: Submission, name: str) -> bool:
    return any(activity.activity == name for activity in (await submitted.delivery.describe()).pending)


def ports_leased(engine: Engine) -> list[Path]:
    return list(engine.home.ports.glob("*-*"))


@pytest.mark.always
@pytest.mark.timeout(120)
async def test_a_cancel_is_not_lost_when_the_turn_ends_before_it_hears_of_it(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, TURNS, ports=ports, measured=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, phases=["build"], config=CONFIG)
        for calls in (3, 6):
            await until(lambda: engine.model_calls() >= calls, every=0.005)  # noqa: B023
            asked = engine.model_calls()
            await submitted.delivery.cancel()
            result = await finished(submitted, engine, timeout=30)
            assert result.status == "cancelled"
            assert engine.model_calls() <= asked + 3
            assert not ports_leased(engine)
            if calls == 3:
                await submitted.delivery.retry()


@pytest.mark.timeout(120)
async def test_a_cancel_given_while_no_worker_runs_is_carried_out_by_the_next_one(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(
        tmp_path, HAPPY.replace("sleep 0.5", "touch started && sleep 100"), ports=ports, measured=True
    ) as engine:
        engine.worker()
        submitted = await engine.submit(origin, **BUILT)
        await until((engine.home.tree("calc-sub") / "started").exists)
        engine.kill_workers()
        await submitted.delivery.cancel()
        engine.worker()  # reports the dead turn after the cancel request: an ordinary failure to the server
        result = await finished(submitted, engine, timeout=30)
        assert result.status == "cancelled", result.message
        assert result.receipt.worker_deaths == 1
        assert result.checkpoint
        assert heads(origin).keys() == {"main"}


@pytest.mark.always
@pytest.mark.timeout(120)
async def test_a_cancel_during_setup_gives_ports_and_worktree_back(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports, measured=True) as engine:
        engine.worker()
        config = 'version = 1\n[setup]\ncommands = ["touch preparing && sleep 100"]\n'
        submitted = await engine.submit(origin, config=config)
        await until((engine.home.tree("calc-sub") / "preparing").exists)
        await submitted.delivery.cancel()
        result = await finished(submitted, engine, timeout=30)
        assert result.status == "cancelled"
        assert engine.model_calls() == 0
        assert not ports_leased(engine)


@pytest.mark.always
@pytest.mark.timeout(120)
async def test_a_pull_request_that_was_opened_while_a_cancel_came_is_reported(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports, measured=True) as engine:
        engine.worker()
        with holding(origin / "perdure-pulls.lock"):
            submitted = await engine.submit(origin, **BUILT)
            await until(lambda: "perdure/calc-sub" in heads(origin))
            await until(lambda: pending(submitted, "open_pull_request"))
            await submitted.delivery.cancel()
            await until(lambda: _cancel_arrived(engine))
        result = await finished(submitted, engine, timeout=30)
        assert len(pulls(origin)) == 1
        check_shipped(origin, engine, result, {})


async def _cancel_arrived(engine: Engine) -> bool:
    history = await engine.handle().fetch_history()
    return any(event.HasField("activity_task_cancel_requested_event_attributes") for event in history.events)


@pytest.mark.timeout(120)
async def test_a_cancel_or_a_death_while_a_delivered_delivery_tidies_up_changes_nothing(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports, measured=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, **BUILT)
        await until(lambda: engine.model_calls() >= 1)
        (vault,) = engine.home.vaults.glob("*.git")
        with holding(vault / "perdure.lock"):  # removing a worktree needs it
            journal = engine.home.workspace("calc-sub") / "journal.jsonl"
            await until(lambda: '"close"' in journal.read_text())  # begun, not only scheduled
            await submitted.delivery.cancel()
            engine.kill_workers()
        engine.worker()
        result = await finished(submitted, engine, timeout=40)
        check_shipped(origin, engine, result, {})
        assert result.receipt.worker_deaths == 1
        assert not ports_leased(engine)
        assert not engine.home.tree("calc-sub").exists()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("step", "turns"), [("implement", 4), ("fix_review", 2)])
async def test_a_step_that_ended_but_was_not_committed_is_committed_by_the_retry_and_not_done_again(
    step: str, turns: int, tmp_path: Path, ports: int
) -> None:
    """The command of the fix adds a line wherever it runs: run again, the line would be there twice."""
    origin = make_target(tmp_path / "calc.git")
    slow = FIXES.replace(f'step = "{step}"\nsay', f'step = "{step}"\nseconds = 2\nsay')
    async with Engine.open(tmp_path, slow, ports=ports, measured=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin)
        await until(lambda: _asked(engine, step) == turns)
        await submitted.delivery.hold("before the commit")
        await until(lambda: _stands_behind(submitted, step))
        await submitted.delivery.cancel()
        assert (await finished(submitted, engine, timeout=30)).status == "cancelled"
        await submitted.delivery.retry()
        result = await finished(submitted, engine, timeout=60)
        assert git(origin, "show", "perdure/calc-sub:calc.py").count("The difference of two numbers.") == 1
        assert _asked(engine, step) == turns
        check_shipped(origin, engine, result, {})
        ran = await asyncio.to_thread(Cli(engine.home.root, engine.root, engine.env), "verify", "calc-sub", "--json")
        assert [one for one in json.loads(ran.out)["claims"] if one["mark"] == "contradicted"] == []


def _asked(engine: Engine, step: str) -> int:
    assert engine.rehearsal is not None
    return sum(call.step == step for call in engine.rehearsal.calls)


async def _stands_behind(submitted: Submission, step: str) -> bool:
    """Its last turn has ended, and nothing has begun since."""
    newest = (await submitted.delivery.progress()).steps[-1]
    return newest.step == step and newest.status == "done"
