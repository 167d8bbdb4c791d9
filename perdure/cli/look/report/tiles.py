"""The few numbers at the top of a page: a value, what it rests on, and whether it is good; pure functions."""

from __future__ import annotations

from perdure.cli.look.report import view
from perdure.cli.look.report.facts import Report
from perdure.cli.look.report.timeline import timeline_of
from perdure.cli.words import count, money
from perdure.models.result import ReviewStatus, TestsStatus
from perdure.text import span

Tile = tuple[str, list[str], str]
"""Value, lines below it, tone."""


def tests(report: Report) -> Tile:
    result = report.tests
    if result.status in (TestsStatus.SKIPPED, TestsStatus.NONE):
        return "not run" if result.status is TestsStatus.SKIPPED else "no tests", [], "warn" * (not report.running)
    _, _, more = view.tests_line(result).partition(", ")
    value = f"{result.passed} passed" if result.passed is not None else str(result.status)
    return value, more.split(", ") if more else [], "good" if result.status is TestsStatus.GREEN else "bad"


def review(report: Report) -> Tile:
    result = report.review
    if view.reviewed(report) == "not done":
        return "not done", [], "warn" * (not report.running)
    if result.blockers:
        value, tone = count(result.blockers, "blocker"), "bad"
    else:
        value, tone = "no blockers", "good" if result.status is ReviewStatus.CLEAN else ""
    return value, [f"{result.tech_debt} tech debt", f"{result.skippable} skippable"], tone


def cost(report: Report) -> Tile:
    _, *more = view.cost_line(report.usage).split(" · ")
    budget = [f"of {money(report.budget_usd)}"] if report.budget_usd is not None else []
    return money(report.usage.cost_usd), [*budget, *more], ""


def time(report: Report) -> Tile:
    waited = sum(gap.end - gap.start for gap in timeline_of(report).gaps)
    return span(report.seconds), [f"{span(waited)} of it waiting"] if waited else [], ""


def receipt(report: Report) -> Tile:
    value, *more = view.survived(report).split(" · ")
    return value, more, ""
