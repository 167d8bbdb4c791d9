"""Results of planning, testing and reviewing, as a person reads it in a terminal; pure functions.

All of it was written by models, tests and repositories, so each text is made visible first: nothing in it moves a
cursor. Used by `perdure deliver` for a plan, and by reports and decisions in `perdure.render`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.models.checks.report import CommandResult, Findings, Review, Severity, TamperingHit, TestCase, TestReport
from perdure.models.checks.verdict_text import (
    ReviewPoint,
    case_name,
    cases_of,
    changed_promises,
    count_outcomes,
    experiment_notes,
    find_faults,
    review_points,
    verdict_of,
)
from perdure.models.delivery.result import ReviewResult
from perdure.models.delivery.result_text import review_line
from perdure.models.delivery.steps import Plan
from perdure.render.formatting import visible_line, visible_text, wrap_visible
from perdure.render.step_lines import BAD, GOOD, NEUTRAL, WARN
from perdure.text import short_sha, shorten, span, visible

_SHOWN_CASES = 20
"""Failing tests shown of one command; the whole report is an artifact."""

_SHOWN_TESTS = 50
"""Tests shown of the base that check something else now."""

_SHOWN_LINES = 12
"""Lines shown of one message, or of a command's last output."""

_MARKS = {Severity.BLOCKER: BAD, Severity.TECH_DEBT: WARN, Severity.SKIPPABLE: NEUTRAL}


