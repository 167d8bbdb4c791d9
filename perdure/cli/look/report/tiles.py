"""The few numbers at the top of a page: a value, what it rests on, and whether it is good; pure functions."""

from __future__ import annotations

from perdure.cli.formatting import money, pluralise
from perdure.cli.look.report import view
from perdure.cli.look.report.facts import DeliveryReport
from perdure.cli.look.report.timeline import timeline_of
from perdure.models.result import ReviewStatus, TestsStatus
from perdure.text import span

Tile = tuple[str, list[str], str]
"""A tile: its value, the lines below it, and its tone (`good`, `warn`, `bad`, or empty)."""


def tests_tile(report: DeliveryReport) -> Tile:
    """Return the tile about tests: how many passed, other counts below, good where they are green."""
    result = report.tests
    if result.status in (TestsStatus.SKIPPED, TestsStatus.NONE):
        return "not run" if result.status is TestsStatus.SKIPPED else "no tests", [], "warn" * (not report.running)
    _, _, more = view.tests_line(result).partition(", ")
    value = f"{result.passed} passed" if result.passed is not None else str(result.status)
    return value, more.split(", ") if more else [], "good" if result.status is TestsStatus.GREEN else "bad"


def review_tile(report: DeliveryReport) -> Tile:
    """Return the tile about the review: how many blockers, other counts below, good where it found the change clean."""
    result = report.review
    if view.report_review_line(report) == "not done":
        return "not done", [], "warn" * (not report.running)
    if result.blockers:
        value, tone = pluralise(result.blockers, "blocker"), "bad"
    else:
        value, tone = "no blockers", "good" if result.status is ReviewStatus.CLEAN else ""
    return value, [f"{result.tech_debt} tech debt", f"{result.skippable} skippable"], tone


def cost_tile(report: DeliveryReport) -> Tile:
    """Return the tile about cost: the amount, below it budget and tokens."""
    _, *more = view.cost_line(report.usage).split(" · ")
    budget = [f"of {money(report.budget_usd)}"] if report.budget_usd is not None else []
    return money(report.usage.cost_usd), [*budget, *more], ""


def time_tile(report: DeliveryReport) -> Tile:
    """Return the tile about time: how long the delivery took, below it how much of that was waiting."""
    waited = sum(gap.end - gap.start for gap in timeline_of(report).gaps)
    return span(report.seconds), [f"{span(waited)} of it waiting"] if waited else [], ""


def receipt_tile(report: DeliveryReport) -> Tile:
    """Return the tile about the receipt: deaths of workers, below them what else it counts."""
    value, *more = view.report_receipt_line(report).split(" · ")
    return value, more, ""
