"""Ways durability was seen or argued to break (docs/recovery.md), each tried on the whole product."""

from __future__ import annotations

import signal
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from tests.engine import BUILT, BUILT_CALLS, CALC, HAPPY, Engine, check_shipped, finished, git, make_target, until

SHIPPED = {"calc.py": textwrap.dedent(CALC["calc.py"]) + "\n\ndef sub(a, b):\n    return a - b\n"}
SLOW = HAPPY.replace("sleep 0.5", "touch started && sleep 2 && rm started")


def _lose(vault: Vault, sha: str) -> None:
    """What a damaged disk does to one object."""
    (vault.path / "objects" / sha[:2] / sha[2:]).unlink()


def _last_message(vault: Vault, checkpoint: str) -> str:
    """The newest message of a transcript: no other checkpoint before this one has it."""
    return vault.git.text("ls-tree", "--format=%(objectname)", checkpoint, "transcript/").splitlines()[-1]


@pytest.mark.timeout(120)
async def test_a_damaged_checkpoint_ends_the_delivery_and_retry_goes_on_before_it(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, SLOW, ports=ports) as engine:
        engine.worker()
        submitted = await engine.submit(origin, **BUILT)
        await until((engine.home.tree("calc-sub") / "started").exists)
        engine.kill_workers()
        vault = Workspace.open(engine.home, "calc-sub").vault
        (tip,) = vault.list_refs("refs/perdure/calc-sub/").values()
        _lose(vault, _last_message(vault, tip))
        engine.worker()
        result = await finished(submitted, engine)
        assert (result.status, result.reason) == ("not_delivered", "workspace_lost")
        assert tip[:12] in result.message
        _ended_long_ago(Workspace.open(engine.home, "calc-sub"))
        await submitted.delivery.retry()
        again = await finished(submitted, engine)
        check_shipped(origin, engine, again, SHIPPED)
        prepared = next(step for step in reversed(again.steps) if step.step == "prepare")
        assert prepared.summary == "goes on from its last whole checkpoint"
        async for event in engine.handle("calc-sub").fetch_history_events():
            scheduled = event.activity_task_scheduled_event_attributes
            if scheduled.activity_type.name == "prepare":
                assert scheduled.task_queue.name == engine.home.queue(), "another host has nothing of it"


def _ended_long_ago(workspace: Workspace) -> None:
    """As if `retry` came after a week: what is kept for a person's eyes is about to be swept away."""
    record = workspace.record()
    assert record.ended_at is not None
    workspace.write_record(record.model_copy(update={"ended_at": datetime.now(UTC) - timedelta(days=8)}))


@pytest.mark.always
@pytest.mark.timeout(120)
async def test_a_checkpoint_damaged_before_it_was_reported_is_not_adopted(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        worker = engine.worker(PERDURE_CRASH_AT="after-snapshot")
        submitted = await engine.submit(origin, **BUILT)
        await until(lambda: worker.poll() is not None)
        vault = Workspace.open(engine.home, "calc-sub").vault
        (tip,) = vault.list_refs("refs/perdure/calc-sub/").values()
        _lose(vault, _last_message(vault, tip))
        engine.worker()
        result = await finished(submitted, engine)
        assert (result.status, result.reason) == ("not_delivered", "workspace_lost")
        assert "damaged" in result.message
        await submitted.delivery.retry()
        check_shipped(origin, engine, await finished(submitted, engine), SHIPPED)


@pytest.mark.timeout(120)
async def test_a_turn_that_was_cut_off_leaves_nothing_behind_not_even_what_git_ignores(
    tmp_path: Path, ports: int
) -> None:
    litter = "printf x > cache.db && mkfifo pipe && git init -q nested && mkdir -p deep/er && touch started && sleep 2"
    trace = "(ls -d cache.db pipe nested deep started > left.txt 2>/dev/null || rm left.txt)"
    nosy = HAPPY.replace("sleep 0.5", f"{trace} && {litter} && rm -r pipe nested deep started")
    origin = make_target(tmp_path / "calc.git", CALC | {".gitignore": "*.db\n"})
    async with Engine.open(tmp_path, nosy, ports=ports) as engine:
        engine.worker()
        submitted = await engine.submit(origin, **BUILT)
        await until((engine.home.tree("calc-sub") / "started").exists)
        engine.kill_workers()
        engine.worker()
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, SHIPPED)
        assert git(origin, "diff", "--name-only", "main", "perdure/calc-sub") == "calc.py"
        assert result.receipt.turns_redone == 1


@pytest.mark.timeout(120)
async def test_a_worker_that_is_asked_to_stop_finishes_its_turn_and_loses_nothing(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, SLOW, ports=ports) as engine:
        worker = engine.worker()
        submitted = await engine.submit(origin, **BUILT)
        await until((engine.home.tree("calc-sub") / "started").exists)
        worker.send_signal(signal.SIGTERM)
        await until(lambda: worker.poll() is not None)
        assert worker.returncode == 0
        assert not list(engine.home.inflight.glob(f"{'[0-9a-f]' * 32}*")), "a drained worker has nothing in flight"
        assert "never retrieved" not in engine.worker_log()
        engine.worker()
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, SHIPPED)
        assert (result.receipt.worker_deaths, result.receipt.turns_redone) == (0, 0)
        assert engine.model_calls() == BUILT_CALLS


@pytest.mark.always
@pytest.mark.long
@pytest.mark.timeout(150)
async def test_deaths_around_the_pull_request_open_exactly_one(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    points = "after-push:2,after-pull-request:2"
    async with Engine.open(tmp_path, HAPPY, ports=ports, env={"PERDURE_CRASH_AT": points}) as engine:
        engine.kept()
        result = await finished(await engine.submit(origin, **BUILT), engine, timeout=120)
        check_shipped(origin, engine, result, SHIPPED)
        assert result.pull_request is not None
        assert result.pull_request.number == 1
        assert result.receipt.worker_deaths == 4, "more than a turn may have"


REPORT = """
import os
red = "def sub" in open("calc.py").read()  # green on the base
why = "<failure>" + "why " * 5000 + "</failure>" if red else ""
cases = "".join(f'<testcase name="{"long name " * 3000}{n}">{why}</testcase>' for n in range(40))
open(os.environ["PERDURE_REPORT"], "w").write(f"<testsuite name='big'>{cases}</testsuite>")
print("noise " * 600_000)
raise SystemExit(red)
"""
CONFIG = """
version = 1
[setup]
commands = []
[[test]]
name = "big"
command = "python3 big.py"
report = "junit"
[limits]
test_fixes = 1
"""
WORDY = (
    HAPPY.replace('title = "Add sub"', f'title = "{"Add sub " * 1_000}"')
    .replace('problem = "There is no sub."', f'problem = "{"There is no sub. " * 2_000}"')
    .replace('say = "Add sub', f'say = "{"Add sub " * 2_000}')
    + """
[[line]]
step = "fix_tests"
say = "Nothing to do"
"""
)


@pytest.mark.timeout(120)
async def test_megabytes_of_plan_output_and_test_names_stay_out_of_history(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git", CALC | {"big.py": REPORT})
    async with Engine.open(tmp_path, WORDY, ports=ports) as engine:
        engine.worker()
        result = await finished(await engine.submit(origin, config=CONFIG, budget_usd=50), engine)
        assert (result.status, result.reason) == ("not_delivered", "tests_red"), result.message
        history = await engine.handle().fetch_history()
        assert max(event.ByteSize() for event in history.events) < 16 * 1024
        assert "ResultTooLarge" not in engine.worker_log()
