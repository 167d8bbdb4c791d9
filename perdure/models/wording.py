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
class ReviewPoint:
    """Something that the reviewer or the engine found in a change. `source`: `reviewer` or `engine`."""

    severity: Severity
    title: str
    description: str
    file: str
    line: int | None
    suggestion: str
    source: str
    screenshots: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Return its place, `file:line`, or the file alone; empty: it is about no file."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file


@dataclass(frozen=True)
class CaseGroups:
    """The tests of one command, sorted into what a person looks for."""

    failed: tuple[TestCase, ...]
    flaky: tuple[TestCase, ...]
    skipped: tuple[TestCase, ...]
    passed: tuple[TestCase, ...]


def review_points(review: Review | None, findings: Findings | None) -> list[ReviewPoint]:
    """Return what reviewer and engine found, the worst first; of the same severity the engine's first, for they are
    certain."""
    all_points = [
        ReviewPoint(f.severity, f.title, f.description, f.file, f.line, f.suggestion, "engine")
        for f in (findings.findings if findings else ())
    ]
    all_points += [
        ReviewPoint(i.severity, i.title, i.description, i.file, i.line, i.suggestion, "reviewer", tuple(i.screenshots))
        for i in (review.issues if review else ())
    ]
    order = list(Severity)
    return sorted(all_points, key=lambda point: order.index(point.severity))


def cases_of(command: CommandResult) -> CaseGroups:
    """Return a command's tests in groups; a flaky test is only in `flaky`, and `failed` has those that errored, too."""
    red = ("failed", "errored")
    flaky = tuple(case for case in command.cases if case.flaky)
    rest = [case for case in command.cases if not case.flaky]
    return CaseGroups(
        failed=tuple(case for case in rest if case.outcome in red),
        flaky=flaky,
        skipped=tuple(case for case in rest if case.outcome == "skipped"),
        passed=tuple(case for case in rest if case.outcome not in (*red, "skipped")),
    )


def verdict_of(command: CommandResult) -> str:
    """Return a command's verdict in one line for people: `failed, exit code 1, new`."""
    parts = [VERDICTS.get(command.verdict, command.verdict)]
    is_bad = command.verdict != "passed"
    parts += [f"exit code {command.exit_code}"] if is_bad and command.exit_code is not None else []
    parts += [SINCE[command.since]] if command.since else []
    parts += ["passed when it was run once more"] if command.flaky else []
    parts += ["stops at its first failure"] if command.partial else []
    parts += [] if command.required else ["does not decide"]
    return ", ".join(parts)


def case_name(case: TestCase) -> str:
    """Return the test's name, with its file before it where that is not in the name already."""
    return f"{case.file}: {case.name}" if case.file and case.file not in case.name else case.name
