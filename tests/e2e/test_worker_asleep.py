"""A worker that sleeps for longer than its heartbeats may be missing, as on a laptop whose lid was closed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.commands import carried_out
from tests.engine import BUILT, HAPPY, Engine, finished, make_target, until
from tests.processes import family

SLOW = HAPPY.replace("sleep 0.5", "touch started && sleep 5")


@pytest.mark.timeout(240)
async def test_it_is_no_death_and_the_receipt_is_not_contradicted(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, SLOW, ports=ports) as engine:
        worker = engine.worker()
        submitted = await engine.submit(origin, **BUILT)
        await until((engine.home.tree("calc-sub") / "started").exists)
        asleep = [process.pid for process in family(worker.pid)]
        for pid in asleep:
            os.kill(pid, signal.SIGSTOP)

        async def is_missed() -> bool:
            return any(activity.silent for activity in (await submitted.delivery.describe()).pending)

        try:
            await until(is_missed, 60)
        finally:
            for pid in asleep:
                os.kill(pid, signal.SIGCONT)
        result = await finished(submitted, engine)
        assert result.receipt.worker_deaths == 0
        (act,) = [act for act in (await submitted.delivery.past()).activities if act.died]
        assert act.silent
        code, out = await carried_out(engine, "-m", "perdure.cli", "verify", "calc-sub")
        assert (code, "contradicted" in out) == (0, False), out
