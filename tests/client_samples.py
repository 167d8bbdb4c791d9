"""The samples of examples/clients as somebody runs them, and the story that each of them has to play."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from tests.engine import Engine, make_target, pulls, until
from tests.guide import Stranger

CLIENTS = Path(__file__).parents[1] / "examples" / "clients"
FETCH_S = 300
QUICK = "version = 1\n[setup]\ncommands = []\n[ship]\nallow_untested = true\n"
BROKEN = 'version = 1\n[setup]\ncommands = ["echo no such package >&2; exit 3"]\n'


def fetch_or_leave_out(sample: str, command: list[str], cwd: Path, env: dict[str, str] | None = None) -> None:
    """Fetch packages of others; leave the running test out, and say so, where no registry answers."""
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired as error:
        pytest.skip(f"{sample} was NOT run: its packages cannot be fetched here: {error}")
    if done.returncode:
        pytest.skip(f"{sample} was NOT run: its packages cannot be fetched here: {(done.stdout + done.stderr)[-300:]}")


@dataclass(frozen=True)
class Sample:
    """A sample's command line, among the workers of an engine; `cwd`: where it runs."""

    command: tuple[str, ...]
    engine: Engine
    cwd: Path

    async def run(self, *args: str, code: int = 0, timeout: float = 120) -> str:
        """Return what it printed; it has to end with `code`."""
        stranger = Stranger(self.engine.client.service_client.config.target_host, self.cwd)
        stranger.env["TEMPORAL_NAMESPACE"] = self.engine.client.namespace
        stranger.env["PATH"] = self.engine.env.get("PATH", os.environ["PATH"])
        return await stranger.runs(*self.command, *args, code=code, timeout=timeout)


async def play_story(sample: Sample, name: str) -> None:
    """Start, attach, follow, say, approve and read the result; then be refused, fail with a type, and cancel."""
    engine, origin = sample.engine, make_target(sample.cwd / "calc.git")
    calls = engine.model_calls()
    request = {"repository": str(origin), "request": "Add sub", "phases": ["plan", "build", "ship"]}
    planned = json.dumps({**request, "gates": ["plan"], "config": QUICK})

    lines = (await sample.run(f"{name}-1", planned)).splitlines()
    assert lines[0] == f"attached {name}-1 {origin} Add sub"
    assert [line.split()[0] for line in lines[1:] if not line.startswith("phase")] == ["approved", "delivered"], lines
    assert {"phase plan", "phase build"} <= {*lines}, lines
    assert engine.rehearsal is not None
    heard = [call for call in engine.rehearsal.calls[calls:] if "Mind the sign" in json.dumps(call.body["messages"])]
    assert heard, "no turn has read what was said"
    assert lines[-1] == f"delivered perdure/{name}-1"

    again = (await sample.run(f"{name}-1", planned)).splitlines()
    assert (again[0], again[-1]) == (lines[0], lines[-1])
    assert len(pulls(origin)) == 1

    misspelt = await sample.run(f"{name}-2", json.dumps({"repository": str(origin), "reqest": "x"}), code=1)
    assert "reqest: unknown field (did you mean request?)" in misspelt

    failed = await sample.run(f"{name}-3", json.dumps({**request, "config": BROKEN}), code=1)
    assert "not_delivered setup_failed: " in failed
    assert "no such package" in failed

    await engine.submit(origin, id=f"{name}-4", phases=["plan"], gates=["plan"])
    await until(lambda: _waits(engine, f"{name}-4"))
    assert "cancel" in (await sample.run(f"{name}-4", "cancel", code=1)).lower()
    assert (await engine.handle(f"{name}-4").describe()).status == WorkflowExecutionStatus.CANCELED


async def _waits(engine: Engine, id: str) -> bool:
    return (await engine.perdure.delivery(id).describe()).pending_decision is not None
