"""The findings of planning, testing and reviewing, as a person reads them in a terminal; pure functions.

All of it was written by models, tests and repositories: nothing in it moves a cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.cli.look.chapters import BAD, GOOD, LEFT, STOPS
from perdure.cli.words import count, short
from perdure.models.bent import faults
from perdure.models.promised import changed, notes
from perdure.models.report import (
    CommandResult,
    Finding,
    Findings,
    Hit,
    Issue,
    Plan,
    Review,
    Severity,
    TestCase,
    TestReport,
)
from perdure.text import one_line, visible

_FAILED = ("failed", "errored")
_SHOWN_CASES = 20
"""Failing tests of one command; the whole report is an artifact."""

_SHOWN_LINES = 12
"""Of one message or of a command's last lines."""

_VERDICTS = {
    "passed": "passed",
    "failed": "failed",
    "timed_out": "took too long and was ended",
    "not_started": "could not start",
    "contradicted": "its report and its exit code disagree",
}
_MARKS = {Severity.BLOCKER: BAD, Severity.TECH_DEBT: STOPS, Severity.SKIPPABLE: LEFT}


def plan_text(written: str) -> str:
    """A plan as Markdown, which `--plan FILE` takes; one in somebody's own words stays as it is."""
    try:
        plan = Plan.model_validate_json(written)
    except ValueError:
        return visible(written).rstrip("\n") + "\n"
    parts = [
        f"# {one_line(plan.title)}",
        f"## Problem\n\n{visible(plan.problem).strip()}",
        f"## Solution\n\n{visible(plan.solution).strip()}",
        _list("## Files", plan.relevant_files),
        "## Tasks" if plan.tasks else "",
        *(
            "\n\n".join(
                part
                for part in (
                    f"### {number}. {one_line(task.title)}{task.terms}",
                    visible(task.details).strip(),
                    "\n".join(f"- `{one_line(path)}`" for path in task.files),
                )
                if part
            )
            for number, task in enumerate(plan.tasks, 1)
        ),
        _list("## How to check", plan.validation),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def report_lines(report: TestReport) -> list[str]:
    """Counts first, then what makes it red with the command to repeat it, then what was red before too."""
    lines = [f"tests of {short(report.commit)}" + (f", compared with {one_line(report.base)}" if report.base else "")]
    lines += experiment_lines(report)
    for hit in report.tampering:
        lines += _hit(hit, allowed=report.allowed)
    for command in report.commands:
        lines += _command(command)
    if report.fixed:
        shown = ", ".join(one_line(name, 80) for name in report.fixed[:_SHOWN_CASES])
        lines.append(f"{GOOD} failed on {one_line(report.base) or 'the base'} and pass now: {shown}")
    return lines


def experiment_lines(report: TestReport, review: Review | None = None) -> list[str]:
    """The verdict's line, why it is red, and each changed promise with both versions and its justification."""
    tried = report.experiment
    if tried is None:
        return []
    why = faults(report)
    lines = [f"{BAD if why else GOOD} {one_line(tried.line, 400)}"] if tried.line else []
    lines += [f"{BAD} tampered: {one_line(fault.title, 400)}" for fault in why]
    lines += [f"{LEFT} {one_line(words, 400)}" for words in notes(tried)]
    return lines + promise_lines(report, review)


def promise_lines(report: TestReport | None, review: Review | None) -> list[str]:
    """Each test of the base that fails on the change: both versions, and the words of the request that ask for it."""
    promises, lines = changed(report, review), list[str]()
    for one in promises:
        mark = LEFT if one.justified else STOPS if one.answer is None else BAD
        lines.append(f"{mark} changed promise: {one_line(one.name, 200)}")
        lines += [f"    {one_line(one.why, 400)}"] if one.answer is not None else []
        lines += [f"    {visible(line)[:200].rstrip()}" for line in one.versions]
    return lines


def review_lines(review: Review | None, findings: Findings | None) -> list[str]:
    """Issues by severity, blockers first, each with its place; the engine's own findings among them."""
    told: list[tuple[Severity, list[str]]] = []
    told += [(issue.severity, _issue(issue)) for issue in (review.issues if review is not None else ())]
    told += [(finding.severity, _finding(finding)) for finding in (findings.findings if findings is not None else ())]
    counts = [sum(severity is wanted for severity, _ in told) for wanted in Severity]
    lines = [f"review: {count(counts[0], 'blocker')}, {counts[1]} tech debt, {counts[2]} skippable"]
    if review is not None and review.summary.strip():
        lines += [f"  {line}" for line in _text(review.summary)]
    for severity in Severity:
        for one, words in told:
            lines += words if one is severity else []
    if findings is not None and findings.changed_tests:
        lines.append(f"{LEFT} tests that check something else now")
        lines += [f"    {_place(test.file, test.line)}  {one_line(test.name, 100)}" for test in findings.changed_tests]
    return lines


def _command(command: CommandResult) -> Iterator[str]:
    bad = command.verdict != "passed"
    mark = GOOD if not bad else BAD if command.required and command.since != "known" else STOPS
    said = [_VERDICTS.get(command.verdict, one_line(command.verdict))]
    said += [f"exit code {command.exit_code}"] if bad and command.exit_code is not None else []
    said += _counts(command.cases)
    said += ["as on the base"] if command.since == "known" else []
    said += ["passed when it was run once more"] if command.flaky else []
    said += [] if command.required else ["does not decide"]
    yield f"{mark} {one_line(command.name, 60)}: {', '.join(said)}"
    if command.reason.strip() not in ("", f"exit code {command.exit_code}"):
        yield f"    {one_line(command.reason, 400)}"
    failed = [case for case in command.cases if case.outcome in _FAILED]
    for case in failed[:_SHOWN_CASES]:
        yield from _case(case)
    if len(failed) > _SHOWN_CASES:
        yield f"    … {len(failed) - _SHOWN_CASES} more fail"
    if bad and not failed and command.tail.strip():
        yield from (f"    {line}" for line in _text(command.tail, last=True))
    if bad:
        yield f"    again: {one_line(command.command, 400)}"


def _counts(cases: Iterable[TestCase]) -> list[str]:
    outcomes = [case.outcome for case in cases]
    return [f"{outcomes.count(kind)} {kind}" for kind in ("passed", "failed", "errored", "skipped") if kind in outcomes]


def _case(case: TestCase) -> Iterator[str]:
    known = " (as on the base)" if case.known else ""
    file = f"{one_line(case.file, 200)}: " if case.file and case.file not in case.name else ""
    yield f"  {LEFT if case.known else BAD} {file}{one_line(case.name, 200)}{known}"
    if not case.known:
        yield from (f"      {line}" for line in _text(case.message))
    if case.command:
        yield f"      again: {one_line(case.command, 400)}"


def _hit(hit: Hit, *, allowed: bool) -> Iterator[str]:
    place = f"  {_place(hit.file, hit.line)}" if hit.file else ""
    yield f"{LEFT if allowed else BAD} {hit.rule}: {one_line(hit.title, 200)}{place}"
    yield from (f"    {line}" for line in _text(hit.evidence))


def _issue(issue: Issue) -> list[str]:
    place = _place(issue.file, issue.line)
    return _told(issue.severity, place, issue.title, issue.description, issue.suggestion)


def _finding(finding: Finding) -> list[str]:
    place = _place(finding.file, finding.line)
    return _told(finding.severity, place, finding.title, finding.description, finding.suggestion)


def _told(severity: Severity, place: str, title: str, description: str, suggestion: str) -> list[str]:
    word = severity.replace("_", " ")
    lines = [f"{_MARKS[severity]} {word}: {one_line(title, 200)}" + (f"  {place}" if place else "")]
    lines += [f"    {line}" for line in _text(description)]
    lines += [f"    suggestion: {one_line(suggestion, 400)}"] if suggestion.strip() else []
    return lines


def _place(file: str, line: int | None) -> str:
    """`calc.py:5`, as editors understand it; empty without a file."""
    name = one_line(file, 200)
    return f"{name}:{line}" if name and line else name


def _text(text: str, *, last: bool = False) -> list[str]:
    """A few lines of a text: the first, or the last."""
    lines = [line.rstrip()[:400] for line in visible(text).strip("\n").splitlines()]
    if len(lines) <= _SHOWN_LINES:
        return lines
    left = f"… {len(lines) - _SHOWN_LINES} more lines"
    return [left, *lines[-_SHOWN_LINES:]] if last else [*lines[:_SHOWN_LINES], left]


def _list(heading: str, items: Iterable[str]) -> str:
    lines = "\n".join(f"- {one_line(item, 1000)}" for item in items)
    return f"{heading}\n\n{lines}" if lines else ""
