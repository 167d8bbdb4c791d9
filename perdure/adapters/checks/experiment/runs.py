"""One run: a tree laid out where the worktree is otherwise, its test side read-only and looked at afterwards."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.adapters.checks.experiment.commits import Layout
from perdure.adapters.checks.experiment.sides import Sides, allowed
from perdure.adapters.checks.runners.base import append_options
from perdure.adapters.checks.tests import CommandPlace, run_alone, run_once
from perdure.adapters.git.repository import Repository
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread, tree_walk_lock
from perdure.models.amounts import parse_duration
from perdure.models.config import SandboxGrade, TestCommand
from perdure.models.crash import CrashPoint
from perdure.models.report import CommandResult, TestCase

EXPERIMENT_PATIENCE = 3
"""Times the time-out of a command, for its runs in an experiment: three are beside each other where it had been alone,
and one that is cut off would look as if the change had broken it."""


_SKIPPED = {".git", ".venv", "node_modules", "__pycache__", ".pytest_cache"}


_SAID = {
    "b": "the base's tests on the change",
    "b-shared": "the base's tests on the change, with its settings",
    "b-again": "the base's tests on the change, again",
    "b-alone": "a test of the base on the change, again and alone",
    "bc": "the base's tests on the change, made to fail at their ends",
    "c": "tests that must fail",
    "c-again": "tests that must fail, again",
    "c-change": "tests that must fail, among the change's",
    "d": "the change's tests on the base",
    "base": "the base's tests",
    "base-c": "tests that must fail, on the base",
    "change": "the change's tests",
}

_CRASHES = {
    "b": (CrashPoint.DURING_BASE_TESTS,),
    "bc": (CrashPoint.DURING_BASE_TESTS, CrashPoint.DURING_CANARIES),
    "c": (CrashPoint.DURING_CANARIES,),
    "d": (CrashPoint.DURING_PROOF,),
}


@dataclass(frozen=True)
class Setting:
    """The place experiments run in.

    place    as for run_tests; its `source`, `log_dir` and `held` are the engine's
    lay_out  checks a tree of the repository out into a directory, in the place of what lies there
    away     removes such a checkout, or keeps it for another
    room     a directory of the engine's own, for checkouts and logs
    """

    place: CommandPlace
    repository: Repository
    lay_out: Callable[[str, Path], None]
    away: Callable[[Path], None]
    room: Path


@dataclass(frozen=True)
class Ran:
    result: CommandResult
    written: tuple[str, ...]


async def run(
    ground: Setting, layout: Layout, test: TestCommand, label: str, case: TestCase | None = None
) -> Ran | None:
    """One command in a checkout of its own, which is gone afterwards. `label`: no other run has it.

    case  this test alone; the result is None where its runner cannot select that one
    """
    source = ground.room / f"clean-{label}"
    place = ground.place
    try:
        before = await in_thread(_laid_out, ground, layout, source, test)
        full = place.sandbox.grade is SandboxGrade.FULL
        held = await in_thread(layout.rules.held, layout.paths, test.writes) if full else ()
        env = {**place.env, **{name: append_options(place.env, name, options) for name, options in layout.env.items()}}
        there = replace(place, source=source, held=held, env=env, log_dir=ground.room / f"logs-{label}")
        patient = test.model_copy(update={"timeout": f"{parse_duration(test.timeout) * EXPERIMENT_PATIENCE:.0f}s"})
        result = await (run_alone(there, patient, label, case) if case else run_once(there, patient, label))
        after = await in_thread(looked_at, layout.rules, source, test.writes)
    finally:
        await in_thread(ground.away, source)
    if result is None:
        return None
    written = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return Ran(result, tuple(written))


@dataclass
class Runs:
    """The runs of one command, none with the label of another. `say`: told of each as it begins."""

    ground: Setting
    test: TestCommand
    number: int
    say: Callable[[str], None]
    count: int = 0

    async def whole(self, what: str, layout: Layout) -> Ran:
        ran = await self._run(what, layout, None)
        assert ran is not None
        return ran

    async def alone(self, layout: Layout, case: TestCase) -> Ran | None:
        """None where the runner cannot select that one."""
        return await self._run("b-alone", layout, case)

    async def _run(self, what: str, layout: Layout, case: TestCase | None) -> Ran | None:
        self.count += 1
        self.say(f"{self.test.name}: {_SAID[what]}")
        ran = await run(self.ground, layout, self.test, f"{self.number}-{what}-{self.count}", case)
        for point in _CRASHES.get(what, ()):
            crash_point(point)
        return ran


async def beside(jobs: Sequence[Coroutine[None, None, Ran | None]], grade: SandboxGrade) -> list[Ran | None]:
    """All of them at once where each has a network of its own; the first error ends the others."""
    alone = asyncio.Semaphore(len(jobs) if grade is SandboxGrade.FULL else 1)  # else the ports can be had once

    async def one(job: Coroutine[None, None, Ran | None]) -> Ran | None:
        async with alone:
            return await job

    tasks = [asyncio.ensure_future(one(job)) for job in jobs]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for job in jobs:
            job.close()


def _laid_out(ground: Setting, layout: Layout, source: Path, test: TestCommand) -> dict[str, tuple[int, ...]]:
    ground.lay_out(layout.tree, source)
    for path, text in layout.over.items():
        (source / path).write_text(text)
    return _written(layout, source, test.writes)


def _written(layout: Layout, source: Path, writes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """As `looked_at`, of a checkout in which nothing but the layout's files can be: the rest is not walked through."""
    found = dict[str, tuple[int, ...]]()
    for path in layout.paths:
        if layout.rules.is_fixed(path) and not allowed(path, writes) and _SKIPPED.isdisjoint(path.split("/")):
            with suppress(FileNotFoundError, NotADirectoryError):
                status = os.lstat(source / path)
                if not stat.S_ISDIR(status.st_mode):  # of a submodule
                    found[path] = _stamp(status)
    return found


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def looked_at(rules: Sides, source: Path, writes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The test side as it lies there, without what may be written: what changes when somebody writes to a file, and
    cannot be set back."""
    with tree_walk_lock:
        return _looked_at(rules, source, writes)


def _looked_at(rules: Sides, source: Path, writes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    found, left = dict[str, tuple[int, ...]](), [""]
    while left:
        directory = left.pop()
        with os.scandir(source / directory) as entries:
            for entry in entries:
                path = f"{directory}/{entry.name}" if directory else entry.name
                if entry.name in _SKIPPED:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    left.append(path)
                elif rules.is_fixed(path) and not allowed(path, writes):
                    found[path] = _stamp(entry.stat(follow_symlinks=False))
    return found
