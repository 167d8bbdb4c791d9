"""A report as one HTML page that needs nothing else: no network, no script, no file beside it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from perdure import __version__
from perdure.adapters.forges.neutral import is_web_address
from perdure.cli.decide.pending_text import decision_line
from perdure.cli.formatting import format_tokens, money, pluralise, visible_line, visible_text
from perdure.cli.look.report import tiles, view
from perdure.cli.look.report.facts import DeliveryReport
from perdure.cli.look.report.svg import svg_of
from perdure.cli.look.report.timeline import timeline_of
from perdure.models import wording
from perdure.text import span

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
    shots = report.screenshots.pictures if report.screenshots else ()
    return {
        "report": report,
        "timeline": timeline,
        "svg": Markup(svg_of(timeline)),  # noqa: S704  # drawn by us, its words escaped there
        "pictures": pictures,
        "links": {"pull": is_web_address(report.pull_request.url) if report.pull_request else False},
        "points": wording.review_points(report.reviewed, report.findings),
        "shot_of": {shot.page: f"shot-{n}" for n, shot in enumerate(shots, 1) if shot.artifact in pictures}.get,
        "sections": _section_links(report, bool(timeline.rows)),
        "turns": [(name, list(turns)) for name, turns in groupby(report.turns, key=view.step_name)],
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
        "tests": True,
        "review": True,
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
        loader=PackageLoader("perdure.cli.look.report", "templates"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "line": visible_line,
        "text": visible_text,
        "money": money,
        "span": span,
        "took": view.format_test_time,
        "tokens": format_tokens,
        "decided": decision_line,
        "row": view.attempt_cells,
    }
    environment.filters |= {"status": lambda status: status.replace("_", " ")}
    environment.globals |= {
        "view": view,
        "wording": wording,
        "tiles": tiles,
        "count": pluralise,
        "rows": REPORT_TESTS_SHOWN,
    }
    return environment
