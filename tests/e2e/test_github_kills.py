"""SIGKILL inside `open_pull_request`, beside faults of GitHub: one pull request, one comment, nobody else's branch.

One fixed seed in the suite; `make chaos-github` does a hundred kills.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from perdure.models.delivery.result import Status
from tests.engine import finished, git, heads, until
from tests.engine_with_github import BUILD, ID, EngineWithGitHub, engine_with_github
from tests.fork_server import Kept

KILLS = 8 if "FORGE_KILLS" in os.environ else 4
"""Tried in one delivery of `make chaos-github`, and of the suite.

One that comes when a fault has just ended the attempt kills an idle worker."""

REQUESTS = 7
"""Of the ten or so that an undisturbed attempt asks of GitHub, git's included: each kill comes after some of them."""

OPERATIONS = ("pulls/list", "pulls/create", "pulls/update", "issues/add-labels", "git/push", "git/fetch", "*")
FAULTS = ("bad_gateway", "bad_gateway_after", "cut", "cut_after", "slow", "secondary", "rate_limit")


def _seeds() -> list[int]:
    first, _, last = os.environ.get("FORGE_KILLS", "1").partition("-")
    return list(range(int(first), int(last or first) + 1))


def _attempts(world: EngineWithGitHub) -> int:
    """How often an attempt at the pull request has begun."""
    journal = world.engine.home.workspace(ID) / "journal.jsonl"
    lines = journal.read_text().splitlines() if journal.exists() else []
    return sum('"open_pull_request"' in line for line in lines if _whole(line))


def _whole(line: str) -> bool:
    try:
        return bool(json.loads(line))
    except ValueError:
        return False


async def _kill(world: EngineWithGitHub, kept: Kept, rng: random.Random) -> None:
    seen = 0
    for _ in range(KILLS):
        await until(lambda: _attempts(world) > seen, timeout=120, every=0.01)  # noqa: B023
        seen = _attempts(world)
        if rng.random() < 0.4:
            world.github.faults.add(rng.choice(OPERATIONS), rng.choice(FAULTS), times=1, retry_after=1.0)
        asked = len(world.github.calls) + rng.randint(0, REQUESTS)
        with suppress(AssertionError):
            await until(lambda: len(world.github.calls) >= asked, timeout=2, every=0.002)  # noqa: B023
        await asyncio.sleep(rng.uniform(0.0, 0.03))
        kept.worker.kill()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", _seeds())
async def test_a_worker_killed_while_it_opens_the_pull_request_opens_exactly_one(
    seed: int, tmp_path: Path, ports: int
) -> None:
    rng = random.Random(seed)
    async with engine_with_github(tmp_path, BUILD, ports=ports) as world:
        git(world.bare, "branch", "somebody/else", "main")
        git(world.bare, "branch", "perdure/calc-issue-10", "main")
        before = heads(world.bare)
        worker = world.engine.kept()
        submitted = await world.build()
        killing = asyncio.create_task(_kill(world, worker, rng))
        try:
            result = await finished(submitted, world.engine, timeout=240)
        finally:
            killing.cancel()
        print(f"seed {seed}: {result.receipt}")
        assert result.status is Status.DELIVERED, (result.message, world.engine.worker_log()[-3000:])
        after = heads(world.bare)
        assert {name: after[name] for name in before} == before
        for name in ("somebody/else", "perdure/calc-issue-10"):
            git(world.bare, "branch", "-D", name)
        world.check_one(result)
