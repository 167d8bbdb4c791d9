"""How long a SIGKILL of the worker holds a delivery up, and how soon a cancel reaches a running tool.

`make bench-recovery`: 20 kills at random moments of scripted turns of under half a second, heartbeat timeout 30 s.
Recovery is counted from the signal to the next turn's request at the model's API: report, restart, replay, redone turn.
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

from perdure.local.supervisor import read_supervisor
from tests.lab import Lab, finished, make_target, until

KILLS = int(os.environ.get("KILLS", "20"))
CANCELS = 5
TARGET_S, CANCEL_TARGET_S = 3.0, 2.0
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
    for turn in range(1, 10 * KILLS)
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
    async with Lab.open(root, TURNS, ports=22000, env={"PYTHONASYNCIODEBUG": ""}) as lab:
        lab.supervised()
        submitted = await lab.submit(origin, phases=["build"], config=CONFIG)
        await until(lambda: lab.model_calls() >= 3)
        for number in range(KILLS):
            await asyncio.sleep(rng.uniform(0.0, 0.5))
            record = read_supervisor(lab.home)
            assert record is not None
            calls, killed = lab.model_calls(), time.perf_counter()
            os.kill(record.worker_pid, signal.SIGKILL)
            await until(lambda seen=calls: lab.model_calls() > seen, timeout=60, every=0.005)
            waits.append(time.perf_counter() - killed)
            print(f"kill {number + 1:2}  {waits[-1]:5.2f} s", flush=True)
            # Two more turns, so that no turn dies three times.
            calls = lab.model_calls()
            await until(lambda seen=calls: lab.model_calls() >= seen + 2, timeout=60)
        await submitted.delivery.cancel()
        result = await finished(submitted, lab)
        assert result.receipt.replies_paid_twice == 0
    return waits


async def cancels(root: Path) -> list[float]:
    """Seconds from the cancel request to the end of the workflow, with a tool running."""
    origin = make_target(root / "calc.git")
    waits = []
    async with Lab.open(root, SLEEP, ports=22000, env={"PYTHONASYNCIODEBUG": ""}) as lab:
        lab.worker()
        for number in range(CANCELS):
            submitted = await lab.submit(origin, id=f"sleep-{number}", phases=["build"], config=CONFIG)
            await until((lab.home.tree(f"sleep-{number}") / "started").exists)
            asked = time.perf_counter()
            await submitted.delivery.cancel()
            await finished(submitted, lab)
            waits.append(time.perf_counter() - asked)
    return waits


def show(name: str, waits: list[float], target: float) -> bool:
    median, worst = statistics.median(waits), max(waits)
    print(f"{name}: median {median:.2f} s, worst {worst:.2f} s over {len(waits)} (target {target:g} s for the median)")
    return median <= target


async def main() -> int:
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
        recovered = await recoveries(Path(scratch) / "kills", random.Random(SEED))
        cancelled = await cancels(Path(scratch) / "cancels")
    kept = show("SIGKILL to next turn", recovered, TARGET_S)
    return 0 if show("cancel to closed, tool running", cancelled, CANCEL_TARGET_S) and kept else 1


if __name__ == "__main__":
    code = asyncio.run(main())
    sys.stdout.flush()
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit
