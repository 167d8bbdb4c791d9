"""The repository's own tests: every command run, its exit code judged, its report read as evidence."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.host.threads import in_thread
from perdure.adapters.project.junit import BadReport, read_junit
from perdure.adapters.project.output import flooded, tail
from perdure.adapters.project.runners import Invocation, invocation
from perdure.adapters.project.verdict import FAILING, line
from perdure.adapters.sandbox.base import Command, Finished, Sandbox
from perdure.models.config import TestCommand, seconds
from perdure.models.errors import SandboxUnavailable
from perdure.models.policy import TEST_TAIL_CHARS
from perdure.models.report import CommandResult, TestCase, TestReport

# Ways of saying "the runner is not installed" that do not exit with 127.
_NOT_INSTALLED = re.compile(r"No module named '?(pytest|coverage)'?$|^error: Failed to spawn: ", re.MULTILINE)


@dataclass(frozen=True)
class _Run:
    """One command that ended: what it was, how it ended, what it left."""

    test: TestCommand
    call: Invocation
    finished: Finished
    tail: str
    cases: tuple[TestCase, ...] = ()
    unread: str = ""


async def run_tests(
    sandbox: Sandbox,
    *,
    worktree: Path,
    source: Path | None,
    shared: tuple[str, ...],
    git_dir: Path | None,
    commands: Sequence[TestCommand],
    env: Mapping[str, str],
    log_dir: Path,
    lock: Path | None,
    commit: str,
    tree: str,
    on_progress: Callable[[str], None],
    fence: Callable[[], None] | None = None,
) -> TestReport:
    """Run all commands one after the other on one tree; arguments not named here are those of sandbox Command.

    log_dir      outside the tree: takes `test-<n>.log` and the report files, those of an earlier run removed
    commit, tree what is tested, for the report
    on_progress  called with one line when a command starts and when it ended: `pytest: 44 green`

    Raises SandboxUnavailable when the sandbox, not the command, failed, and what `fence` raises.
    """
    results: list[CommandResult] = []
    for number, test in enumerate(commands, start=1):
        on_progress(f"{test.name}: running")
        reports = await in_thread(_fresh, log_dir, f"reports-{number}-")
        call = await in_thread(invocation, test, reports, source or worktree, worktree, env)
        command = Command(
            script=call.script,
            worktree=worktree,
            output=log_dir / f"test-{number}.log",
            timeout_s=seconds(test.timeout),
            source=source,
            shared=shared,
            git_dir=git_dir,
            env={**env, **call.env},
            lock=lock,
            fence=fence,
            results=reports,
        )
        await in_thread(command.output.unlink, missing_ok=True)
        finished = await sandbox.run(command)
        if finished.failure:
            raise SandboxUnavailable(finished.failure, where=f'[[test]] "{test.name}"', fix="run `perdure doctor`")
        results.append(await in_thread(_judged, test, call, finished, command))
        on_progress(f"{test.name}: {line(results[-1])}")
    return TestReport(commit=commit, tree=tree, commands=tuple(results))


def _fresh(log_dir: Path, prefix: str) -> Path:
    """A directory nobody has written to: a report of an earlier run, removable or not, is never read as this one's."""
    log_dir.mkdir(parents=True, exist_ok=True)
    for old in log_dir.glob(f"{prefix}*"):
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=log_dir))


def _judged(test: TestCommand, call: Invocation, finished: Finished, command: Command) -> CommandResult:
    output = tail(command.output, TEST_TAIL_CHARS)
    run = _Run(test, call, finished, output)
    if call.report:
        try:
            run = _Run(test, call, finished, output, read_junit(call.report, command.worktree))
        except BadReport as error:
            run = _Run(test, call, finished, output, unread=str(error))
    verdict, reason = _verdict(run)
    return CommandResult(
        name=test.name,
        command=test.command,
        required=test.required,
        verdict=verdict,
        exit_code=finished.exit_code,
        duration_s=finished.duration_s,
        tail=output,
        reason=reason,
        cases=run.cases,
    )


def _verdict(run: _Run) -> tuple[str, str]:
    """The exit code decides; a report that disagrees with it, or is owed and missing, makes a failure as well."""
    code, failing = run.finished.exit_code, [case for case in run.cases if case.outcome in FAILING]
    if run.finished.timed_out:
        return "timed_out", f"not finished after {run.test.timeout}"
    if run.finished.truncated:
        return "failed", flooded()
    if code is None:
        return "failed", "it was ended from outside"
    if code in (126, 127) and not run.cases:
        return "not_started", f"exit code {code}"
    if code != 0 and not run.cases and _NOT_INSTALLED.search(run.tail):
        return "not_started", "its runner is not installed"
    if code == 0:
        return _green(run, failing)
    if run.call.runner == "pytest" and code == 5:
        return "failed", "no tests were collected"
    if code > 128:
        return "failed", f"killed by signal {code - 128}"
    if failing:
        return "failed", f"exit code {code}"
    if run.cases:
        return "contradicted", f"exit code {code}, although no reported test failed"
    return "failed", f"exit code {code}" + (f", {run.unread}" if run.unread else "")


def _green(run: _Run, failing: list[TestCase]) -> tuple[str, str]:
    if run.call.report is None:
        return "passed", ""
    if run.unread:
        return "contradicted", f"exit code 0, but {run.unread}"
    if not run.cases:
        return "contradicted", "exit code 0, but not one test ran"
    if failing:
        return "contradicted", f"exit code 0, but {len(failing)} of {len(run.cases)} reported tests failed"
    return "passed", ""
