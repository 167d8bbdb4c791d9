"""A delivery whose host is gone, while another host's worker serves the same Temporal."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from perdure.adapters.git.workspace import Workspace
from perdure.client import Perdure
from perdure.client.server.slots import read_heartbeats
from perdure.client.server.view import has_pollers
from tests.commands import carried_out, elsewhere
from tests.engine import BUILT, HAPPY, Engine, finished, make_target, until
from tests.waiting import patient

SLEEPY = HAPPY.replace("sleep 0.5", "touch started && sleep 100")


@pytest.mark.timeout(240)
async def test_it_is_said_wherever_somebody_looks_and_a_cancel_waits_for_nobody(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, SLEEPY, ports=ports) as engine, AsyncExitStack() as ended:
        engine.worker(**elsewhere(engine))  # where other hosts may work, too
        submitted = await engine.submit(origin, **BUILT)
        await until((engine.home.tree("calc-sub") / "started").exists)

        async def has_reported() -> bool:
            beats_by_worker = await read_heartbeats(engine.client)
            return any(beat.task_queue == engine.home.queue() for beats in beats_by_worker.values() for beat in beats)

        await until(has_reported, 30)
        engine.kill_workers()
        other_host = Engine(tmp_path / "another-host", env=engine.env)
        ended.callback(other_host.end_workers)
        other_host.worker(**elsewhere(engine))

        async def is_host_away() -> bool:
            return any(activity.host_away for activity in (await submitted.delivery.describe()).pending)

        await until(is_host_away, 120)
        for command in (["list"], ["show", "calc-sub"]):
            code, out = await carried_out(engine, "-m", "perdure.cli", *command)
            assert (code, "waits for its host: no worker on " in out) == (0, True), (command, out)
        handle = engine.client.get_workflow_handle("calc-sub")

        async def is_shown_in_the_web_ui() -> bool:
            metadata: Any = await handle.query("__temporal_workflow_metadata")
            return "**Host:** waits for its host: no worker on " in str(metadata).replace("\\", "")

        await until(is_shown_in_the_web_ui, 120)
        code, out = await carried_out(engine, "-m", "perdure.cli", "cancel", "calc-sub", "--json")
        assert code == 0, out
        assert '"status": "cancelling"' in out, out
        assert "calc-sub is cancelled once its host is back: it waits for its host" in out

        engine.worker()
        result = await finished(submitted, engine)
        assert result.status == "cancelled"
        assert not await is_shown_in_the_web_ui()
        assert Workspace.open(engine.home, "calc-sub").record().ended_at is not None, "its host has tidied up"


@pytest.mark.cluster
@pytest.mark.timeout(240)
async def test_what_names_a_path_of_its_host_waits_for_it_while_another_host_has_nothing_to_do(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    nowhere = {"PERDURE_LOCAL_REPOSITORIES": str(tmp_path / "nothing")}
    async with Engine.open(tmp_path, HAPPY, ports=ports, env=nowhere) as engine, AsyncExitStack() as ended:
        engine.worker()
        await until(lambda: has_pollers(engine.client, engine.home.queue()))
        engine.kill_workers()
        other_host = Engine(tmp_path / "another-host", env=engine.env)
        ended.callback(other_host.end_workers)
        other_host.worker(**elsewhere(engine))
        await until(lambda: has_pollers(engine.client, other_host.home.queue()))

        perdure = Perdure(engine.client, engine.home.key(), engine.home.queue())
        submitted = await perdure.submit({"repository": str(origin), "request": "Add sub", **BUILT}, id="calc-sub")
        items = [{"id": "sub", "request": "Add sub"}]
        backlog = await perdure.submit_backlog({"repository": str(origin), "items": items, "land": "stack"}, "night")

        async def wait_for_their_host() -> bool:
            described = [await engine.client.get_workflow_handle(id).describe() for id in ("calc-sub", "night")]
            pending = [activity for each in described for activity in each.raw_description.pending_activities]
            assert all(each.status == WorkflowExecutionStatus.RUNNING for each in described)
            return len(pending) >= len(described)

        await until(wait_for_their_host)
        engine.worker()
        assert (await finished(submitted, engine)).status == "delivered"
        async with asyncio.timeout(patient(60)):
            progress = await backlog.backlog.result()
        assert [item.phase for item in progress.items] == ["landed"], progress
