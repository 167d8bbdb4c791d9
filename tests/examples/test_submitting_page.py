"""docs/submitting.md runs from top to bottom: its blocks for a shell as one script, on a machine where Perdure runs."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from perdure.local.places import temporal_binary
from tests.engine import Engine, make_target, until
from tests.guide import GUIDE
from tests.needs import require

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


async def test_every_block_for_a_shell_runs_one_after_the_other(engine: Engine, tmp_path: Path) -> None:
    require("jq", "curl")
    origin = make_target(tmp_path / "calc.git")
    blocks = re.findall(r"```(\w+)\n(.*?)```", GUIDE, re.DOTALL)
    assert {kind for kind, _ in blocks} == {"sh", "json", "python"}, "the others have tests of their own"
    script = "".join(code for kind, code in blocks if kind == "sh")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "TEMPORAL_"))}
    programs = f"{Path(sys.executable).parent}:{temporal_binary().parent}:{kept['PATH']}"
    env = kept | {"PATH": programs, "PERDURE_HOME": str(engine.home.root), "REPOSITORY": str(origin)}
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    result = await engine.handle("from-shell").result()
    assert (result["status"], result["attempts"]) == ("draft", []), "nothing was tested"
    assert '"attempts": null' in done.stdout, "the command shows an empty list as it is: say so on the page"

    async def all_ended() -> list[WorkflowExecutionStatus | None]:
        statuses = [run.status async for run in engine.client.list_workflows("WorkflowId = 'again'")]
        return [] if WorkflowExecutionStatus.RUNNING in statuses else statuses

    statuses = await until(all_ended)
    assert statuses == [WorkflowExecutionStatus.CANCELED] * 2
    retried = await engine.handle("again").query("progress")
    planned = [step["step"] for step in retried["steps"] if step["step"] == "plan"]
    assert planned == ["plan"], "the plan was made again"

    async def scheduled() -> list[str]:
        return [run.id async for run in engine.client.list_workflows("WorkflowId STARTS_WITH 'nightly-'")]

    assert len(await until(scheduled)) == 1
    assert "decisions" in done.stdout, "what HTTP answers"
