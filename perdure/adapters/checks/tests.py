"""Run the repository's own test commands in the sandbox: each one's exit code is judged, its report read as evidence,
and each new failure run again. `activities.run_tests` and `perdure init` run all of them; experiments run one command
or one test at a time. How a command's result is made is in `checks.command_result`."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perdure.adapters.checks.baseline import command_key, compare_with_base, rerun_new_failures, results_by_command
from perdure.adapters.checks.command_result import make_command_result
from perdure.adapters.checks.compiler_caches import CompilerCache
from perdure.adapters.checks.junit import find_junit_files
from perdure.adapters.checks.report_receiver import ClosedReport, PipedReport
from perdure.adapters.checks.runners import make_invocation, narrow_to_tests
from perdure.adapters.checks.runners.base import Invocation, StartupModule
from perdure.adapters.checks.verdict import find_refused_writes, fix_note, refused_writes_message, result_line
from perdure.adapters.sandbox.base import GitView, Sandbox, SandboxCommand, SandboxResult
from perdure.adapters.sandbox.environment import results_path_inside
from perdure.adapters.system.directories import remove_path
from perdure.adapters.system.threads import in_thread
from perdure.models.checks.report import CommandResult, TestCase, TestReport
from perdure.models.config.repository import SandboxGrade, TestCommand
from perdure.models.duration import parse_duration
from perdure.models.limits import CASE_NAME_CHARS
from perdure.text import shorten

TEST_SCRIPT_BYTES = 100_000
"""Bytes of a command that selects one test by its name: Linux takes 128 KiB in one argument, and a name can be
longer."""

_LAST_OWN_EXIT_CODE = 128
"""The last exit code of a command that was not ended by a signal: what that leaves may be half."""


@dataclass(frozen=True)
class Baseline:
    """The report of the same commands on the base commit; `name` is its branch, for people."""

    report: TestReport
    name: str


@dataclass(frozen=True)
class CommandPlace:
    """The place commands run in; what is not named here is as in SandboxCommand.

    log_dir         outside the tree: takes `test-<n>.log` and the report files, those of an earlier run removed
    held            paths of `source` that are read-only for commands
    compiler_cache  what compilers have made of the base; None, and in the weaker grades: each run begins with
                    nothing
    startup         a module that each Python or node of the command loads first
    linked_at       as in SandboxCommand
    renew           makes `source` clean again, before it is run in once more; None: it stays as it is
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
    compiler_cache: CompilerCache | None = None
    startup: StartupModule | None = None
    linked_at: Path | None = None
    renew: Callable[[], object] | None = None

    @property
    def tree(self) -> Path:
        """Return the tree under test, where this process sees it."""
        return self.source or self.worktree

    async def make_clean(self) -> None:
        """Call `renew` in a thread, where there is one."""
        if self.renew is not None:
            await in_thread(self.renew)


async def run_tests(
    common_place: CommandPlace,
    *,
    commands: Sequence[TestCommand],
    commit: str,
    tree: str,
    on_progress: Callable[[str], None],
    baseline: Baseline | None = None,
    held: Callable[[TestCommand], tuple[str, ...]] = lambda _: (),
    within_s: float | None = None,
) -> TestReport:
    """Run all commands one after the other and return their report, each new failure run once more before it counts.

    common_place  the place of all of them; made clean before each command but the first, for none may prepare the next,
                  and before a failure is tried once more
    commit, tree  what is tested, for the report
    on_progress   called with one line when a command starts and when it ended: `pytest: 44 green`
    baseline      what to compare with; None: every failure is new, and the report has no comparison and no note
    held          gives the paths of `source` that are read-only for a command; only grade `full` can make them so
    within_s      a command that has not begun after so many seconds is left out of the report; None: all are run

    With a baseline the report marks each failure as new or known, and has a note that tells the agent what to mend.
    Raises SandboxUnavailable or WorkCutOff when the sandbox, not the command, failed, and before either what the
    place's `fence` raises: Superseded when a newer attempt owns the work.
    """
    base_results = results_by_command(baseline.report) if baseline else {}
    results: list[CommandResult] = []
    started_at = time.monotonic()
    for number, test in enumerate(commands, start=1):
        if within_s is not None and time.monotonic() - started_at >= within_s:
            on_progress(f"{test.name}: left out, the time for all is over")
            continue
        on_progress(f"{test.name}: running")
        if results:
            await common_place.make_clean()
        place = replace(common_place, held=held(test) if common_place.sandbox.grade is SandboxGrade.FULL else ())
        first_result = await run_once(place, test, f"{number}")
        rerun = _CommandRerun(place, test, number, on_progress)
        result = await rerun_new_failures(first_result, base_results.get(command_key(test)), rerun)
        killed_runs = first_result.killed_runs + rerun.killed_runs
        results.append(result.model_copy(update={"killed_runs": killed_runs}) if killed_runs else result)
        on_progress(f"{test.name}: {result_line(results[-1])}")
    report = TestReport(commit=commit, tree=tree, commands=tuple(results))
    if baseline is None:
        uncompared = tuple(result.model_copy(update={"since": None}) for result in results)
        return report.model_copy(update={"commands": uncompared})
    report = compare_with_base(report, baseline.report, baseline.name)
    return report.model_copy(update={"note": fix_note(report)})


