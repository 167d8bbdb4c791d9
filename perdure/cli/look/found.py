"""The findings of planning, testing and reviewing, as a person reads them in a terminal; pure functions.

All of it was written by models, tests and repositories: nothing in it moves a cursor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.cli.look.chapters import BAD, GOOD, LEFT, STOPS
from perdure.cli.words import count, paragraphs, short, shown, shown_line, span
from perdure.models.bent import faults
from perdure.models.plan import Plan
from perdure.models.promised import changed, notes
from perdure.models.report import CommandResult, Findings, Hit, Review, Severity, TestCase, TestReport
from perdure.models.wording import Point, cases_of, named, points, verdict_of
from perdure.text import visible

_SHOWN_CASES = 20
"""Failing tests of one command; the whole report is an artifact."""

_SHOWN_TESTS = 50
"""Tests of the base that check something else now."""

_SHOWN_LINES = 12
"""Of one message or of a command's last lines."""

_MARKS = {Severity.BLOCKER: BAD, Severity.TECH_DEBT: STOPS, Severity.SKIPPABLE: LEFT}


def plan_text(written: str) -> str:
    """A plan as Markdown, which `--plan FILE` takes; one in somebody's own words stays as it is."""
    try:
        plan = Plan.model_validate_json(written)
    except ValueError:
        return visible(written).rstrip("\n") + "\n"
    parts = [
        f"# {shown_line(plan.title)}",
        f"## Problem\n\n{visible(plan.problem).strip()}",
        f"## Solution\n\n{visible(plan.solution).strip()}",
        _list("## Files", plan.relevant_files),
        "## Tasks" if plan.tasks else "",
        *(
            "\n\n".join(
                part
                for part in (
                    f"### {number}. {shown_line(task.title)}{task.terms}",
                    visible(task.details).strip(),
                    "\n".join(f"- `{shown_line(path)}`" for path in task.files),
                )
                if part
            )
            for number, task in enumerate(plan.tasks, 1)
        ),
        _list("## How to check", plan.validation),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def report_lines(report: TestReport, review: Review | None = None) -> list[str]:
    """Counts first, then what makes it red with the command to repeat it, then what was red before too."""
    lines = [f"tests of {short(report.commit)}" + (f", compared with {shown_line(report.base)}" if report.base else "")]
    lines += [shown_line(report.note, 600)] if report.note else []
    lines += experiment_lines(report, review)
    for hit in report.tampering:
        lines += _hit(hit, allowed=report.allowed)
    for command in report.commands:
        lines += _command(command)
    if report.fixed:
        names = ", ".join(shown_line(name, 80) for name in report.fixed[:_SHOWN_CASES])
        lines.append(f"{GOOD} failed on {shown_line(report.base) or 'the base'} and pass now: {names}")
    return lines


def experiment_lines(report: TestReport, review: Review | None = None) -> list[str]:
    """The verdict's line, why it is red, and each changed promise with both versions and its justification."""
    tried = report.experiment
    if tried is None:
        return []
    why = faults(report)
    lines = [f"{BAD if why else GOOD} {shown_line(tried.line, 400)}"] if tried.line else []
    lines += [f"{BAD} tampered: {shown_line(fault.title, 400)}" for fault in why]
    lines += [f"{LEFT} {shown_line(words, 400)}" for words in notes(tried)]
    return lines + promise_lines(report, review)


def promise_lines(report: TestReport | None, review: Review | None) -> list[str]:
    """Each test of the base that fails on the change: both versions, and the words of the request that ask for it."""
    promises, lines = changed(report, review), list[str]()
    for one in promises:
        mark = LEFT if one.justified else STOPS if one.answer is None else BAD
        lines.append(f"{mark} changed promise: {shown_line(one.name, 200)}")
        lines += [f"    {shown_line(one.why, 400)}"] if one.answer is not None else []
        lines += [f"    {visible(line)[:200].rstrip()}" for line in one.versions]
    return lines


def review_lines(review: Review | None, findings: Findings | None) -> list[str]:
    """Issues by severity, blockers first, each with its place; the engine's own findings among them."""
    found = points(review, findings)
    counts = [sum(point.severity is wanted for point in found) for wanted in Severity]
    lines = [f"review: {count(counts[0], 'blocker')}, {counts[1]} tech debt, {counts[2]} skippable"]
    if review is not None and review.summary.strip():
        lines += [f"  {line}" for line in paragraphs(review.summary)]
    for point in found:
        lines += _point(point)
    if findings is not None and findings.changed_tests:
        lines.append(f"{LEFT} tests that check something else now")
        lines += [
            f"    {_place(test.file, test.line)}  {shown_line(test.name, 100)}"
            for test in findings.changed_tests[:_SHOWN_TESTS]
        ]
    return lines


def _command(command: CommandResult) -> Iterator[str]:
    bad = command.verdict != "passed"
    mark = GOOD if not bad else BAD if command.required and command.since != "known" else STOPS
    cases = cases_of(command)
    said = [shown_line(verdict_of(command)), *_counts(command.cases), span(command.duration_s)]
    yield f"{mark} {shown_line(command.name, 60)}: {', '.join(said)}"
    if command.reason.strip() not in ("", f"exit code {command.exit_code}"):
        yield f"    {shown_line(command.reason, 400)}"
    for case in cases.failed[:_SHOWN_CASES]:
        yield from _case(case)
    if len(cases.failed) > _SHOWN_CASES:
        yield f"    … {len(cases.failed) - _SHOWN_CASES} more fail"
    for case in cases.flaky[:_SHOWN_CASES]:
        yield f"  {STOPS} {shown_line(named(case), 300)}: flaky, passed when it was run once more"
    if bad and not cases.failed and command.tail.strip():
        yield from (f"    {line}" for line in _text(command.tail, last=True))
    if bad:
        yield f"    again: {shown_line(command.command, 400)}"


def _counts(cases: Iterable[TestCase]) -> list[str]:
    outcomes = [case.outcome for case in cases]
    return [f"{outcomes.count(kind)} {kind}" for kind in ("passed", "failed", "errored", "skipped") if kind in outcomes]


def _case(case: TestCase) -> Iterator[str]:
    known = " (as on the base)" if case.known else ""
    yield f"  {LEFT if case.known else BAD} {shown_line(named(case), 300)}{known}"
    if not case.known:
        yield from (f"      {line}" for line in _text(case.message))
    if case.command:
        yield f"      again: {shown_line(case.command, 400)}"


def _hit(hit: Hit, *, allowed: bool) -> Iterator[str]:
    place = f"  {_place(hit.file, hit.line)}" if hit.file else ""
    mark, end = (LEFT, ", allowed by the request") if allowed else (BAD, "")
    yield f"{mark} {hit.rule}: {shown_line(hit.title, 200)}{place}{end}"
    yield from (f"    {line}" for line in _text(hit.evidence))


def _point(point: Point) -> list[str]:
    place = f"  {shown_line(point.where, 200)}" if point.where else ""
    word = point.severity.replace("_", " ")
    lines = [f"{_MARKS[point.severity]} {word}, {point.source}: {shown_line(point.title, 200)}{place}"]
    lines += [f"    {line}" for line in paragraphs(point.description, 80)]
    lines += [f"    {line}" for line in paragraphs(f"suggestion: {point.suggestion}", 80)] if point.suggestion else []
    return lines


def _place(file: str, line: int | None) -> str:
    """`calc.py:5`, as editors understand it; empty without a file."""
    name = shown_line(file, 200)
    return f"{name}:{line}" if name and line else name


def _text(text: str, *, last: bool = False) -> list[str]:
    """A few lines of a text: the first, or the last."""
    lines = [line.rstrip()[:400] for line in shown(text).strip("\n").splitlines()]
    if len(lines) <= _SHOWN_LINES:
        return lines
    left = f"… {len(lines) - _SHOWN_LINES} more lines"
    return [left, *lines[-_SHOWN_LINES:]] if last else [*lines[:_SHOWN_LINES], left]


def _list(heading: str, items: Iterable[str]) -> str:
    lines = "\n".join(f"- {shown_line(item, 1000)}" for item in items)
    return f"{heading}\n\n{lines}" if lines else ""
