"""One run of a test command for an experiment, in a checkout of its own: a tree of base and change laid out where the
worktree is otherwise, its test side (tests, their data, and what steers them) read-only and compared afterwards. The
order of runs and what follows from them are in `run_experiment`; the read-only test side serves ordinary test runs,
too."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.adapters.checks.experiment.commit_pair import TreeLayout, find_command_runner
from perdure.adapters.checks.experiment.side_rules import SideRules, is_writable, parent_directories
from perdure.adapters.checks.runners.base import append_options
from perdure.adapters.checks.tests import CommandPlace, run_alone, run_once
from perdure.adapters.checks.trees import CommitTree
from perdure.adapters.git.repository import Repository
from perdure.adapters.sandbox.environment import OTHER_CHECKOUT
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread, tree_walk_lock
from perdure.models.checks.report import CommandResult, TestCase
from perdure.models.config.repository import SandboxGrade, TestCommand
from perdure.models.crash import CrashPoint
from perdure.models.duration import parse_duration

EXPERIMENT_PATIENCE = 3
"""The factor by which a command's time-out is longer in an experiment: three runs are beside each other where it had
been alone, and one that is cut off would look as if the change had broken it."""


_SKIPPED = {".git", ".venv", "node_modules", "__pycache__", ".pytest_cache"}


_PROGRESS_TEXTS = {
    "b": "the base's tests on the change",
    "b-shared": "the base's tests on the change, with its settings",
    "b-again": "the base's tests on the change, again",
    "b-rest": "the base's tests on the change that were not reached, without the failing ones",
    "b-alone": "a test of the base on the change, again and alone",
    "c": "tests that must fail",
    "c-again": "tests that must fail, again",
    "c-change": "tests that must fail, among the change's",
    "d": "the change's tests on the base",
    "e": "the change's tests, its new functions stubbed",
    "e-plain": "the change's new tests, alone",
    "base": "the base's tests",
    "base-c": "tests that must fail, on the base",
    "other": "the base's tests on the change, under other conditions",
    "base-other": "the base's tests, under other conditions",
    "change": "the change's tests",
}

_CRASH_POINTS = {
    "b": (CrashPoint.DURING_BASE_TESTS,),
    "c": (CrashPoint.DURING_CANARIES,),
    "d": (CrashPoint.DURING_PROOF,),
}


@dataclass(frozen=True)
class ExperimentSetting:
    """The place experiments run in.

    place      as for run_tests; its `source`, `log_dir` and `held` are set for each run
    lay_out    checks a tree of the repository out into a directory, in the place of what lies there
    put_away   removes such a checkout, or keeps it for another run
    directory  the engine's own, for checkouts and logs
    """

    place: CommandPlace
    repository: Repository
    lay_out: Callable[[str, Path], None]
    put_away: Callable[[Path], None]
    directory: Path


@dataclass(frozen=True)
class ExperimentRun:
    """A run: the result of the command, and the paths of the read-only test side that were written to meanwhile."""

    result: CommandResult
    written_paths: tuple[str, ...]


async def run_in_checkout(
    setting: ExperimentSetting, layout: TreeLayout, test: TestCommand, label: str, *cases: TestCase
) -> ExperimentRun | None:
    """Run a command once in a checkout of its own, and return its result with the paths of the test side that were
    written to meanwhile. The checkout is then given to `setting.put_away`, also after an error.

    label  part of the names of its directories; no other run has it
    cases  run these tests alone; None is returned where the runner cannot select them. None: the whole command

    In sandbox grade `full` the test side is mounted read-only. The command has EXPERIMENT_PATIENCE times its time-out.
    Raises SandboxUnavailable or WorkCutOff when the sandbox failed, and Superseded when a newer attempt owns the work.
    """
    source = setting.directory / f"clean-{label}"
    place, stamps_before = setting.place, dict[str, tuple[int, ...]]()

    def lay_out() -> None:
        stamps_before.clear()
        stamps_before.update(_lay_out(setting, layout, source, test))

    try:
        await in_thread(lay_out)
        full = place.sandbox.grade is SandboxGrade.FULL
        read_only_paths = await in_thread(layout.rules.read_only_paths, layout.paths, test.writes) if full else ()
        env = {**place.env, **{name: append_options(place.env, name, options) for name, options in layout.env.items()}}
        run_place = replace(
            place,
            source=source,
            held=read_only_paths,
            env=env,
            log_dir=setting.directory / f"logs-{label}",
            startup=layout.startup,
            renew=lay_out,
        )
        if layout.elsewhere and full:
            run_place = replace(run_place, inside=OTHER_CHECKOUT, linked_at=place.inside or place.worktree)
        patient_test = test.model_copy(update={"timeout": f"{parse_duration(test.timeout) * EXPERIMENT_PATIENCE:.0f}s"})
        result = await (
            run_alone(run_place, patient_test, label, *cases) if cases else run_once(run_place, patient_test, label)
        )
        stamps_after = await in_thread(stamp_test_side, layout.rules, source, test.writes)
    finally:
        await in_thread(setting.put_away, source)
    if result is None:
        return None
    written = sorted(
        path for path in {*stamps_before, *stamps_after} if stamps_before.get(path) != stamps_after.get(path)
    )
    return ExperimentRun(result, tuple(written))


@dataclass
class CommandRuns:
    """The runs of one command, none with the label of another.

    number       the command's, from 1
    on_progress  called with one line as each run begins
    killed_runs  of all of them, as in CommandResult
    """

    setting: ExperimentSetting
    test: TestCommand
    number: int
    on_progress: Callable[[str], None]
    run_count: int = 0
    killed_runs: int = 0

    async def run_whole(self, kind: str, layout: TreeLayout) -> ExperimentRun:
        """Run the whole command in a layout, report one line as it begins, and return the run.

        kind  one of _PROGRESS_TEXTS

        Raises SandboxUnavailable or WorkCutOff when the sandbox failed, Superseded when a newer attempt owns the work.
        """
        test_run = await self.run_selected(kind, layout)
        assert test_run is not None
        return test_run

    async def run_selected(self, kind: str, layout: TreeLayout, *cases: TestCase) -> ExperimentRun | None:
        """Report that a run of these tests alone begins, of the whole command where none is given, make it in a
        checkout under a label that no other run has, and return it; None where the runner cannot select them.

        kind  one of _PROGRESS_TEXTS

        Where a test of crashes has asked for it, this process is killed right afterwards. Raises SandboxUnavailable or
        WorkCutOff when the sandbox failed, Superseded when a newer attempt owns the work.
        """
        self.run_count += 1
        self.on_progress(f"{self.test.name}: {_PROGRESS_TEXTS[kind]}")
        test_run = await run_in_checkout(
            self.setting, layout, self.test, f"{self.number}-{kind}-{self.run_count}", *cases
        )
        self.killed_runs += test_run.result.killed_runs if test_run is not None else 0
        for point in _CRASH_POINTS.get(kind, ()):
            crash_point(point)
        return test_run


async def run_together(
    jobs: Sequence[Coroutine[None, None, ExperimentRun | None]], grade: SandboxGrade
) -> list[ExperimentRun | None]:
    """Run the jobs at the same time where each has a network of its own (grade `full`), else one after the other, and
    return their runs in the order of the jobs.

    The first error cancels the other jobs, and is raised when all have ended.
    """
    slots = asyncio.Semaphore(len(jobs) if grade is SandboxGrade.FULL else 1)  # otherwise they would share the ports

    async def run_in_slot(job: Coroutine[None, None, ExperimentRun | None]) -> ExperimentRun | None:
        async with slots:
            return await job

    tasks = [asyncio.ensure_future(run_in_slot(job)) for job in jobs]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for job in jobs:
            job.close()


def _lay_out(
    setting: ExperimentSetting, layout: TreeLayout, source: Path, test: TestCommand
) -> dict[str, tuple[int, ...]]:
    """Check the layout's tree out into `source`, write the texts of its overlay over it, and return path → stamp
    (inode, size, times) of its read-only files, without those the test may write."""
    setting.lay_out(layout.tree, source)
    for path, text in layout.overlay.items():
        (source / path).write_bytes(text.encode() if isinstance(text, str) else text)
    return _stamp_layout(layout, source, test.writes)


def _stamp_layout(layout: TreeLayout, source: Path, writes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return path → stamp (inode, size, times) of the test side's read-only files in a fresh checkout, by looking only
    at the layout's own paths. Left out: what the command may write, directories, `.git`, dependencies and caches."""
    stamps = dict[str, tuple[int, ...]]()
    for path in layout.paths:
        if layout.rules.is_read_only(path) and not is_writable(path, writes) and _SKIPPED.isdisjoint(path.split("/")):
            with suppress(FileNotFoundError, NotADirectoryError):
                status = os.lstat(source / path)
                if not stat.S_ISDIR(status.st_mode):  # of a submodule
                    stamps[path] = _stamp_of(status)
    return stamps


