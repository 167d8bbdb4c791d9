"""A superseded writer can do no harm: reset with a turn in flight, a worker that was asleep."""

from __future__ import annotations

import asyncio
import signal
import textwrap
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from tests.engine import BUILT, CALC, HAPPY, Engine, check_shipped, finished, make_target, until

SLOW = HAPPY.replace(
    "&& sleep 0.5 && echo written",
    "&& touch started && for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i >> slow.txt; sleep 0.3; done && rm started",
)
"""Turn 2 of implement writes a line every 0.3 s: whoever writes beside it leaves lines behind."""

SHIPPED = {
    "calc.py": textwrap.dedent(CALC["calc.py"]) + "\n\ndef sub(a, b):\n    return a - b\n",
    "slow.txt": "".join(f"line {number}\n" for number in range(1, 11)),
}


@pytest.mark.always
@pytest.mark.timeout(120)
async def test_a_raw_reset_with_a_turn_in_flight_ships_what_an_undisturbed_run_would(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, SLOW, ports=ports) as engine:
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
        check_shipped(origin, engine, result, SHIPPED)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("others", [0, pytest.param(1, marks=pytest.mark.slow)], ids=["alone", "beside another worker"])
async def test_a_worker_that_slept_past_its_heartbeat_leaves_no_trace_when_it_wakes(
    others: int, tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    long = SLOW.replace("sleep 0.3", "sleep 0.6")
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
        check_shipped(origin, engine, result, SHIPPED)
