"""The stream of events: each once and in order, the same whenever it is read, across a death, a reset and a retry."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

from perdure.models.crash import CrashPoint
from perdure.models.errors import BadInput
from perdure.models.events import Event
from tests.e2e.test_two_workers import SLOW_TURN, TAKEN_OVER
from tests.engine import BUILT, Engine, check_shipped, finished, make_target, until
from tests.waiting import patient


async def read(engine: Engine, id: str = "calc-sub", *, follow: bool = False, since: int = 0) -> list[Event]:
    return [event async for event in engine.perdure.events(id, follow=follow, since=since)]


async def printed(engine: Engine, *words: str) -> str:
    """The output of `perdure events` as another process prints it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "perdure.cli", "events", *words),
        env=engine.environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), patient(60))
    assert process.returncode == 0, err.decode()
    return out.decode()


def kinds(told: list[Event]) -> list[str]:
    return [str(event.type) for event in told]


@pytest.mark.timeout(200)
async def test_each_event_is_told_once_and_in_order_across_a_killed_worker_and_a_reset(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(
        tmp_path, SLOW_TURN, ports=ports, env={"PERDURE_CRASH_AT": CrashPoint.AFTER_REPLY}
    ) as engine:
        engine.kept()
        await engine.submit(origin, **BUILT)
        following = asyncio.create_task(read(engine, follow=True))
        started = engine.home.tree("calc-sub") / "started"
        await until(started.exists)
        before = await engine.handle().fetch_history()
        turn = [
            event.activity_task_scheduled_event_attributes
            for event in before.events
            if event.activity_task_scheduled_event_attributes.activity_type.name == "implement"
        ][1]
        await engine.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=engine.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id="calc-sub", run_id=before.run_id),
                reason="test",
                workflow_task_finish_event_id=turn.workflow_task_completed_event_id,
                request_id="test-reset",
            )
        )
        check_shipped(origin, engine, await finished(await engine.submit(origin, **BUILT), engine), TAKEN_OVER)
        async with asyncio.timeout(patient(60)):
            followed = await following
        told = await read(engine)
        assert [event.offset for event in told] == list(range(len(told)))
        assert followed == told
        assert await read(engine, since=7) == told[7:]
        assert kinds(told)[0] == "started"
        assert kinds(told)[-1] == "ended"
        assert told[-1].data == {"outcome": "delivered", "reason": ""}
        assert [event.data for event in told if event.type == "continued"] == [{"by": "rewind"}]
        assert [event.data["activity"] for event in told if event.type == "worker_death"] == ["implement"]
        turns = [(event.step, event.turn) for event in told if event.type == "activity"]
        assert len(turns) == len(set(turns)), "a turn that ended before the reset was not told again"
        assert {"phase", "step_started", "activity", "commit", "worker_death", "receipt"} <= set(kinds(told))
        shown = await printed(engine, "calc-sub", "--json", "--from", "3")
        assert [Event.model_validate_json(line) for line in shown.splitlines()] == told[3:]
        everything = (await printed(engine, "--json")).splitlines()
        assert everything == [event.model_dump_json() for event in told]
        words = (await printed(engine, "calc-sub")).splitlines()
        assert len(words) == len(told)
        assert "started" in words[0]
        with pytest.raises(BadInput, match="no delivery or backlog nobody"):
            await read(engine, "nobody")
