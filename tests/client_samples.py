"""The samples of examples/clients as somebody runs them, and the story that each of them has to play."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import ScheduleOverlapPolicy, WorkflowExecutionStatus
from temporalio.service import RPCError

from perdure.local.places import temporal_binary
from perdure.local.server import find_server
from perdure.models.errors import BadInput
from tests.engine import Engine, make_target, until

CLIENTS = Path(__file__).parents[1] / "examples" / "clients"
FETCH_S = 300
_TRIES = 3
_LATE = re.compile("deadline|time.?out", re.IGNORECASE)
"""In the error of a sample that has not waited for a busy worker. Run again, it attaches to what it started."""
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

    async def run(self, *args: str, code: int = 0, timeout: float = 200) -> str:
        """Return what it printed; it has to end with `code`."""
        server = await find_server(self.engine.home)
        assert server is not None
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "PYTHONPATH"))}
        env |= {
            "TEMPORAL_ADDRESS": server.address,
            "TEMPORAL_NAMESPACE": server.namespace,
            "TEMPORAL_UI": server.ui_url,
        }
        env["PATH"] = f"{temporal_binary().parent}{os.pathsep}{env['PATH']}"
        options: dict[str, Any] = {
            "cwd": self.cwd,
            "env": env,
            "capture_output": True,
            "text": True,
            "timeout": timeout,
        }
        for _ in range(_TRIES):
            done = await asyncio.to_thread(subprocess.run, (*self.command, *args), check=False, **options)
            if not (done.returncode and _LATE.search(done.stderr)):
                break
        assert done.returncode == code, f"{self.command}, {args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if code else "")


async def play_story(sample: Sample, name: str) -> None:
    """Start, attach, follow, say, approve and read the result; then be refused, fail with a type, and cancel."""
    engine, origin = sample.engine, make_target(sample.cwd / "calc.git")
    assert engine.rehearsal is not None
    calls = engine.model_calls()
    request = {"repository": str(origin), "request": "Add sub", "phases": ["plan", "build", "ship"]}
    planned = json.dumps({**request, "gates": ["plan"], "config": QUICK})

    lines = (await sample.run(f"{name}-1", planned)).splitlines()
    assert lines[0] == f"attached {name}-1 {origin} Add sub"
    assert {"phase plan", "phase build"} <= {*lines}, lines
    assert len([line for line in lines if line.startswith("approved ")]) == 1, lines
    heard = [call for call in engine.rehearsal.calls[calls:] if "Mind the sign" in json.dumps(call.body["messages"])]
    assert heard, "no turn has read what was said"
    delivered = json.loads(lines[-1])
    assert (delivered["status"], delivered["branch"]) == ("delivered", f"perdure/{name}-1")
    assert delivered["pull_request"]["url"] == f"{origin}#pull/1"

    again = (await sample.run(f"{name}-1", planned)).splitlines()
    assert again[0] == lines[0], "not attached to what has ended"
    assert json.loads(again[-1])["run_id"] == delivered["run_id"], "it was started a second time"

    misspelt = await sample.run(f"{name}-2", json.dumps({"repository": str(origin), "reqest": "x"}), code=1)
    assert "reqest: unknown field (did you mean request?)" in misspelt

    failed = await sample.run(f"{name}-3", json.dumps({**request, "config": BROKEN}), code=1)
    not_delivered = json.loads(next(line for line in failed.splitlines() if line.startswith("{")))
    assert (not_delivered["status"], not_delivered["reason"]) == ("not_delivered", "setup_failed")
    assert "no such package" in not_delivered["message"]

    await engine.submit(origin, id=f"{name}-4", phases=["plan"], gates=["plan"])
    await until(lambda: _waits(engine, f"{name}-4"))
    assert "cancel" in (await sample.run(f"{name}-4", "cancel", code=1)).lower()
    assert (await engine.handle(f"{name}-4").describe()).status == WorkflowExecutionStatus.CANCELED


async def _waits(engine: Engine, id: str) -> bool:
    with suppress(RPCError, BadInput):  # it has not begun yet
        return (await engine.perdure.delivery(id).describe()).pending_decision is not None
    return False


async def play_child(sample: Sample, name: str) -> None:
    """Have a delivery as the child of a workflow in another language; a cancellation of the parent ends both."""
    engine, origin = sample.engine, make_target(sample.cwd / "calc.git")
    request = {"repository": str(origin), "request": "Add sub", "config": QUICK}
    printed = await sample.run(f"{name}-parent", json.dumps({**request, "phases": ["build", "ship"]}))
    assert f"{origin}#pull/1" in printed.splitlines()

    waits = json.dumps({**request, "phases": ["plan"], "gates": ["plan"]})
    running = asyncio.create_task(sample.run(f"{name}-cancelled", waits, code=1))
    await until(lambda: _waits(engine, f"{name}-cancelled-delivery"))
    await engine.handle(f"{name}-cancelled").cancel()
    assert "cancel" in (await running).lower()
    for id in (f"{name}-cancelled-delivery", f"{name}-cancelled"):
        assert (await engine.handle(id).describe()).status == WorkflowExecutionStatus.CANCELED, id


async def play_schedule(sample: Sample, name: str) -> None:
    """Schedule a delivery for every night; where it is triggered, one begins under the schedule's id and the time."""
    engine, origin, id = sample.engine, make_target(sample.cwd / "calc.git"), f"{name}-nightly"
    request = {"repository": str(origin), "request": "Add sub", "phases": ["plan"], "gates": ["plan"]}
    assert (await sample.run(id, json.dumps(request))).splitlines()[-1] == f"scheduled {id}"
    schedule = engine.client.get_schedule_handle(id)
    described = await schedule.describe()
    assert described.schedule.policy.overlap == ScheduleOverlapPolicy.SKIP
    assert {(time.hour, time.minute) for time in described.info.next_action_times} <= {(1, 0), (2, 0)}  # UTC
    await schedule.trigger()

    async def begun() -> str:
        actions = (await schedule.describe()).info.recent_actions
        return str(actions[-1].action.workflow_id) if actions else ""  # type: ignore[union-attr]

    started = await until(begun)
    assert re.fullmatch(rf"{id}-\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ", started)
    await until(lambda: _waits(engine, started))
    await engine.handle(started).cancel()
    await schedule.delete()
