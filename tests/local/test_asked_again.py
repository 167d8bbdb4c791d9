"""Where a worker has just died, who asks is answered by the next one, and is told to start none beside it."""

from __future__ import annotations

import asyncio
import fcntl
import signal
from pathlib import Path
from typing import Any

import pytest

from perdure.client.server import calls
from perdure.local.connect import WORKER_RESTARTS
from perdure.local.places import Places
from perdure.models.limits import TASK_QUEUE
from tests.cli.conftest import Cli
from tests.engine import HAPPY, Engine, make_target
from tests.processes import send

pytestmark = pytest.mark.story


async def held(engine: Engine, workflow: str, request: dict[str, Any]) -> None:
    """A workflow that is there and begins nothing, of its type's name in small letters."""
    await engine.client.start_workflow(
        workflow, request, id=workflow.lower(), task_queue=TASK_QUEUE, start_signal="hold", start_signal_args=[{}]
    )


@pytest.mark.timeout(150)
async def test_who_asks_as_a_worker_dies_is_answered_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "QUERY_TRIES", 12)  # the third is answered, unless the next worker's start takes longer
    origin = str(make_target(tmp_path / "calc.git"))
    async with Engine.open(tmp_path, HAPPY) as engine:
        kept = engine.kept()
        await held(engine, "Backlog", {"repository": origin, "items": [{"id": "sub", "request": "Add sub"}]})
        await held(engine, "Delivery", {"repository": origin, "request": "Add sub"})
        backlog, delivery = engine.perdure.backlog("backlog"), engine.perdure.delivery("delivery")
        await asyncio.gather(backlog.progress(), delivery.progress())  # by a worker that they stay with
        first = kept.worker.pid
        send(first, signal.SIGKILL)
        standing, progress = await asyncio.gather(backlog.progress(), delivery.progress())
        assert [view.id for view in standing.items] == ["sub"]
        assert progress.status == "waiting"
        assert kept.worker.pid != first


@pytest.mark.timeout(150)
async def test_where_a_supervisor_lives_nobody_is_told_to_start_a_worker(tmp_path: Path) -> None:
    async with Engine.open(tmp_path, HAPPY) as engine:
        await held(engine, "Backlog", {"repository": "/r", "items": [{"id": "sub", "request": "Add sub"}]})
        cli = Cli(engine.home.root, tmp_path, engine.env)
        with Places(engine.home).supervisor_lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # as a supervisor does that is just starting a worker
            told = await asyncio.to_thread(cli, "backlog", "status", "backlog")
    assert told.err.splitlines() == [
        "error: no worker answers",
        "  where: backlog",
        f"  fix: {WORKER_RESTARTS}; the work goes on then",
    ]
    assert told.code == 1