class _CommandRerun:
    """Runs a command once more, as a whole or for one test alone, within the time the command itself may take."""

    def __init__(
        self,
        place: CommandPlace,
        test: TestCommand,
        number: int,
        on_progress: Callable[[str], None],
    ) -> None:
        self._place, self._test, self._number, self._on_progress = place, test, number, on_progress
        self._remaining_s, self._count, self.killed_runs = parse_duration(test.timeout), 0, 0

    async def __call__(self, case: TestCase | None) -> CommandResult | None:
        """Run the command once more, as a whole or for one test alone, and return the result; None, and nothing is run,
        where the time for reruns is over or the runner cannot select the case.

        Reports one line, makes the tree clean again before the run, and takes the run's duration off the time that is
        left. Raises SandboxUnavailable, WorkCutOff or Superseded as run_tests does.
        """
        if self._remaining_s <= 0:
            return None
        self._count += 1
        label = f"{self._number}-again-{self._count}"
        reports, call = await _prepare_invocation(self._place, self._test, label, *([case] if case else []))
        if call is None:
            return None
        self._on_progress(f"{self._test.name}: again" + (f", alone: {shorten(case.name, 100)}" if case else ""))
        await self._place.make_clean()
        result = await _run_invocation(self._place, self._test, label, reports, call, self._remaining_s)
        self._remaining_s -= result.duration_s
        self.killed_runs += result.killed_runs
        return result


async def _prepare_invocation(
    place: CommandPlace, test: TestCommand, label: str, *cases: TestCase
) -> tuple[Path, Invocation | None]:
    """Make an empty directory for reports below `log_dir`, and return it with the command's invocation, as a whole or
    for these tests alone. Nothing is run, and the invocation's files are not written yet.

    The invocation is None where these tests cannot be selected, a name was cut, or they make the script longer than
    TEST_SCRIPT_BYTES.
    """
    reports = await in_thread(_make_empty_directory, place.log_dir, f"reports-{label}-")
    shown_at = results_path_inside(place.sandbox.grade) or reports
    tree, installed = place.tree / test.directory, place.worktree / test.directory
    call = await in_thread(make_invocation, test, shown_at, tree, installed, place.env)
    if place.startup is not None:
        call = place.startup.add_to(call, shown_at, place.env)
    call = call.with_host_paths(shown_at, reports)
    if not cases:
        return reports, call
    if any(len(case.name) > CASE_NAME_CHARS for case in cases):  # its beginning: the runner knows it by another one
        return reports, None
    narrowed = narrow_to_tests(call, test.command, cases, place.env)
    return reports, narrowed if narrowed is not None and len(narrowed.script.encode()) <= TEST_SCRIPT_BYTES else None


async def run_once(place: CommandPlace, test: TestCommand, label: str) -> CommandResult:
    """Run a test command once and return its result, compared with nothing.

    label  names its log and its report

    Raises SandboxUnavailable or WorkCutOff when the sandbox, not the command, failed, Superseded when a newer attempt
    owns the work.
    """
    reports, call = await _prepare_invocation(place, test, label)
    assert call is not None
    return await _run_invocation(place, test, label, reports, call, parse_duration(test.timeout))


async def run_alone(place: CommandPlace, test: TestCommand, label: str, *cases: TestCase) -> CommandResult | None:
    """Run these tests of a command alone and return the result; None, and nothing is run, where its runner cannot
    select them. Raises SandboxUnavailable or WorkCutOff when the sandbox, not the command, failed, Superseded when a
    newer attempt owns the work."""
    reports, call = await _prepare_invocation(place, test, label, *cases)
    return (
        await _run_invocation(place, test, label, reports, call, parse_duration(test.timeout))
        if call is not None
        else None
    )


async def _run_invocation(
    place: CommandPlace, test: TestCommand, label: str, reports: Path, call: Invocation, timeout_s: float
) -> CommandResult:
    """Run a prepared invocation as `_run_prepared` does, and return the command's result.

    Where a signal that somebody had sent ended it, the run shows nothing: the tree is made clean again, and it is run
    once more, counted in `killed_runs` of the result. What is killed a second time has failed: it kills itself, or does
    not fit this host. Raises what `_run_prepared` raises.
    """
    result, is_killed = await _run_prepared(place, test, label, reports, call, timeout_s)
    if not is_killed:
        return result
    await place.make_clean()
    await in_thread(_empty_directory, reports)
    result, _ = await _run_prepared(place, test, label, reports, call, timeout_s)
    return result.model_copy(update={"killed_runs": 1})


