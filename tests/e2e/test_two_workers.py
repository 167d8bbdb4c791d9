"""Workers and deliveries beside each other: they share the work, bury each other, never write to the same files."""

from __future__ import annotations

import asyncio
import signal
import textwrap
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from tests.e2e.test_cancel import holding, pending
from tests.engine import BUILT, CALC, HAPPY, Engine, check_shipped, finished, git, heads, make_target, pulls, until
from tests.fork_server import Forked
from tests.processes import children_of, family, name_of

SHIPPED = {"calc.py": textwrap.dedent(CALC["calc.py"]) + "\n\ndef sub(a, b):\n    return a - b\n"}
SLOW = HAPPY.replace("sleep 0.5", "touch started && sleep 2 && rm started")


def _working(workers: list[Forked]) -> Forked | None:
    """The worker whose sandbox runs a command."""
    return next((w for w in workers if any(name_of(c) == "bwrap" for c in children_of(w.pid))), None)


@pytest.mark.always
@pytest.mark.timeout(120)
async def test_the_other_worker_takes_over_at_once_when_one_dies(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, SLOW, ports=ports) as engine:
        workers = [engine.worker(), engine.worker()]
        submitted = await engine.submit(origin, **BUILT)
        await until((engine.home.tree("calc-sub") / "started").exists)
        victim = await until(lambda: _working(workers))
        victim.kill()
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, SHIPPED)
        assert (result.receipt.worker_deaths, result.receipt.turns_redone) == (1, 1)
        assert result.receipt.replies_cut == 0
        (left,) = [worker for worker in workers if worker is not victim]
        assert left.poll() is None


MANY = "title = 'turns'\n" + "".join(
    f"""
[[line]]
step = "implement"
turn = {turn}
[[line.use]]
tool = "bash"
input.command = "echo {turn} > n.txt && touch begun && until rm go 2>err; do sleep 0.1; done; rm begun"
"""
    for turn in range(1, 60)
)
"""Turns that end when they are let go: nobody depends on how long one takes."""


@pytest.mark.long
@pytest.mark.timeout(150)
async def test_no_workflow_task_waits_for_the_queue_of_a_dead_worker(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, MANY, ports=ports) as engine:
        workers, tree = [engine.worker(), engine.worker()], engine.home.tree("calc-sub")
        config = "version = 1\n[setup]\ncommands = []\n"
        submitted = await engine.submit(origin, phases=["build"], config=config)

        async def next_turn() -> None:
            calls = engine.model_calls()
            (tree / "go").touch()
            await until(lambda: engine.model_calls() > calls and (tree / "begun").exists())

        async def keeper() -> str:
            """Whoever keeps the workflow in memory, by the name that its workflow tasks have."""
            history = await engine.handle().fetch_history()
            names = [event.workflow_task_started_event_attributes.identity for event in history.events]
            return next(name for name in reversed(names) if name)

        async def killed(worker: Forked) -> None:
            """It is, and others have seen to its queue."""
            left = {path.stem for path in engine.home.inflight.glob("*.lock")}
            worker.kill()
            await until(lambda: left - {path.stem for path in engine.home.inflight.glob("*.lock")})

        await until((tree / "begun").exists)
        while (runner := await until(lambda: _working(workers))) and (await keeper()).startswith(f"{runner.pid}@"):
            await next_turn()
        await killed(next(worker for worker in workers if worker is not runner))
        await next_turn()
        await next_turn()
        engine.worker()
        (tree / "begun").unlink()
        await killed(runner)
        await until((tree / "begun").exists)
        await next_turn()
        await next_turn()
        history = await engine.handle().fetch_history()
        assert not [e for e in history.events if e.HasField("workflow_task_timed_out_event_attributes")]
        await submitted.delivery.cancel()
        await finished(submitted, engine)


@pytest.mark.slow
@pytest.mark.timeout(150)
async def test_a_worker_that_slept_while_it_made_the_worktree_does_not_disturb_the_next_one(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        sleeper = engine.worker()
        await finished(await engine.submit(origin, id="first", phases=["plan"]), engine)  # there is a vault now
        (vault,) = engine.home.vaults.glob("*.git")
        with holding(vault / "perdure.lock"):  # `git worktree add` waits for it
            submitted = await engine.submit(origin)
            await until(lambda: pending(submitted, "prepare"))
            await until(lambda: (engine.home.workspace("calc-sub") / "git" / "calc-sub" / "lock").exists())
            await asyncio.sleep(0.5)
            sleeper.send_signal(signal.SIGSTOP)
        engine.worker()
        await _reset_to_the_beginning(engine)
        await until(lambda: engine.home.tree("calc-sub").with_name("calc-sub~1").exists())
        sleeper.send_signal(signal.SIGCONT)
        result = await finished(await engine.submit(origin), engine)
        check_shipped(origin, engine, result, SHIPPED)


async def _reset_to_the_beginning(engine: Engine) -> None:
    """As `temporal workflow reset` does: the run that the sleeper works for is over, a new one prepares anew."""
    history = await engine.handle().fetch_history()
    first = next(e.event_id for e in history.events if e.HasField("workflow_task_completed_event_attributes"))
    run_id = (await engine.handle().describe()).run_id
    await engine.client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=engine.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id="calc-sub", run_id=run_id),
            reason="test",
            workflow_task_finish_event_id=first,
            request_id="test-reset",
        )
    )


SLOW_TURN = HAPPY.replace(
    "&& sleep 0.5 && echo written",
    "&& touch started && for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i >> slow.txt; sleep 0.3; done && rm started",
)
"""Turn 2 of implement writes a line every 0.3 s: whoever writes beside it leaves lines behind."""

