"""What a test report means: the verdict that is kept, its one line, and what could not even start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.adapters.project.output import last_lines, missing_command
from perdure.models.errors import SetupFailed
from perdure.models.policy import FAILURES_NAMED
from perdure.models.report import CommandResult, TestCase, TestReport
from perdure.models.result import TestsStatus
from perdure.models.work import TestVerdict

FAILING = ("failed", "errored")
_NAME_CHARS = 200
_SUMMARY_CHARS = 300
_NAMED_IN_SUMMARY = 4


@dataclass(frozen=True)
class NotStarted:
    """A required test command that could not start: found by preflight, before any money is spent."""

    name: str
    command: str
    reason: str
    tail: str

    def error(self, base: str, where: str) -> SetupFailed:
        """The error that ends the delivery. `base`: the branch; `where`: file, line and key of the command."""
        missing = missing_command(self.tail)
        said = f"{missing}: command not found" if missing else f"{self.reason}\n{last_lines(self.tail)}".rstrip()
        instead = "set a command that runs here in perdure.toml"
        fix = f"install {missing}, or {instead}" if missing else f"let [setup] install it, or {instead}"
        return SetupFailed(f"`{self.command}` could not start on {base}: {said}", where=where, fix=fix)


def verdict(report: TestReport) -> TestVerdict:
    """Required commands decide. None of them at all is status `none`: nothing was shown about the tree.

    passed, failed  cases of required commands that report cases; None when no such command does. Skipped ones count
                    for neither.
    failures        the failing tests' names, then the names of commands that failed without one
    """
    required = [result for result in report.commands if result.required]
    if not required:
        return TestVerdict(status=TestsStatus.NONE, tree=report.tree, summary="no required test command")
    red = [result for result in required if result.verdict != "passed"]
    cases = [case for result in required for case in result.cases]
    failing = [case for case in cases if case.outcome in FAILING]
    unexplained = [result for result in red if not any(case.outcome in FAILING for case in result.cases)]
    names = [*dict.fromkeys(case.name for case in failing), *(result.name for result in unexplained)]
    return TestVerdict(
        status=TestsStatus.RED if red else TestsStatus.GREEN,
        tree=report.tree,
        passed=_passed(cases) if cases else None,
        failed=len(failing) if cases else None,
        failures=tuple(name[:_NAME_CHARS] for name in names[:FAILURES_NAMED]),
        summary=_summary(required, cases, failing, unexplained)[:_SUMMARY_CHARS],
    )


def not_started(report: TestReport) -> NotStarted | None:
    """The first required command that could not start."""
    for result in report.commands:
        if result.required and result.verdict == "not_started":
            return NotStarted(result.name, result.command, result.reason, result.tail)
    return None


def line(result: CommandResult) -> str:
    """One command in a few words: `44 green`, `2 of 44 fail: test_negative, test_zero`, `exit code 1`."""
    failing = [case for case in result.cases if case.outcome in FAILING]
    if result.verdict == "passed":
        return f"{_passed(result.cases)} green" if result.cases else "green"
    return _failures(failing, result.cases) if failing and result.verdict == "failed" else result.reason


def _summary(
    required: Sequence[CommandResult],
    cases: Sequence[TestCase],
    failing: Sequence[TestCase],
    unexplained: Sequence[CommandResult],
) -> str:
    others = "; ".join(f"{result.name}: {result.reason}" for result in unexplained)
    if failing:
        return _failures(failing, cases) + (f"; {others}" if others else "")
    if others:
        return others
    return f"{_passed(cases)} green" if cases else f"{', '.join(result.name for result in required)} green"


def _failures(failing: Sequence[TestCase], cases: Sequence[TestCase]) -> str:
    names = list(dict.fromkeys(case.name.rsplit("::", 1)[-1][:_NAME_CHARS] for case in failing))
    shown = ", ".join(names[:_NAMED_IN_SUMMARY]) + (", …" if len(names) > _NAMED_IN_SUMMARY else "")
    ran = _passed(cases) + len(failing)
    return f"{len(failing)} of {ran} fail{'s' if ran == 1 else ''}: {shown}"


def _passed(cases: Sequence[TestCase]) -> int:
    return sum(case.outcome == "passed" for case in cases)
