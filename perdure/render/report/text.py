"""A report as lines for a terminal, a pipe or a message; pure functions, used by `perdure report`."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.models.delivery.result_text import cost_line, outcome_text, step_name, tests_line
from perdure.models.limits import REQUEST_BYTES, STAT_FILES
from perdure.render.decision_lines import decision_line, diffstat_lines
from perdure.render.findings_text import report_lines, review_lines
from perdure.render.formatting import visible_line, visible_text, wrap_visible
from perdure.render.report import view
from perdure.render.report.facts import DeliveryReport
from perdure.render.report.timeline import timeline_of
from perdure.render.step_lines import format_row, group_steps, line_of
from perdure.text import format_count, format_money, short_sha, span


def lines_of(report: DeliveryReport) -> list[str]:
    """Return the whole report as lines, section by section; empty sections are left out."""
    sections = (
        ("Timeline", _timeline_lines(report)),
        ("Request", wrap_visible(report.request)),
        ("Plan", wrap_visible(report.plan.to_text(REQUEST_BYTES)) if report.plan else ()),
        ("Decisions", (visible_line(decision_line(decision), 400) for decision in report.decisions)),
        ("Attempts", (visible_line(line, 400) for line in _attempt_lines(report))),
        ("Tests", report_lines(report.test_report, report.reviewed) if report.test_report else ()),
        ("Review", review_lines(report.reviewed, report.findings) if report.reviewed or report.findings else ()),
        ("Screenshots", _screenshot_lines(report)),
        ("Cost by step", _cost_lines(report)),
        ("Change", _diffstat_lines(report.diff)),
        ("Not told", (f"! {visible_line(reason, 600)}" for reason in report.untold)),
        ("Not read", (f"! {visible_line(reason, 600)}" for reason in report.unread)),
    )
    output = list(_head_lines(report))
    for name, lines in sections:
        if section := list(lines):
            output += ["", name, *(f"  {line}".rstrip() for line in section)]
    return output


def _attempt_lines(report: DeliveryReport) -> Iterator[str]:
    """Yield a line for each attempt: number, end, tests, review, lines, cost, branch."""
    for number, end, tests, review, lines, cost, branch in map(view.attempt_cells, report.attempts):
        yield f"{number} {end} · tests {tests} · review: {review} · {lines} lines · {cost} · {branch}"


def _diffstat_lines(patch: str) -> list[str]:
    """Return files and counts of a change; the page, and `perdure diff`, have every line of it."""
    return [line.strip() for line in diffstat_lines(patch, STAT_FILES)] if patch else []


def _head_lines(report: DeliveryReport) -> Iterator[str]:
    """Yield the head of the report: id, status and title, then the facts that are known, then the delivery's
    message."""
    title = f"  {visible_line(report.title, 100)}" if report.title else ""
    yield f"{report.delivery_id}  {outcome_text(report.status, report.reason)}{title}"
    base = f" ({visible_line(report.base)} at {short_sha(report.base_sha)})" if report.base and report.base_sha else ""
    pull = report.pull_request
    timing = f"{report.started:%Y-%m-%d %H:%M} UTC · {span(report.seconds)}" + (" so far" if report.running else "")
    facts = (
        ("repository", report.repository + base if report.repository else ""),
        ("issue", report.issue),
        ("branch", report.branch + (f" at {short_sha(report.head_sha)}" if report.head_sha else "")),
        ("pull request", f"#{pull.number} {pull.url}{' (draft)' if pull.draft else ''}" if pull else ""),
        ("tests", tests_line(report.tests)),
        ("", report.tests.experiment),
        ("review", view.report_review_line(report)),
        ("cost", cost_line(report.usage, report.budget_usd)),
        ("time", timing),
        ("receipt", view.report_receipt_line(report)),
        ("waiting", report.waiting),
    )
    for name, text in facts:
        if text:
            yield f"  {name:<13} {visible_line(text, 400)}"
    for n, line in enumerate(visible_text(report.message, 4000).splitlines()):
        yield f"  {'message' if n == 0 else '':<13} {line.strip()}".rstrip()


def _timeline_lines(report: DeliveryReport) -> Iterator[str]:
    """Yield a line for each group of steps, then for each death of a worker, then for each time of waiting."""
    for group in group_steps(report.steps):
        yield format_row(line_of(group, ended=not report.running))
    for death in report.deaths:
        after = span((death.at - report.started).total_seconds())
        event = "no sign of the worker (dead, asleep or cut off)" if death.silent else "a worker died"
        yield f"↻ {event} in {death.activity.replace('_', ' ')}, {after} after the start; done again"
    for gap in timeline_of(report).gaps:
        reason = f": {visible_line(gap.reason, 200)}" if gap.reason else ""
        yield f"– waited {span(gap.end - gap.start)}, {span(gap.start)} after the start{reason}"


def _screenshot_lines(report: DeliveryReport) -> Iterator[str]:
    """Yield a line for each screenshot: page, size, note; then the note about all of them."""
    for shot in report.screenshots.pictures if report.screenshots else ():
        size = f"{shot.width} × {shot.height}" if shot.width else ""
        yield " · ".join(visible_line(part) for part in (shot.page, size, shot.note) if part)
    if report.screenshots and report.screenshots.note:
        yield visible_line(report.screenshots.note)


def _cost_lines(report: DeliveryReport) -> Iterator[str]:
    """Yield turns and cost of each step that had turns or a cost, or whose cost is unknown."""
    for record in report.steps:
        if record.turns or record.cost_usd is None or record.cost_usd:
            name, turns = step_name(record.step, record.attempt), format_count(record.turns, "turn")
            yield f"{name:<20} {turns:<10} {format_money(record.cost_usd)}"
