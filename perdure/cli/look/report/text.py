"""A report as lines for a terminal, a pipe or a message; pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.cli.decide.asking import decided, diffstat
from perdure.cli.look.chapters import chapters, line_of, row
from perdure.cli.look.found import report_lines, review_lines
from perdure.cli.look.report import view
from perdure.cli.look.report.facts import Report
from perdure.cli.look.report.timeline import timeline_of
from perdure.cli.words import count, money, paragraphs, short, shown, shown_line, span
from perdure.models.limits import REQUEST_BYTES, STAT_FILES


def lines_of(report: Report) -> list[str]:
    """All of it, section by section; those that are empty are left out."""
    sections = (
        ("Timeline", _timeline(report)),
        ("Request", paragraphs(report.request)),
        ("Plan", paragraphs(report.plan.words(REQUEST_BYTES)) if report.plan else ()),
        ("Decisions", (shown_line(decided(made), 400) for made in report.decisions)),
        ("Attempts", (shown_line(line, 400) for line in _attempts(report))),
        ("Tests", report_lines(report.test_report, report.reviewed) if report.test_report else ()),
        ("Review", review_lines(report.reviewed, report.findings) if report.reviewed or report.findings else ()),
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


def _attempts(report: Report) -> Iterator[str]:
    for number, end, tests, review, lines, cost, branch in map(view.attempt, report.attempts):
        yield f"{number} {end} · tests {tests} · review: {review} · {lines} lines · {cost} · {branch}"


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
        ("review", view.reviewed(report)),
        ("cost", view.cost_line(report.usage, report.budget_usd)),
        ("time", timing),
        ("receipt", view.survived(report)),
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