async def _run_prepared(
    place: CommandPlace, test: TestCommand, label: str, reports: Path, call: Invocation, timeout_s: float
) -> tuple[CommandResult, bool]:
    """Run a prepared invocation in the sandbox, with its output in `test-<label>.log`, and return the command's result,
    and whether a signal that somebody had sent ended it.

    Removes that log and the reports of an earlier run first, and writes the files that the invocation needs. Where the
    command's directory is not in the tree, nothing is run and the result is `not_started`. The reason of a failure
    names the writes to the read-only test side that were refused. Raises SandboxUnavailable or WorkCutOff when the
    sandbox, not the command, failed, Superseded when a newer attempt owns the work.
    """
    sandbox_command = SandboxCommand(
        script=call.script,
        worktree=place.worktree,
        inside=place.inside,
        linked_at=place.linked_at,
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
        results_at=results_path_inside(place.sandbox.grade),
        read_only_paths=place.held,
        trace=test.trace,
    )
    if not await in_thread(_is_inside, place.tree, test.directory):
        return _missing_directory_result(test), False
    await in_thread(_prepare_run, sandbox_command, call, place.tree)
    report_copy = place.log_dir / f"report-{label}"
    if place.compiler_cache is not None and place.sandbox.grade is SandboxGrade.FULL:  # others would show it
        finished, call = await _run_with_compiler_cache(
            place.compiler_cache, place.sandbox, sandbox_command, call, report_copy
        )
    else:
        finished, call = await _run_and_receive(place.sandbox, sandbox_command, call, report_copy)
    await in_thread(finished.raise_for_failure, sandbox_command, f'[[test]] "{test.name}"')
    result = await in_thread(make_command_result, test, call, finished, sandbox_command)
    refused_paths = (
        find_refused_writes(result, place.held, sandbox_command.shown_at)
        if place.held and result.verdict != "passed"
        else ()
    )
    if refused_paths:
        result = result.model_copy(update={"reason": f"{result.reason}; {refused_writes_message(refused_paths)}"})
    return result, finished.is_killed and result.exit_code == finished.exit_code


async def _run_with_compiler_cache(
    compiler_cache: CompilerCache,
    sandbox: Sandbox,
    sandbox_command: SandboxCommand,
    call: Invocation,
    report_copy: Path,
) -> tuple[SandboxResult, Invocation]:
    """Run a command as `_run_and_receive` does, with copies of what compilers have made of the base; the copies are
    removed afterwards, also after an error.

    Where this is the base's own run and it ended by an exit code of its own, what it has compiled is stored.
    """
    assert sandbox_command.results is not None
    ended = False
    try:
        finished, call = await _run_and_receive(
            sandbox, await in_thread(compiler_cache.lend_copies, sandbox_command), call, report_copy
        )
        ended = not finished.failure and finished.exit_code is not None and finished.exit_code <= _LAST_OWN_EXIT_CODE
        return finished, call
    finally:
        await in_thread(compiler_cache.reclaim_copies, sandbox_command.results, ended=ended)


async def _run_and_receive(
    sandbox: Sandbox, sandbox_command: SandboxCommand, call: Invocation, report_copy: Path
) -> tuple[SandboxResult, Invocation]:
    """Run a command, and return how it ended, with the invocation, whose `report` is now where the report can be read.

    The report of a runner that writes it in one go is copied to `report_copy` while the command runs, where the command
    cannot change it afterwards; any other stays where it is.
    """
    if call.report is None or call.writing == "anyhow":
        return await sandbox.run_command(sandbox_command), call
    receiver = await in_thread(PipedReport if call.writing == "through" else ClosedReport, call.report, report_copy)
    try:
        finished = await sandbox.run_command(sandbox_command)
    finally:
        await in_thread(receiver.close)
    return finished, replace(call, report=report_copy)


def _is_inside(tree: Path, directory: str) -> bool:
    """Return whether a directory exists in the tree, links followed."""
    path = (tree / directory).resolve()
    return path.is_dir() and path.is_relative_to(tree.resolve())


def _missing_directory_result(test: TestCommand) -> CommandResult:
    """Return the result of a command that could not start, because its directory does not exist."""
    return CommandResult(
        name=test.name,
        command=test.command,
        directory=test.directory,
        required=test.required,
        verdict="not_started",
        reason=f"there is no directory {test.directory}",
    )


def _prepare_run(command: SandboxCommand, call: Invocation, tree: Path) -> None:
    """Remove the output and the reports of an earlier run, and write the files that the invocation needs."""
    command.output.unlink(missing_ok=True)
    for file, text in call.files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for report in find_junit_files(tree, call.collect) if call.collect else ():
        report.unlink(missing_ok=True)  # only what this run leaves is its report


def _empty_directory(directory: Path) -> None:
    """Remove what is in a directory."""
    for path in directory.iterdir():
        remove_path(path)


def _make_empty_directory(log_dir: Path, prefix: str) -> Path:
    """Remove earlier directories in `log_dir` whose names begin with `prefix`, as far as possible, and return a new one
    with such a name.

    It is new even where an earlier one cannot be removed, so that no report of an earlier run is read as this one's.
    """
    log_dir.mkdir(parents=True, exist_ok=True)
    for earlier in log_dir.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            remove_path(earlier)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=log_dir))
