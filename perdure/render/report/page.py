"""A report as one HTML page that needs nothing else: no network, no script, no file beside it; a few numbers at its
top. Used by `perdure report` and by the page, which puts the same values into a view of its own; the report of a
backlog uses its template environment."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from perdure import __version__
from perdure.models.checks import verdict_text
from perdure.models.delivery.result import ReviewStatus, TestsStatus
from perdure.models.delivery.result_text import cost_line, outcome_text, step_name, tests_line
from perdure.render.decision_lines import decision_line
from perdure.render.formatting import visible_line, visible_text
from perdure.render.report import view
from perdure.render.report.facts import DeliveryReport
from perdure.render.report.timeline import svg_of, timeline_of
from perdure.text import format_count, format_money, format_tokens, is_web_address, span

Tile = tuple[str, list[str], str]
"""A tile: its value, the lines below it, and its tone (`good`, `warn`, `bad`, or empty)."""


def tests_tile(report: DeliveryReport) -> Tile:
    """Return the tile about tests: how many passed, and other counts below.

    Its tone is good when they are green and bad when not; a warning when a delivery has ended without tests.
    """
    result = report.tests
    if result.status in (TestsStatus.SKIPPED, TestsStatus.NONE):
        return "not run" if result.status is TestsStatus.SKIPPED else "no tests", [], "warn" * (not report.running)
    _, _, more = tests_line(result).partition(", ")
    value = f"{result.passed} passed" if result.passed is not None else str(result.status)
    return value, more.split(", ") if more else [], "good" if result.status is TestsStatus.GREEN else "bad"


def review_tile(report: DeliveryReport) -> Tile:
    """Return the tile about the review: how many blockers, and other counts below.

    Its tone is good when it found the change clean and bad with blockers; a warning when a delivery has ended without
    one.
    """
    result = report.review
    if view.report_review_line(report) == "not done":
        return "not done", [], "warn" * (not report.running)
    if result.blockers:
        value, tone = format_count(result.blockers, "blocker"), "bad"
    else:
        value, tone = "no blockers", "good" if result.status is ReviewStatus.CLEAN else ""
    return value, [f"{result.tech_debt} tech debt", f"{result.skippable} skippable"], tone


def cost_tile(report: DeliveryReport) -> Tile:
    """Return the tile about cost: the amount, below it budget and tokens."""
    _, *more = cost_line(report.usage).split(" · ")
    budget = [f"of {format_money(report.budget_usd)}"] if report.budget_usd is not None else []
    return format_money(report.usage.cost_usd), [*budget, *more], ""


def time_tile(report: DeliveryReport) -> Tile:
    """Return the tile about time: how long the delivery took, below it how much of that was waiting."""
    waited = sum(gap.end - gap.start for gap in timeline_of(report).gaps)
    return span(report.seconds), [f"{span(waited)} of it waiting"] if waited else [], ""


def receipt_tile(report: DeliveryReport) -> Tile:
    """Return the tile about the receipt: deaths of workers, below them what else it counts."""
    value, *more = view.report_receipt_line(report).split(" · ")
    return value, more, ""


_TILES = (
    ("Tests", tests_tile),
    ("Review", review_tile),
    ("Cost", cost_tile),
    ("Time", time_tile),
    ("Receipt", receipt_tile),
)

REPORT_TESTS_SHOWN = 1_000
"""Rows of tests that passed, of one command: folded away, and still not the whole of a suite of 50,000."""


def page_of(report: DeliveryReport) -> str:
    """Return the whole HTML page. Every text of others is made visible, bounded and escaped on its way into it."""
    pictures = {
        sha256: Markup("data:image/png;base64," + base64.b64encode(data).decode())  # noqa: S704  # base64
        for sha256, data in report.pictures.items()
    }
    values = template_values(report, pictures)
    return report_environment().get_template("page.html.j2").render(values, version=__version__)


def template_values(report: DeliveryReport, pictures: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of templates/facts.html.j2 and body.html.j2. `pictures`: the address of each screenshot, by
    SHA-256."""
    timeline = timeline_of(report)
    sections = _section_links(report, bool(timeline.rows))
    shots = report.screenshots.pictures if report.screenshots else ()
    return {
        "report": report,
        "timeline": timeline,
        "svg": Markup(svg_of(timeline)),  # noqa: S704  # drawn by us, its words escaped there
        "pictures": pictures,
        "links": {"pull": is_web_address(report.pull_request.url) if report.pull_request else False},
        "points": verdict_text.review_points(report.reviewed, report.findings),
        "shot_of": {shot.page: f"shot-{n}" for n, shot in enumerate(shots, 1) if shot.artifact in pictures}.get,
        "sections": sections,
        "cards": [anchor for anchor, _ in sections],
        "tab": "",
        "tiles": [
            (name, tile(report))
            for name, tile in _TILES
            if name not in ("Tests", "Review") or (name.lower(), name) in sections
        ],
        "turns": [
            (step_name(*step), list(turns)) for step, turns in groupby(report.turns, attrgetter("step", "attempt"))
        ],
        "total": view.total_cost(report.steps),
        "diff_lines": view.diff_lines(report.diff),
    }


def _section_links(report: DeliveryReport, has_timeline: bool) -> list[tuple[str, str]]:
    """Return anchor and name of each section that the page has, in their order."""
    presence = {
        "timeline": has_timeline,
        "request": bool(report.request.strip()),
        "plan": report.plan is not None,
        "decisions": bool(report.decisions),
        "attempts": bool(report.attempts),
        "change": bool(report.diff),
        "tests": bool(report.test_report) or report.tests.status is not TestsStatus.SKIPPED or not report.running,
        "review": view.has_review(report) or not report.running,
        "screenshots": report.screenshots is not None,
        "cost": bool(report.steps),
        "turns": bool(report.turns),
    }
    return [(anchor, anchor.capitalize()) for anchor, is_present in presence.items() if is_present]


@cache
def report_environment() -> Environment:
    """Create the Jinja environment of reports, once: every text of others is made visible, bounded and escaped in its
    templates."""

    def finalize(value: object) -> object:
        """The last thing that happens to whatever stands in {{ }}: nobody has to remember it."""
        if isinstance(value, str) and not isinstance(value, Markup):
            return visible_text(value)
        return "" if value is None else value

    environment = Environment(
        loader=PackageLoader("perdure.render.report", "templates"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "line": visible_line,
        "text": visible_text,
        "money": format_money,
        "span": span,
        "took": view.format_test_time,
        "tokens": format_tokens,
        "decided": decision_line,
        "row": view.attempt_cells,
    }
    environment.filters |= {"status": lambda status: status.replace("_", " ")}
    environment.globals |= {
        "view": view,
        "outcome": outcome_text,
        "step_name": step_name,
        "tests_line": tests_line,
        "wording": verdict_text,
        "count": format_count,
        "rows": REPORT_TESTS_SHOWN,
    }
    return environment