def plan_text(source: str) -> str:
    """Return a plan in JSON as Markdown, which `--plan FILE` accepts; any other text is returned as it is, with nothing
    hidden in it."""
    try:
        plan = Plan.model_validate_json(source)
    except ValueError:
        return visible(source).rstrip("\n") + "\n"
    parts = [
        f"# {visible_line(plan.title)}",
        f"## Problem\n\n{visible(plan.problem).strip()}",
        f"## Solution\n\n{visible(plan.solution).strip()}",
        _markdown_list("## Files", plan.relevant_files),
        "## Tasks" if plan.tasks else "",
        *(
            "\n\n".join(
                part
                for part in (
                    f"### {number}. {visible_line(task.title)}{task.title_suffix}",
                    visible(task.details).strip(),
                    "\n".join(f"- `{visible_line(path)}`" for path in task.files),
                )
                if part
            )
            for number, task in enumerate(plan.tasks, 1)
        ),
        _markdown_list("## How to check", plan.validation),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def report_lines(report: TestReport, review: Review | None = None) -> list[str]:
    """Return the lines about a test report: its commit, the experiments, signs of tampering, each command, what is
    fixed now.

    `review`: where the justifications of changed promises are.
    """
    lines = [
        f"tests of {short_sha(report.commit)}" + (f", compared with {visible_line(report.base)}" if report.base else "")
    ]
    lines += [visible_line(report.note, 600)] if report.note else []
    lines += experiment_lines(report, review)
    for hit in report.tampering:
        lines += _hit_lines(hit, allowed=report.allowed)
    for command in report.commands:
        lines += _command_lines(command)
    if report.fixed:
        names = ", ".join(visible_line(name, 80) for name in report.fixed[:_SHOWN_CASES])
        lines.append(f"{GOOD} failed on {visible_line(report.base) or 'the base'} and pass now: {names}")
    return lines


def experiment_lines(report: TestReport, review: Review | None = None) -> list[str]:
    """Return the experiments' own line, why they make the verdict red, what they found beside that, and the changed
    promises.

    Empty where no experiment was made.
    """
    experiment = report.experiment
    if experiment is None:
        return []
    reasons = find_faults(report)
    lines = (
        [f"{BAD if reasons else GOOD} {visible_line(experiment.summary_line, 400)}"] if experiment.summary_line else []
    )
    lines += [f"{BAD} tampered: {visible_line(fault.title, 400)}" for fault in reasons]
    lines += [f"{NEUTRAL} {visible_line(note, 400)}" for note in experiment_notes(experiment)]
    return lines + promise_lines(report, review)


def promise_lines(report: TestReport | None, review: Review | None) -> list[str]:
    """Return each test of the base that fails on the change, with both versions and the reviewer's justification from
    the request."""
    promises, lines = changed_promises(report, review), list[str]()
    for promise in promises:
        mark = NEUTRAL if promise.justified else WARN if promise.answer is None else BAD
        lines.append(f"{mark} changed promise: {visible_line(promise.name, 200)}")
        lines += [f"    {visible_line(promise.justification, 400)}"] if promise.answer is not None else []
        lines += [f"    {shorten(visible(line).rstrip(), 200)}" for line in promise.versions]
    return lines


def review_lines(review: Review | None, findings: Findings | None) -> list[str]:
    """Return the lines of a review: counts by severity, summary, issues, tests that check something else now.

    Blockers come first, each issue with its place; the engine's own findings are among the issues.
    """
    all_points = review_points(review, findings)
    counts = [sum(point.severity is severity for point in all_points) for severity in Severity]
    result = ReviewResult(blockers=counts[0], tech_debt=counts[1], skippable=counts[2])
    lines = [f"review: {review_line(result, done=True)}"]
    if review is not None and review.summary.strip():
        lines += [f"  {line}" for line in wrap_visible(review.summary)]
    for point in all_points:
        lines += _point_lines(point)
    if findings is not None and findings.changed_tests:
        lines.append(f"{NEUTRAL} tests that check something else now")
        lines += [
            f"    {_format_place(test.file, test.line)}  {visible_line(test.name, 100)}"
            for test in findings.changed_tests[:_SHOWN_TESTS]
        ]
    return lines


def _command_lines(command: CommandResult) -> Iterator[str]:
    """Yield the lines about a test command: verdict, counts, time and reason; failing and flaky tests; when it failed,
    how to run it again.

    Its last output is shown where it failed and no single test did.
    """
    has_failed = command.verdict != "passed"
    mark = GOOD if not has_failed else BAD if command.required and command.since != "known" else WARN
    cases = cases_of(command)
    facts = (visible_line(verdict_of(command)), count_outcomes(command.cases), span(command.duration_s))
    yield f"{mark} {visible_line(command.name, 60)}: {', '.join(filter(None, facts))}"
    if command.reason.strip() not in ("", f"exit code {command.exit_code}"):
        yield f"    {visible_line(command.reason, 400)}"
    for case in cases.failed[:_SHOWN_CASES]:
        yield from _case_lines(case)
    if len(cases.failed) > _SHOWN_CASES:
        yield f"    … {len(cases.failed) - _SHOWN_CASES} more fail"
    for case in cases.flaky[:_SHOWN_CASES]:
        yield f"  {WARN} {visible_line(case_name(case), 300)}: flaky, passed when it was run once more"
    if has_failed and not cases.failed and command.tail.strip():
        yield from (f"    {line}" for line in _shorten_text(command.tail, last=True))
    if has_failed:
        yield f"    again: {visible_line(command.command, 400)}"


def _case_lines(case: TestCase) -> Iterator[str]:
    """Yield the lines about a failing test: name, message and the command that runs it; no message where it failed on
    the base, too."""
    base_note = " (as on the base)" if case.known else ""
    yield f"  {NEUTRAL if case.known else BAD} {visible_line(case_name(case), 300)}{base_note}"
    if not case.known:
        yield from (f"      {line}" for line in _shorten_text(case.message))
    if case.command:
        yield f"      again: {visible_line(case.command, 400)}"


def _hit_lines(hit: TamperingHit, *, allowed: bool) -> Iterator[str]:
    """Yield the lines about one sign of tampering: rule, title, place, evidence; marked as harmless where the request
    allows it."""
    place = f"  {_format_place(hit.file, hit.line)}" if hit.file else ""
    mark, remark = (NEUTRAL, ", allowed by the request") if allowed else (BAD, "")
    yield f"{mark} {hit.rule}: {visible_line(hit.title, 200)}{place}{remark}"
    yield from (f"    {line}" for line in _shorten_text(hit.evidence))


def _point_lines(point: ReviewPoint) -> list[str]:
    """Return the lines about one finding of a review: severity, source, title and place, then description and
    suggestion."""
    place = f"  {visible_line(point.place, 200)}" if point.place else ""
    severity = point.severity.replace("_", " ")
    lines = [f"{_MARKS[point.severity]} {severity}, {point.source}: {visible_line(point.title, 200)}{place}"]
    lines += [f"    {line}" for line in wrap_visible(point.description, 80)]
    lines += [f"    {line}" for line in wrap_visible(f"suggestion: {point.suggestion}", 80)] if point.suggestion else []
    return lines


def _format_place(file: str, line: int | None) -> str:
    """Return `calc.py:5`, as editors understand it; empty without a file."""
    name = visible_line(file, 200)
    return f"{name}:{line}" if name and line else name


def _shorten_text(text: str, *, last: bool = False) -> list[str]:
    """Return the first lines of a text, or the last ones, at most _SHOWN_LINES, and a line that says how many more
    there are."""
    lines = [shorten(line.rstrip(), 400) for line in visible_text(text).strip("\n").splitlines()]
    if len(lines) <= _SHOWN_LINES:
        return lines
    more = f"… {len(lines) - _SHOWN_LINES} more lines"
    return [more, *lines[-_SHOWN_LINES:]] if last else [*lines[:_SHOWN_LINES], more]


def _markdown_list(heading: str, items: Iterable[str]) -> str:
    """Return a heading and below it the items as a Markdown list; empty where there are no items."""
    lines = "\n".join(f"- {visible_line(item, 1000)}" for item in items)
    return f"{heading}\n\n{lines}" if lines else ""
