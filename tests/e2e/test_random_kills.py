"""SIGKILL at random moments: whatever was cut off, exactly one correct pull request comes out.

One fixed seed in the suite, another in `make test-slow`; `RANDOM_KILLS=100-139 make test
TESTS=tests/e2e/test_random_kills.py` for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError

from perdure.client import Delivery
from perdure.models.errors import PerdureError
from tests.fork_server import Kept
from tests.lab import FIXES, Lab, check_shipped, finished, make_target, until

SHIPPED = {
    "calc.py": (
        "def add(a, b):\n    return a + b\n\n\n"
        'def sub(a, b):\n    """The difference of two numbers."""\n    return a - b\n'
    )
}
KILLS = 5
CALM_S = 3.0
"""Longest time a worker works before the next kill: several turns, or none."""


def _seeds() -> list[Any]:
    if chosen := os.environ.get("RANDOM_KILLS"):
        first, _, last = chosen.partition("-")
        return list(range(int(first), int(last or first) + 1))
    return [1, pytest.param(2, marks=pytest.mark.slow)]


async def _kill(lab: Lab, kept: Kept, rng: random.Random) -> None:
    """KILLS kills, or fewer when the delivery ends before."""
    journal = lab.home.workspace("calc-sub") / "journal.jsonl"
    for _ in range(KILLS):
        seen = _lines(journal)
        await until(lambda: _lines(journal) > seen, every=0.01)  # noqa: B023  # the new worker has begun something
        await asyncio.sleep(rng.uniform(0.0, CALM_S))
        kept.worker.kill()


async def _say_yes(delivery: Delivery) -> None:
    """To the question after the third death of one turn, which chance may bring about."""
    while True:
        with contextlib.suppress(PerdureError, RPCError):  # a dead worker does not answer
            if (await delivery.describe()).asked is not None:
                await delivery.approve()
        await asyncio.sleep(0.2)


def _lines(journal: Path) -> int:
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", _seeds())
async def test_a_worker_killed_at_random_moments_ships_exactly_one_pull_request(
    seed: int, tmp_path: Path, ports: int
) -> None:
    rng = random.Random(seed)
    origin = make_target(tmp_path / "calc.git")
    async with Lab.open(tmp_path, FIXES, ports=ports) as lab:
        worker = lab.kept()
        submitted = await lab.submit(origin)
        beside = [asyncio.create_task(_kill(lab, worker, rng)), asyncio.create_task(_say_yes(submitted.delivery))]
        try:
            result = await finished(submitted, lab, timeout=120)
        finally:
            for task in beside:
                task.cancel()
        print(f"seed {seed}: {result.receipt} {[said.model_dump() for said in result.decisions]}")
        check_shipped(origin, lab, result, SHIPPED)
        causes = [why for _, why in await lab.redone()]
        assert "WorkerDied" in causes, "nobody reported any of the deaths"
        assert causes.count("timeout") <= 1, f"time-outs decided, not the living: {causes}"
        assert result.receipt.replies_cut <= result.receipt.worker_deaths
        assert result.receipt.turns_redone <= result.receipt.worker_deaths <= KILLS
