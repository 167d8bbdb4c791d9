"""A history that grows long goes on in a new run, at a phase boundary, on any Temporal server TEMPORAL_* names."""

from __future__ import annotations

from pathlib import Path

from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from perdure.client import Perdure
from perdure.local.places import temporal_binary
from perdure.plugin import perdure_plugin
from tests.engine import HAPPY, Engine, check_shipped, finished, make_target


async def test_a_delivery_continues_as_new_at_a_phase_boundary_and_forgets_nothing(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    suggested = ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=30"]
    server = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(temporal_binary()), dev_server_extra_args=suggested, ui=False
    )
    async with server, Engine.open(tmp_path, HAPPY, ports=ports) as engine:
        address = server.client.service_client.config.target_host
        client = await Client.connect(address, plugins=[perdure_plugin()])
        engine.perdure = Perdure(client)
        engine.worker(TEMPORAL_ADDRESS=address)
        submitted = await engine.submit(origin)
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, {})
        runs = [run.run_id async for run in client.list_workflows("WorkflowId = 'calc-sub'")]
        assert len(runs) > 1, "no run was continued: the test shows nothing"
        assert result.run_id in runs
        assert [step.step for step in result.steps].count("prepare") == 1
        assert [step.step for step in result.steps][-1] == "open_pull_request"
        assert len(engine.rehearsal.calls) == 8  # type: ignore[union-attr]
