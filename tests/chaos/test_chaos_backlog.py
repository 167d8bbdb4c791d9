"""The example's backlog while its worker and its server are killed and its base moves: the same landed result, and
nothing paid twice.

A fixed seed with a few kills in the suite; `make chaos-backlog KILLS=20 SEED=1000` as many as a machine has time for.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from perdure.cli.backlog.receipt import read_receipt
from perdure.cli.backlog.start import read_backlog_file
from perdure.client import Backlog
from perdure.demo.demos import answer_questions
from perdure.demo.environment import DemoDirectories, build_repository
from perdure.local.places import examples_directory
from perdure.models.backlog.state import BacklogProgress
from perdure.models.errors import PerdureError
from tests.chaos.faults import strike
from tests.chaos.left import left_behind, left_by_gc
from tests.chaos.oracle import Wrong, money
from tests.chaos.world import PATIENCE_S, World, answered, chaos_engine
from tests.engine import git

ID = "night"
KILLS = ("kill worker", "kill worker", "kill server")
"""What dies at a random moment: the worker twice as often as the server."""

SPEECH_S = 0.5
"""Seconds each reply takes, so that kills find some of them half said."""

BETWEEN_S = 5.0
"""The longest pause between two kills: a worker takes over within one second, a server is there again after two."""

SOME = ("milliseconds", "halves", "invoice")
"""Of the example, in the suite: one that lands, one that fails at first, and one that is blocked by it."""

LANDED = {
    "milliseconds": ("tests/test_milliseconds.py",),
    "fortnights": ("tests/test_fortnights.py",),
    "total": ("durations/total.py", "tests/test_total.py"),
    "average": ("durations/average.py", "tests/test_average.py"),
    "clamp": ("durations/clamp.py", "tests/test_clamp.py"),
    "limits": ("durations/limits.py", "tests/test_limits.py"),
    "halves": ("durations/rounding.py", "tests/test_halves.py"),
    "invoice": ("durations/invoice.py", "tests/test_invoice.py"),
}
"""Files each item changes, beside durations/units.py, which the first two share."""


def _nights() -> list[tuple[int, int, tuple[str, ...]]]:
    """Seed, kills and items of each."""
    if chaos := os.environ.get("CHAOS_BACKLOG", ""):
        first, kills, count = (int(number) for number in chaos.split(":"))
        return [(seed, kills, tuple(LANDED)) for seed in range(first, first + count)]
    return [(7, 4, SOME)]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "kills", "items"), _nights())
async def test_a_backlog_lands_the_same_though_worker_and_server_are_killed(
    seed: int, kills: int, items: tuple[str, ...], tmp_path: Path, ports: int
) -> None:
    place, rng = DemoDirectories(tmp_path), random.Random(seed)
    build_repository(place)
    material = examples_directory() / "backlog"
    screenplay = re.sub(r"^seconds = .*$", f"seconds = {SPEECH_S}", (material / f"{ID}.toml").read_text(), flags=re.M)
    raw = read_backlog_file(str(material / f"{ID}.yaml")).raw
    raw |= {"repository": str(place.origin), "items": [item for item in raw["items"] if item["id"] in items]}
    base = git(place.origin, "rev-parse", "main")
    print(f"seed {seed}: {kills} kills, {len(items)} items")
    async with chaos_engine(tmp_path, screenplay, ports) as engine:
        world = World(engine, rng, place.origin, base, ID, engine.supervised())
        backlog = (await answered(lambda: engine.perdure.submit_backlog(raw, ID))).backlog
        killing = asyncio.create_task(_kill(world, kills, place.checkout))
        try:
            blocked = await _watched(world, backlog)
            progress = await answered(backlog.result)
            receipt = await answered(lambda: read_receipt(backlog, progress))
        finally:
            killing.cancel()
            [broken] = await asyncio.gather(killing, return_exceptions=True)
            for struck in world.struck:
                print(f"  {struck.began - world.struck[0].began:6.1f} s  {struck.kind}: {struck.detail}")
        print(f"  {' '.join(receipt.lines())}; {len(world.struck)} kills")
        wrong = Wrong([repr(broken)] if isinstance(broken, Exception) else [])
        wrong.unless(blocked.get("invoice") == "halves", f"blocked meanwhile: {blocked}")
        wrong.unless(receipt.clean, str(receipt.lines()))
        _landed(world, progress, items, wrong)
        money(world, wrong)
        world.supervisor.terminate()
        await asyncio.to_thread(world.supervisor.wait, PATIENCE_S)
        wrong += left_behind(world)
        wrong += await left_by_gc(world)
        assert not wrong, "\n".join([f"seed {seed}", *wrong, engine.worker_log()[-6000:]])


async def _kill(world: World, kills: int, checkout: Path) -> None:
    """Whatever runs then: while it is begun, built, landed, or the one before is taken over. In the middle somebody
    pushes to the base."""
    for number in range(kills):
        if number == kills // 2:
            world.base = await asyncio.to_thread(_push, checkout)
        await asyncio.sleep(world.rng.uniform(0.1, BETWEEN_S))
        await strike(world, world.rng.choice(KILLS))


async def _watched(world: World, backlog: Backlog) -> dict[str, str]:
    """Until the end; a person says yes to what the kills make Perdure ask, and retries what failed. Return what was
    blocked meanwhile, and by what."""
    blocked: dict[str, str] = {}
    async with asyncio.timeout(PATIENCE_S * 3):
        while (await answered(backlog.describe)).running:
            with suppress(PerdureError, TimeoutError):
                progress = await answered(backlog.progress)
                blocked |= {view.id: view.blocked_by for view in progress.items if view.phase == "blocked"}
                await answered(lambda at=progress: answer_questions(world.engine.perdure, at))  # type: ignore[misc]
                for view in progress.items:
                    if view.phase == "failed":
                        print(f"  retried: {view.id}: {view.because}")
                        await backlog.retry(view.id)
            await asyncio.sleep(0.2)
    return blocked


def _push(checkout: Path) -> str:
    (checkout / "NEWS.md").write_text("Durations are rounded.\n")
    git(checkout, "add", "NEWS.md")
    git(checkout, "commit", "-q", "-m", "News")
    git(checkout, "push", "-q", "origin", "HEAD:main")
    return git(checkout, "rev-parse", "HEAD")


def _landed(world: World, progress: BacklogProgress, items: tuple[str, ...], wrong: Wrong) -> None:
    """Read from git: each item once, on one line of commits, each of them green as it is there; nothing else."""
    origin, branch = world.origin, progress.branch
    phases = {view.id: view.phase for view in progress.items}
    wrong.unless(phases == dict.fromkeys(items, "landed"), f"{phases}")
    told = "--format=%(trailers:key=Perdure-Item,valueonly,separator=%x2C)"
    order = git(origin, "log", "--reverse", told, f"main..{branch}").split()
    wrong.unless(sorted(order) == sorted(items), f"landed: {order}")
    parents = git(origin, "rev-list", "--reverse", "--parents", f"main..{branch}").splitlines()
    wrong.unless(all(len(line.split()) == 2 for line in parents), "the branch is not one line of commits")
    expected = {"durations/units.py", *(file for item in items for file in LANDED[item])}
    changed = set(git(origin, "diff", "--name-only", "main", branch).split())
    wrong.unless(changed == expected, f"changed: {sorted(changed ^ expected)}")
    wrong.unless(git(origin, "rev-parse", "main") == world.base, "main was moved by somebody else")
    wrong.unless(git(origin, "merge-base", "main", branch) == world.base, "the branch did not follow its base")
    for repository in (origin, *world.engine.home.vaults.glob("*.git")):
        git(repository, "fsck", "--strict", "--connectivity-only")
    green = world.root / "green"
    git(world.root, "clone", "-q", str(origin), str(green))
    for line in parents:
        git(green, "checkout", "-q", line.split()[0])
        ran = subprocess.run(
            [sys.executable, "-B", "-m", "tests"], cwd=green, capture_output=True, text=True, timeout=PATIENCE_S
        )
        wrong.unless(ran.returncode == 0, f"red as it landed: {line[:7]}: {ran.stderr[-500:]}")
