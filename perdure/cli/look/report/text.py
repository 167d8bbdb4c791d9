"""A report as lines for a terminal, a pipe or a message; pure functions."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from perdure.cli.decide.asking import decided, diffstat
from perdure.cli.look.chapters import chapters, line_of, row
from perdure.cli.look.found import experiment_lines
from perdure.cli.look.report import view
from perdure.cli.look.report.facts import Report
from perdure.cli.look.report.harmless import shown, shown_line
from perdure.cli.look.report.timeline import timeline_of
from perdure.cli.words import count, money, short, span
from perdure.models.limits import STAT_FILES
from perdure.models.report import CommandResult, TestCase, TestReport

_WIDTH = 88
_FAILURES = 20
_MESSAGE_LINES = 12
"""Of one failed test here; the page has all of it."""


def lines_of(report: Report) -> list[str]:
    """All of it, section by section; those that are empty are left out."""
    sections = (
        ("Timeline", _timeline(report)),
        ("Request", _words(report.request)),
        ("Plan", _plan(report)),
        ("Decisions", (shown_line(decided(made), 400) for made in report.decisions)),
        ("Tests", _tests(report)),
        ("Review", _review(report)),
        ("Screenshots", _screenshots(report)),
        ("Cost by step", _cost(report)),
        ("Change", (shown_line(line, 400) for line in _stat(report.diff))),
        ("Not told", (f"! {shown_line(words, 600)}" for words in report.untold)),
        ("Not read", (f"! {shown_line(words, 600)}" for words in report.unread)),
    )
    told = list(_head(report))
    for name, lines in sections:
        if found := list(lines):
            told += ["", name, *(f"  {line}".rstrip() for line in found)]
    return told


def _stat(patch: str) -> list[str]:
    """Files and counts here; the page, and `perdure diff`, have every line."""
    return [line.strip() for line in diffstat(patch, STAT_FILES)] if patch else []


def _head(report: Report) -> Iterator[str]:
    status = report.status.replace("_", " ") + (f", {report.reason.replace('_', ' ')}" if report.reason else "")
    yield f"{report.delivery_id}  {status}" + (f"  {shown_line(report.title, 100)}" if report.title else "")
    base = f" ({shown_line(report.base)} at {short(report.base_sha)})" if report.base and report.base_sha else ""
    pull = report.pull_request
    timing = f"{report.started:%Y-%m-%d %H:%M} UTC · {span(report.seconds)}" + (" so far" if report.running else "")
    facts = (
        ("repository", report.repository + base if report.repository else ""),
        ("issue", report.issue),
        ("branch", report.branch + (f" at {short(report.head_sha)}" if report.head_sha else "")),
        ("pull request", f"#{pull.number} {pull.url}{' (draft)' if pull.draft else ''}" if pull else ""),
        ("tests", view.tests_line(report.tests)),
        ("", report.tests.experiment),
        ("review", view.review_line(report)),
        ("cost", view.cost_line(report.usage, report.budget_usd)),
        ("time", timing),
        ("receipt", view.receipt_line(report)),
        ("waiting", report.waiting),
    )
    for name, text in facts:
        if text:
            yield f"  {name:<13} {shown_line(text, 400)}"
    for n, line in enumerate(shown(report.message, 4000).splitlines()):
        yield f"  {'message' if n == 0 else '':<13} {line.strip()}".rstrip()


def _timeline(report: Report) -> Iterator[str]:
    for chapter in chapters(report.steps):
        yield row(line_of(chapter, ended=not report.running))
    for death in report.deaths:
        at = span((death.at - report.started).total_seconds())
        yield f"↻ a worker died in {death.activity.replace('_', ' ')}, {at} after the start; done again"
    for gap in timeline_of(report).gaps:
        reason = f": {shown_line(gap.reason, 200)}" if gap.reason else ""
        yield f"– waited {span(gap.end - gap.start)}, {span(gap.start)} after the start{reason}"


def _plan(report: Report) -> Iterator[str]:
    if report.plan is None:
        return
    yield from _words(report.plan.problem)
    yield ""
    yield from _words(report.plan.solution)
    yield ""
    for number, task in enumerate(report.plan.tasks, 1):
        files = f" ({', '.join(task.files)})" if task.files else ""
        yield f"{number}. {shown_line(task.title + task.terms + files, 200)}"
    for check in report.plan.validation:
        yield f"check: {shown_line(check, 200)}"


def _tests(report: Report) -> Iterator[str]:
    tested: TestReport | None = report.test_report
    if tested is None:
        return
    compared = f", compared with {shown_line(tested.base)}" if tested.base else ""
    yield f"commit {short(tested.commit)}{compared}"
    if tested.note:
        yield shown_line(tested.note, 600)
    for line in experiment_lines(tested, report.reviewed):
        yield shown(line, 400)
    for hit in tested.tampering:
        place = f" ({hit.file}{f':{hit.line}' if hit.line else ''})" if hit.file else ""
        allowed = ", allowed by the request" if tested.allowed else ""
        yield f"{'!' if tested.allowed else '✗'} {hit.rule}: {shown_line(hit.title + place, 300)}{allowed}"
        yield from _quoted(hit.evidence)
    for name in tested.fixed[:_FAILURES]:
        yield f"✓ fixed: {shown_line(name)}"
    for command in tested.commands:
        yield from _command(command)


def _command(command: CommandResult) -> Iterator[str]:
    cases = view.cases_of(command)
    mark = "✓" if command.verdict == "passed" else "✗"
    yield f"{mark} {shown_line(command.name)}: {shown_line(view.verdict_of(command))}, {span(command.duration_s)}"
    yield f"    {shown_line(command.command, 400)}"
    if command.reason:
        yield f"    {shown_line(command.reason, 400)}"
    for case in cases.failed[:_FAILURES]:
        yield from _failed(case)
    if len(cases.failed) > _FAILURES:
        yield f"    and {len(cases.failed) - _FAILURES} more that failed"
    for case in cases.flaky[:_FAILURES]:
        yield f"  ! {shown_line(_named(case))}: flaky, passed when it was run once more"
    if not cases.failed and mark == "✗":
        yield from _quoted(command.tail, last=True)
    rest = [f"{len(some)} {word}" for word, some in (("passed", cases.passed), ("skipped", cases.skipped)) if some]
    if rest:
        yield f"    {', '.join(rest)}"


def _failed(case: TestCase) -> Iterator[str]:
    yield f"  ✗ {shown_line(_named(case))}" + (", as on the base" if case.known else "")
    yield from _quoted(case.message)
    if case.command:
        yield f"      again: {shown_line(case.command, 400)}"


def _named(case: TestCase) -> str:
    return f"{case.file}: {case.name}" if case.file and case.file not in case.name else case.name


def _review(report: Report) -> Iterator[str]:
    if report.reviewed and report.reviewed.summary:
        yield from _words(report.reviewed.summary)
    marks = {"blocker": "✗", "tech_debt": "!", "skippable": "–"}
    for point in view.points(report):
        where = f"  {shown_line(point.where)}" if point.where else ""
        found = f"{marks[point.severity]} {point.severity.replace('_', ' ')}, {point.source}: "
        yield f"{found}{shown_line(point.title)}{where}"
        yield from (f"    {line}" for line in _words(point.description, 80))
        if point.suggestion:
            yield from (f"    {line}" for line in _words(f"→ {point.suggestion}", 80))
    if report.findings and report.findings.changed_tests:
        yield f"{count(len(report.findings.changed_tests), 'test')} of the base changed in what they check:"
        yield from (f"    {shown_line(f'{test.file}: {test.name}')}" for test in report.findings.changed_tests[:50])


def _screenshots(report: Report) -> Iterator[str]:
    for shot in report.screenshots.pictures if report.screenshots else ():
        size = f"{shot.width} × {shot.height}" if shot.width else ""
        yield " · ".join(shown_line(part) for part in (shot.page, size, shot.note) if part)
    if report.screenshots and report.screenshots.note:
        yield shown_line(report.screenshots.note)


def _cost(report: Report) -> Iterator[str]:
    for record in report.steps:
        if record.turns or record.cost_usd is None or record.cost_usd:
            yield f"{view.step_name(record):<20} {count(record.turns, 'turn'):<10} {money(record.cost_usd)}"


def _words(text: str, width: int = _WIDTH - 2) -> Iterator[str]:
    """Paragraphs, broken into lines; their own ends of lines stay."""
    for line in shown(text, 8000).strip().splitlines():
        yield from textwrap.wrap(line, width, break_on_hyphens=False) or [""]


def _quoted(text: str, last: bool = False) -> Iterable[str]:
    lines = shown(text, 4000).strip("\n").splitlines()
    kept = lines[-_MESSAGE_LINES:] if last else lines[:_MESSAGE_LINES]
    told = [f"      {_bounded(line)}" for line in kept]
    more = len(lines) - len(kept)
    note = [f"      … {count(more, 'more line')}"] if more else []
    return [*note, *told] if last else [*told, *note]


def _bounded(line: str, limit: int = 200) -> str:
    """A line of output with its own indentation."""
    return line if len(line) <= limit else line[: limit - 1] + "…"