def _stamp_of(status: os.stat_result) -> tuple[int, ...]:
    """Return what of a file's status changes when somebody writes to the file, and cannot be set back: inode, size, and
    times of writing and of change in ns."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def stamp_test_side(rules: SideRules, source: Path, writes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return path → stamp (inode, size, times) of each file of a checkout's test side that is to be protected from
    writing. Lock files, `.git`, dependencies and caches are left out, and so is what the command may write.

    writes  paths that the command may write

    A stamp changes when somebody writes to the file, and cannot be set back. Waits while another thread walks over a
    tree.
    """
    with tree_walk_lock:
        return _walk_test_side(rules, source, writes)


def _walk_test_side(rules: SideRules, source: Path, writes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return path → stamp (inode, size, times) of each file of a checkout's test side that is to be protected from
    writing, without what may be written; lock files, `.git`, dependencies and caches are skipped."""
    stamps, pending = dict[str, tuple[int, ...]](), [""]
    while pending:
        directory = pending.pop()
        with os.scandir(source / directory) as entries:
            for entry in entries:
                path = f"{directory}/{entry.name}" if directory else entry.name
                if entry.name in _SKIPPED:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif rules.is_read_only(path) and not is_writable(path, writes):
                    stamps[path] = _stamp_of(entry.stat(follow_symlinks=False))
    return stamps


@dataclass(frozen=True)
class ReadOnlyTestSide:
    """The test side of one commit: the rules that tell it, and all paths of the commit."""

    rules: SideRules
    paths: tuple[str, ...]

    @classmethod
    def from_commit(
        cls, repository: Repository, commit: str, tests: Sequence[TestCommand], side: Sequence[str]
    ) -> ReadOnlyTestSide:
        """Read the files of a commit, and return its test side. Raises GitError when there is no such commit.

        tests  the test commands
        side   patterns of `[tests] side`
        """
        tree = CommitTree.from_commit(repository, commit)
        commands = [(test, find_command_runner(tree, test)) for test in tests]
        return cls(SideRules.from_tree(tree, commands, side), tuple(sorted(tree.entries)))

    def paths_for_command(self, test: TestCommand) -> tuple[str, ...]:
        """Return the paths that are mounted read-only for a command: the test side without what the command may
        write."""
        return self.rules.read_only_paths(self.paths, test.writes)

    def stamp_files(self, source: Path, test: TestCommand) -> dict[str, tuple[int, ...]]:
        """Return path → stamp of the test side's files in a checkout, without those that the command may write; a stamp
        differs once somebody has written to the file."""
        return stamp_test_side(self.rules, source, test.writes)

    def writable_paths(self, written_paths: Iterable[str]) -> tuple[str, ...]:
        """Return the paths that must be made writable so that these files can be written, without repetitions.

        Of each file: the outermost directory above it that the commit does not have, or else the file itself.
        """
        commit_directories = {part for path in self.paths for part in parent_directories(path)}
        return tuple(
            dict.fromkeys(
                next((part for part in parent_directories(path) if part not in commit_directories), path)
                for path in sorted(written_paths)
            )
        )
