"""The repository's own tests: every command run, its exit code judged, its report read as evidence."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perdure.adapters.checks.baseline import by_command, command, compared
from perdure.adapters.checks.flakes import settled
from perdure.adapters.checks.held import refused, written_to
from perdure.adapters.checks.judgement import judged
from perdure.adapters.checks.junit import left_behind
from perdure.adapters.checks.received import ClosedReport, Piped
from perdure.adapters.checks.runners import alone, invocation
from perdure.adapters.checks.runners.base import Invocation
from perdure.adapters.checks.seeds import Seed
from perdure.adapters.checks.verdict import line, note
from perdure.adapters.sandbox.base import Command, Finished, GitView, Sandbox
from perdure.adapters.sandbox.environment import results_place
from perdure.adapters.system.removal import remove
from perdure.adapters.system.threads import in_thread
from perdure.models.amounts import seconds
from perdure.models.config import SandboxGrade, TestCommand
from perdure.models.report import CommandResult, TestCase, TestReport

TEST_SCRIPT_BYTES = 100_000
"""Of a command that selects one test by its name: Linux takes 128 KiB in one argument, and a name can be longer."""

_OF_ITS_OWN = 128
"""The last exit code of a command that was not ended by a signal: what that leaves may be half."""


@dataclass(frozen=True)
class Baseline:
    """The report of the same commands on the base commit; `name` is its branch, for people."""

    report: TestReport
    name: str


@dataclass(frozen=True)
class CommandPlace:
    """The place commands run in; what is not named here is as in sandbox Command.

    log_dir  outside the tree: takes `test-<n>.log` and the report files, those of an earlier run removed
    held     paths of `source` that commands may not write to
    seed     what compilers have made of the base; None, and in the weaker grades: each run begins with nothing
    """

    sandbox: Sandbox
    worktree: Path
    log_dir: Path
    inside: Path | None = None
    source: Path | None = None
    shared: tuple[str, ...] = ()
    git_dir: Path | GitView | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    lock: Path | None = None
    fence: Callable[[], None] | None = None
    held: tuple[str, ...] = ()
    seed: Seed | None = None

    @property
    def tree(self) -> Path:
        """The tree under test, where this process sees it."""
        return self.source or self.worktree


async def run_tests(
    shown: CommandPlace,
    *,
    commands: Sequence[TestCommand],
    commit: str,
    tree: str,
    on_progress: Callable[[str], None],
    baseline: Baseline | None = None,
    renew: Callable[[], object] | None = None,
    held: Callable[[TestCommand], tuple[str, ...]] = lambda _: (),
    within_s: float | None = None,
) -> TestReport:
    """Run all commands one after the other.

    commit, tree what is tested, for the report
    on_progress  called with one line when a command starts and when it ended: `pytest: 44 green`
    baseline     what to compare with; None: every failure is new
    renew        makes `source` clean again: before each command but the first, for none may prepare the next, and
                 before a failure is tried once more; None: it stays as it is
    held         paths of `source` that this command may not write to; only grade `full` keeps them
    within_s     a command that has not begun after so many seconds is left out of the report; None: all are run

    Raises SandboxUnavailable or WorkCutOff when the sandbox, not the command, failed, and what `fence` raises.
    """
    before = by_command(baseline.report) if baseline else {}
    results: list[CommandResult] = []
    began = time.monotonic()
    for number, test in enumerate(commands, start=1):
        if within_s is not None and time.monotonic() - began >= within_s:
            on_progress(f"{test.name}: left out, the time for all is over")
            continue
        on_progress(f"{test.name}: running")
        if results and renew is not None:
            await in_thread(renew)
        place = replace(shown, held=held(test) if shown.sandbox.grade is SandboxGrade.FULL else ())
        first = await run_once(place, test, f"{number}")
        again = _Again(place, test, number, on_progress, renew)
        results.append(await settled(first, before.get(command(test)), again))
        on_progress(f"{test.name}: {line(results[-1])}")
    report = TestReport(commit=commit, tree=tree, commands=tuple(results))
    if baseline is None:
        unknown = tuple(result.model_copy(update={"since": None}) for result in results)
        return report.model_copy(update={"commands": unknown})
    report = compared(report, baseline.report, baseline.name)
    return report.model_copy(update={"note": note(report)})


class _Again:
    """Runs a command once more, as a whole or for one test alone, within the time the command itself may take."""

    def __init__(
        self,
        place: CommandPlace,
        test: TestCommand,
        number: int,
        on_progress: Callable[[str], None],
        renew: Callable[[], object] | None,
    ) -> None:
        self._place, self._test, self._number = place, test, number
        self._say, self._renew = on_progress, renew
        self._left, self._count = seconds(test.timeout), 0

    async def __call__(self, case: TestCase | None) -> CommandResult | None:
        if self._left <= 0:
            return None
        self._count += 1
        label = f"{self._number}-again-{self._count}"
        reports, call = await _plain(self._place, self._test, label, case)
        if call is None:
            return None
        self._say(f"{self._test.name}: again" + (f", alone: {case.name[:100]}" if case else ""))
        if self._renew is not None:
            await in_thread(self._renew)
        result = await _run(self._place, self._test, label, reports, call, self._left)
        self._left -= result.duration_s
        return result


async def _plain(
    place: CommandPlace, test: TestCommand, label: str, case: TestCase | None = None
) -> tuple[Path, Invocation | None]:
    """Its invocation, as a whole or for one test alone; None where that one cannot be selected."""
    reports = await in_thread(_fresh, place.log_dir, f"reports-{label}-")
    seen = results_place(place.sandbox.grade) or reports
    tree, installed = place.tree / test.directory, place.worktree / test.directory
    call = await in_thread(invocation, test, seen, tree, installed, place.env)
    call = call.moved(seen, reports)
    if case is None:
        return reports, call
    one = alone(call, test.command, case, place.env)
    return reports, one if one is not None and len(one.script.encode()) <= TEST_SCRIPT_BYTES else None


async def run_once(place: CommandPlace, test: TestCommand, label: str) -> CommandResult:
    """One command, once; `label` names its log and its report. Raises as run_tests does."""
    reports, call = await _plain(place, test, label)
    assert call is not None
    return await _run(place, test, label, reports, call, seconds(test.timeout))


async def run_alone(place: CommandPlace, test: TestCommand, label: str, case: TestCase) -> CommandResult | None:
    """Likewise, one test of it alone; None where its runner cannot select that one."""
    reports, call = await _plain(place, test, label, case)
    return await _run(place, test, label, reports, call, seconds(test.timeout)) if call is not None else None


async def _run(
    place: CommandPlace, test: TestCommand, label: str, reports: Path, call: Invocation, timeout_s: float
) -> CommandResult:
    wanted = Command(
        script=call.script,
        worktree=place.worktree,
        inside=place.inside,
        directory=test.directory,
        output=place.log_dir / f"test-{label}.log",
        timeout_s=timeout_s,
        source=place.source,
        shared=place.shared,
        git_dir=place.git_dir,
        env={**place.env, **call.env},
        lock=place.lock,
        fence=place.fence,
        results=reports,
        results_at=results_place(place.sandbox.grade),
        held=place.held,
    )
    if not await in_thread(_is_inside, place.tree, test.directory):
        return _absent(test)
    await in_thread(_make_ready, wanted, call, place.tree)
    kept = place.log_dir / f"report-{label}"
    if place.seed is not None and place.sandbox.grade is SandboxGrade.FULL:  # others would show it
        finished, call = await _seeded(place.seed, place.sandbox, wanted, call, kept)
    else:
        finished, call = await _received(place.sandbox, wanted, call, kept)
    await in_thread(finished.raise_for, wanted, f'[[test]] "{test.name}"')
    result = await in_thread(judged, test, call, finished, wanted)
    paths = refused(result, place.held, wanted.seen) if place.held and result.verdict != "passed" else ()
    return result.model_copy(update={"reason": f"{result.reason}; {written_to(paths)}"}) if paths else result


async def _seeded(
    seed: Seed, sandbox: Sandbox, wanted: Command, call: Invocation, kept: Path
) -> tuple[Finished, Invocation]:
    """As `_received`, with copies of what compilers have made of the base."""
    assert wanted.results is not None
    ended = False
    try:
        finished, call = await _received(sandbox, await in_thread(seed.lend, wanted), call, kept)
        ended = not finished.failure and finished.exit_code is not None and finished.exit_code <= _OF_ITS_OWN
        return finished, call
    finally:
        await in_thread(seed.take_back, wanted.results, ended=ended)


async def _received(sandbox: Sandbox, wanted: Command, call: Invocation, kept: Path) -> tuple[Finished, Invocation]:
    """The command, run; a report that is taken over meanwhile is kept there, out of its reach."""
    if call.report is None or call.written == "anyhow":
        return await sandbox.run(wanted), call
    receiver = await in_thread(Piped if call.written == "through" else ClosedReport, call.report, kept)
    try:
        finished = await sandbox.run(wanted)
    finally:
        await in_thread(receiver.close)
    return finished, replace(call, report=kept)


def _is_inside(tree: Path, directory: str) -> bool:
    path = (tree / directory).resolve()
    return path.is_dir() and path.is_relative_to(tree.resolve())


def _absent(test: TestCommand) -> CommandResult:
    return CommandResult(
        name=test.name,
        command=test.command,
        directory=test.directory,
        required=test.required,
        verdict="not_started",
        reason=f"there is no directory {test.directory}",
    )


def _make_ready(command: Command, call: Invocation, tree: Path) -> None:
    command.output.unlink(missing_ok=True)
    for file, text in call.files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for old in left_behind(tree, call.collect) if call.collect else ():
        old.unlink(missing_ok=True)  # only what this run leaves is its report


def _fresh(log_dir: Path, prefix: str) -> Path:
    """A directory nobody has written to: a report of an earlier run, removable or not, is never read as this one's."""
    log_dir.mkdir(parents=True, exist_ok=True)
    for old in log_dir.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            remove(old)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=log_dir))
