"""Wording that every rendering of tests and reviews shares: in a terminal, on a page, in Markdown; pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.models.report import CommandResult, Findings, Review, Severity, TestCase

VERDICTS = {
    "passed": "passed",
    "failed": "failed",
    "timed_out": "took too long and was ended",
    "not_started": "could not start",
    "contradicted": "its report and its exit code disagree",
}
SINCE = {"new": "new", "known": "as on the base", "undecidable": "new or not: cannot be told"}


@dataclass(frozen=True)
class Point:
    """Something that the reviewer or the engine found."""

    severity: Severity
    title: str
    description: str
    file: str
    line: int | None
    suggestion: str
    source: str
    screenshots: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.file and self.line else self.file


@dataclass(frozen=True)
class Cases:
    """The tests of one command, sorted into what a person looks for."""

    failed: tuple[TestCase, ...]
    flaky: tuple[TestCase, ...]
    skipped: tuple[TestCase, ...]
    passed: tuple[TestCase, ...]


def points(review: Review | None, findings: Findings | None) -> list[Point]:
    """The worst first; of the same weight, the engine's before the reviewer's, for they are certain."""
    found = [
        Point(f.severity, f.title, f.description, f.file, f.line, f.suggestion, "engine")
        for f in (findings.findings if findings else ())
    ]
    found += [
        Point(i.severity, i.title, i.description, i.file, i.line, i.suggestion, "reviewer", tuple(i.screenshots))
        for i in (review.issues if review else ())
    ]
    order = list(Severity)
    return sorted(found, key=lambda point: order.index(point.severity))


def cases_of(command: CommandResult) -> Cases:
    red = ("failed", "errored")
    flaky = tuple(case for case in command.cases if case.flaky)
    rest = [case for case in command.cases if not case.flaky]
    return Cases(
        failed=tuple(case for case in rest if case.outcome in red),
        flaky=flaky,
        skipped=tuple(case for case in rest if case.outcome == "skipped"),
        passed=tuple(case for case in rest if case.outcome not in (*red, "skipped")),
    )


def verdict_of(command: CommandResult) -> str:
    """`failed, exit code 1, new`."""
    said = [VERDICTS.get(command.verdict, command.verdict)]
    bad = command.verdict != "passed"
    said += [f"exit code {command.exit_code}"] if bad and command.exit_code is not None else []
    said += [SINCE[command.since]] if command.since else []
    said += ["passed when it was run once more"] if command.flaky else []
    said += ["stops at its first failure"] if command.partial else []
    said += [] if command.required else ["does not decide"]
    return ", ".join(said)


def named(case: TestCase) -> str:
    """The test's name with its file, where that is not in it already."""
    return f"{case.file}: {case.name}" if case.file and case.file not in case.name else case.name
