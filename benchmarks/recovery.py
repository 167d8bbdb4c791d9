"""How long a SIGKILL of the worker holds a delivery up, and how soon a cancel reaches a running tool.

`make bench-recovery`: 100 kills at random moments of scripted turns of under half a second, heartbeat timeout 30 s.
Recovery is counted from the signal to the next turn's request at the model's API: report, restart, replay, redone turn.
The machine's load is printed beside the figures: a new worker takes as long to start as the machine lets it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from perdure.local.places import read_running_supervisor
from tests.engine import Engine, finished, make_target, until

KILLS = int(os.environ.get("KILLS", "100"))
A_DELIVERY = 20
"""Kills in one: a conversation of hundreds of turns would be measured instead."""

CANCELS = 5
P95_TARGET_S, CANCEL_TARGET_S = 3.0, 2.0
SEED = int(os.environ.get("SEED", "20261121"))
CONFIG = "version = 1\n[setup]\ncommands = []\n[limits]\nturns_per_step = 500\n"

TURNS = "title = 'turns'\n" + "".join(
    f"""
[[line]]
step = "implement"
turn = {turn}
seconds = 0.2
use = [{{ tool = "bash", input = {{ command = "echo {turn} >> turns.txt; sleep 0.1" }} }}]
"""
    for turn in range(1, 10 * A_DELIVERY)
)

SLEEP = """
title = "sleep"
[[line]]
step = "implement"
use = [{ tool = "bash", input = { command = "touch started; sleep 300" } }]
"""


async def recoveries(root: Path, rng: random.Random) -> list[float]:
    """Seconds from each SIGKILL to the next request."""
    origin = make_target(root / "calc.git")
    waits = []
    async with Engine.open(root, TURNS, ports=22000, env={"PYTHONASYNCIODEBUG": ""}, own_server=True) as engine:
        engine.supervised()
        for first in range(0, KILLS, A_DELIVERY):
            for wait in await _killed(engine, origin, f"calc-{first}", min(A_DELIVERY, KILLS - first), rng):
                waits.append(wait)
                print(f"kill {len(waits):3}  {wait:5.2f} s  load {os.getloadavg()[0]:.1f}", flush=True)
    return waits


async def _killed(engine: Engine, origin: Path, id: str, kills: int, rng: random.Random) -> list[float]:
    """So many kills in one delivery, which is cancelled then."""
    waits = []
    before = engine.model_calls()
    submitted = await engine.submit(origin, id=id, phases=["build"], config=CONFIG)
    await until(lambda: engine.model_calls() >= before + 3)
    for _ in range(kills):
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        record = read_running_supervisor(engine.home)
        assert record is not None
        assert record.worker_pid is not None
        calls, killed = engine.model_calls(), time.perf_counter()
        os.kill(record.worker_pid, signal.SIGKILL)
        await until(lambda seen=calls: engine.model_calls() > seen, timeout=60, every=0.005)
        waits.append(time.perf_counter() - killed)
        # Two more turns, so that no turn dies three times.
        calls = engine.model_calls()
        await until(lambda seen=calls: engine.model_calls() >= seen + 2, timeout=60)
    await submitted.delivery.cancel()
    result = await finished(submitted, engine)
    assert result.receipt.replies_paid_twice == 0
    return waits


async def cancels(root: Path) -> list[float]:
    """Seconds from the cancel request to the end of the workflow, with a tool running."""
    origin = make_target(root / "calc.git")
    waits = []
    async with Engine.open(root, SLEEP, ports=22000, env={"PYTHONASYNCIODEBUG": ""}, own_server=True) as engine:
        engine.worker()
        for number in range(CANCELS):
            submitted = await engine.submit(origin, id=f"sleep-{number}", phases=["build"], config=CONFIG)
            await until((engine.home.tree(f"sleep-{number}") / "started").exists)
            asked = time.perf_counter()
            await submitted.delivery.cancel()
            await finished(submitted, engine)
            waits.append(time.perf_counter() - asked)
    return waits


def p95(waits: list[float]) -> float:
    """The least that 95 of 100 do not exceed."""
    return sorted(waits)[max(0, -(-95 * len(waits) // 100) - 1)]


def show(name: str, waits: list[float]) -> None:
    figures = f"median {statistics.median(waits):.2f} s, p95 {p95(waits):.2f} s, worst {max(waits):.2f} s"
    print(f"{name}: {figures} over {len(waits)}")


async def main() -> int:
    before = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
        recovered = await recoveries(Path(scratch) / "kills", random.Random(SEED))
        cancelled = await cancels(Path(scratch) / "cancels")
    show("SIGKILL to next turn", recovered)
    show("cancel to closed, tool running", cancelled)
    print(f"targets: {P95_TARGET_S:g} s for the p95 of recovery, {CANCEL_TARGET_S:g} s for the median of cancelling")
    print(
        f"load: {' '.join(f'{load:.1f}' for load in (*before, *os.getloadavg()))} (1, 5, 15 minutes, before and after)"
    )
    kept = p95(recovered) <= P95_TARGET_S and statistics.median(cancelled) <= CANCEL_TARGET_S
    return 0 if kept else 1


if __name__ == "__main__":
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit
