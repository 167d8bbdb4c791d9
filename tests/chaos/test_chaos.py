"""Whole deliveries under random faults: kills, sleep, resets, cancels, damaged worktrees, partners that are away.

One fixed seed in the suite, on GitHub and with fixes; `make chaos N=40 SEED=1000` for as many others as a machine has
time for.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from perdure.models.delivery.result import SUCCESSES, DeliveryResult
from tests.chaos.faults import random_kinds, storm
from tests.chaos.left import left_behind, left_by_gc
from tests.chaos.oracle import histories, judge, target
from tests.chaos.stories import STORIES, told
from tests.chaos.world import PATIENCE_S, World, answered, opened

FAULTS = (3, 6) if "CHAOS" in os.environ else (4, 5)
"""At least and at most, in one delivery of `make chaos`, and of the suite."""

CALM_S = 2.0
"""The longest pause between the moment a fault waits for and the fault."""

SHORT_CALM_S = 0.5
"""The same in a fixed order, all of which has to strike before the delivery ends."""

RETRIES = 6
"""As often as a person would; each must have a fault that explains it."""


def _seeds() -> list[int]:
    first, _, count = os.environ.get("CHAOS", "").partition(":")
    if first:
        return list(range(int(first), int(first) + int(count or 1)))
    return [38]  # cancel, dead tool, reset, dead worker, dead supervisor, two faults of the model


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", _seeds())
async def test_a_delivery_under_random_faults_ends_as_if_nothing_had_happened(
    seed: int, tmp_path: Path, ports: int
) -> None:
    rng = random.Random(seed)
    story = STORIES[seed % len(STORIES)]
    screenplay, model = told(story, rng)
    print(f"seed {seed}: {story.name}, model: {', '.join(model) or 'well'}")
    async with opened(tmp_path, story, screenplay, rng, ports) as world:
        wrong = await _survive(world, random_kinds(rng, rng.randint(*FAULTS)), CALM_S)
        assert not wrong, "\n".join([f"seed {seed}", *wrong, world.engine.worker_log()[-6000:]])


ORDERS = (
    ("stop worker", "remove worktrees", "power cut", "kill tool"),
    ("kill tool", "power cut", "remove worktrees", "kill fork server"),
    ("remove worktrees", "kill supervisor", "stop worker", "cancel"),
    ("power cut", "stop worker", "dirty worktree", "remove worktrees"),
)
"""Deaths of which the first order has left a worktree for good, and others of its kind."""


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kinds", ORDERS, ids=", ".join)
async def test_nothing_is_left_behind_whichever_order_the_deaths_come_in(
    kinds: tuple[str, ...], tmp_path: Path, ports: int
) -> None:
    rng = random.Random(ORDERS.index(kinds))
    story = next(story for story in STORIES if story.name == "fixes")  # enough turns for each to strike
    async with opened(tmp_path, story, told(story, rng)[0], rng, ports) as world:
        world.search_s = PATIENCE_S
        wrong = await _survive(world, kinds, SHORT_CALM_S)
        struck = tuple(fault.kind for fault in world.struck if fault.detail)
        wrong += [] if struck == kinds else [f"the delivery ended after {struck}"]
        assert not wrong, "\n".join([*wrong, world.engine.worker_log()[-6000:]])


async def _survive(world: World, kinds: Sequence[str], calm_s: float) -> list[str]:
    """Deliver under these faults, end all that runs, and return what is wrong then, or left."""
    before = target(world.root / "calc.git-work")
    await _submit(world)
    raging = asyncio.create_task(storm(world, kinds, calm_s))
    try:
        result = await _ended(world, raging)
        runs = await histories(world)
    finally:
        raging.cancel()
        [broken] = await asyncio.gather(raging, return_exceptions=True)
        for struck in world.struck:
            print(f"  {struck.began - world.struck[0].began:6.1f} s  {struck.kind}: {struck.detail}")
    print(f"  {result.status} {result.receipt}")
    wrong = await judge(world, result, runs)
    wrong += [f"{world.struck[-1].kind} could not be done: {broken!r}"] if isinstance(broken, Exception) else []
    world.supervisor.terminate()
    await asyncio.to_thread(world.supervisor.wait, PATIENCE_S)
    wrong += left_behind(world)
    wrong += await left_by_gc(world)
    return wrong + ([] if target(world.root / "calc.git-work") == before else ["the person's checkout was touched"])


async def _submit(world: World) -> None:
    if world.github is not None:
        repository: dict[str, object] = {"repository": f"{world.github.url}/me/calc", "issue": 1}
    else:
        repository = {"repository": str(world.origin), "request": "Add sub"}
    await answered(lambda: world.engine.perdure.submit(repository, id=world.id))


async def _ended(world: World, raging: asyncio.Task[None]) -> DeliveryResult:
    """The end, after as many retries as the faults explain; whoever is asked to go on says yes."""
    delivery, retries = world.engine.perdure.delivery(world.id), 0
    async with asyncio.timeout(PATIENCE_S * 2):
        while True:
            described = await answered(delivery.describe)
            if described.running:
                if described.pending_decision is not None and "approve" in described.pending_decision.options:
                    await answered(delivery.approve)
                await asyncio.sleep(0.2)
                continue
            result = await answered(delivery.result)
            if result.status in SUCCESSES or retries >= RETRIES or not _explained(world, result):
                return result
            retries, world.cancelled = retries + 1, False
            print(f"  retried after {result.status} {result.reason or ''}: {result.message[:100]}")
            await answered(delivery.retry)


def _explained(world: World, result: DeliveryResult) -> bool:
    """True when a person would have expected this end, having seen the faults."""
    if result.status == "cancelled":
        return world.cancelled
    return result.reason == "limits" and "3 times" in result.message and len(world.struck) >= 3
