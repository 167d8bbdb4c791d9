"""Two workers on one home: they share the work, bury each other, and never write to the same files."""

from __future__ import annotations

import asyncio
import signal
import textwrap
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from tests.e2e.test_cancel import holding, pending
from tests.engine import BUILT, CALC, HAPPY, Engine, check_shipped, finished, make_target, until
from tests.fork_server import Forked
from tests.processes import children_of, name_of

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