TAKEN_OVER = {
    "calc.py": textwrap.dedent(CALC["calc.py"]) + "\n\ndef sub(a, b):\n    return a - b\n",
    "slow.txt": "".join(f"line {number}\n" for number in range(1, 11)),
}


@pytest.mark.always
@pytest.mark.timeout(120)
async def test_a_raw_reset_with_a_turn_in_flight_ships_what_an_undisturbed_run_would(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, SLOW_TURN, ports=ports) as engine:
        engine.worker()
        submitted = await engine.submit(origin, **BUILT)
        started = engine.home.tree("calc-sub") / "started"
        await until(started.exists)
        await asyncio.sleep(1)
        before = (await submitted.delivery.describe()).run_id
        history = await engine.handle().fetch_history()
        turn = [
            event
            for event in history.events
            if event.activity_task_scheduled_event_attributes.activity_type.name == "implement"
        ][1]
        await engine.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=engine.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id="calc-sub", run_id=before),
                reason="test",
                workflow_task_finish_event_id=turn.activity_task_scheduled_event_attributes.workflow_task_completed_event_id,
                request_id="test-reset",
            )
        )
        # The handle's result follows the chain of runs only by id: ask anew.
        result = await finished(await engine.submit(origin, **BUILT), engine)
        assert result.run_id != before
        check_shipped(origin, engine, result, TAKEN_OVER)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("others", [0, pytest.param(1, marks=pytest.mark.slow)], ids=["alone", "beside another worker"])
async def test_a_worker_that_slept_past_its_heartbeat_leaves_no_trace_when_it_wakes(
    others: int, tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    long = SLOW_TURN.replace("sleep 0.3", "sleep 0.6")
    async with Engine.open(tmp_path, long, ports=ports) as engine:
        sleeper = engine.worker()
        submitted = await engine.submit(origin, **BUILT)
        await until((engine.home.tree("calc-sub") / "started").exists)
        sleeper.send_signal(signal.SIGSTOP)
        second = [engine.worker() for _ in range(others)]
        if second:
            # The other worker takes the turn over in a directory of its own while the sleeper sleeps. The server may
            # hand the turn to one of the sleeper's open polls first: that costs another heartbeat timeout.
            await until((engine.home.tree("calc-sub").with_name("calc-sub~1") / "started").exists, timeout=150)
        else:
            await asyncio.sleep(33)
        sleeper.send_signal(signal.SIGCONT)
        result = await finished(submitted, engine, timeout=60)
        check_shipped(origin, engine, result, TAKEN_OVER)


MB = 1_000_000
PORTS_SHOWN = HAPPY.replace("&& echo written", "&& echo $BACKEND_PORT-$FRONTEND_PORT > ports.txt && sleep 1")


@pytest.mark.timeout(180)
async def test_three_deliveries_at_once_are_three_pull_requests_with_three_port_pairs_and_no_git_error(
    tmp_path: Path, ports: int
) -> None:
    await at_once(3, tmp_path, ports)


@pytest.mark.slow
@pytest.mark.timeout(1500)
async def test_so_are_fifty_and_their_worker_needs_no_more_than_400_mb(tmp_path: Path, ports: int) -> None:
    first = 26000 + 10 * (ports - 21000) // 60
    more = {"PERDURE_PORTS_BACKEND": f"{first}-{first + 99}", "PERDURE_PORTS_FRONTEND": f"{first + 100}-{first + 199}"}
    worker, everything = await at_once(50, tmp_path, ports, within=1400, **more)
    print(f"at most {worker / MB:.0f} MB the worker, {everything / MB:.0f} MB with all that it started")
    assert worker < 400 * MB


async def at_once(many: int, tmp_path: Path, ports: int, within: float = 170, **env: str) -> tuple[int, int]:
    """The most bytes that were seen of the worker, and of it with all its children."""
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, PORTS_SHOWN, ports=ports, env=env) as engine:
        measuring = asyncio.create_task(largest(engine.worker().pid))
        ids = [f"calc-{number}" for number in range(many)]
        submitted = await asyncio.gather(*(engine.submit(origin, id=id, **BUILT) for id in ids))
        results = await asyncio.gather(*(finished(one, engine, timeout=within) for one in submitted))
        assert [result.status for result in results] == ["delivered"] * many, [result.message for result in results]
        assert len({result.head_sha for result in results}) == many
        assert sorted(pull["head"] for pull in pulls(origin)) == sorted(f"perdure/{id}" for id in ids)
        assert heads(origin).keys() == {"main", *(f"perdure/{id}" for id in ids)}
        pairs = {git(origin, "show", f"perdure/{id}:ports.txt") for id in ids}
        assert len(pairs) == many
        assert not list(engine.home.ports.glob("*-*")), "ports were not given back"
        assert "GitError" not in engine.worker_log()
        assert "Completing activity as failed" not in engine.worker_log()
        measuring.cancel()
        return await measuring


async def largest(pid: int) -> tuple[int, int]:
    """Until it is cancelled. Pages that a child shares with the worker it was forked from count once."""
    own = all_of_it = 0
    with suppress(asyncio.CancelledError):
        while True:
            whole = 0
            for process in family(pid):
                with suppress(psutil.Error):
                    own = max(own, process.memory_info().rss if process.pid == pid else 0)
                    whole += process.memory_full_info().pss
            all_of_it = max(all_of_it, whole)
            await asyncio.sleep(1)
    return own, all_of_it
