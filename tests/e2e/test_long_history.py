"""A history that grows long goes on in a new run, at a phase boundary, on any Temporal server TEMPORAL_* names."""

from __future__ import annotations

from pathlib import Path

from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from perdure.client import Perdure
from perdure.local.places import temporal_binary
from perdure.plugin import perdure_plugin
from tests.lab import HAPPY, Lab, check_shipped, finished, make_target


async def test_a_delivery_continues_as_new_at_a_phase_boundary_and_forgets_nothing(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    suggested = ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=30"]
    server = await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(temporal_binary()), dev_server_extra_args=suggested, ui=False
    )
    async with server, Lab.open(tmp_path, HAPPY, ports=ports) as lab:
        address = server.client.service_client.config.target_host
        client = await Client.connect(address, plugins=[perdure_plugin()])
        lab.perdure = Perdure(client)
        lab.worker(TEMPORAL_ADDRESS=address)
        submitted = await lab.submit(origin)
        result = await finished(submitted, lab)
        check_shipped(origin, lab, result, {})
        runs = [run.run_id async for run in client.list_workflows("WorkflowId = 'calc-sub'")]
        assert len(runs) > 1, "no run was continued: the test shows nothing"
        assert result.run_id in runs
        assert [step.step for step in result.steps].count("prepare") == 1
        assert [step.step for step in result.steps][-1] == "open_pull_request"
        assert len(lab.rehearsal.calls) == 8  # type: ignore[union-attr]
