"""Changed promises, and what else the experiments on a change have shown, in Markdown."""

from __future__ import annotations

from perdure.adapters.forges.neutral import line, quote
from perdure.models.bent import faults
from perdure.models.promised import Changed, changed, notes
from perdure.models.report import Review, TestReport

_MOST_SHOWN = 10
"""In a pull request's text; tests.md has all of them."""


def promises_section(report: TestReport | None, review: Review | None) -> str:
    """Each test of the base that fails on the change: why that is right, and both versions. Empty without any."""
    found = changed(report, review)
    if not found:
        return ""
    base = line(_base(report))
    said = f"These tests of {base} fail on this change. Each was justified by words of the request, or is a blocker."
    more = [f"- and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
    return "\n\n".join([said, *(_shown(one) for one in found[:_MOST_SHOWN]), *more])


def experiment_page(report: TestReport, review: Review | None) -> list[str]:
    """Parts of tests.md: the line, why it is red, what else there is to know, every changed promise."""
    tried = report.experiment
    if tried is None:
        return []
    told = [*(f"tampered: {fault.title}" for fault in faults(report)), *notes(tried)]
    parts = [line(tried.line), "\n".join(f"- {line(words)}" for words in told)]
    if found := changed(report, review):
        parts += ["## Changed promises", *(_shown(one, fails=True) for one in found)]
    return [part for part in parts if part]


def _shown(one: Changed, *, fails: bool = False) -> str:
    head = f"- **{line(one.name)}**: {line(one.why)}"
    message = one.promise.message.strip() if fails else ""
    parts = [quote(text) for text in (message, _code(one.versions)) if text]
    return "\n\n".join([head, *parts])


def _code(versions: tuple[str, ...]) -> str:
    """Indented by four, so that a quotation shows it as it is, and it can end nothing."""
    return "\n".join(f"    {text}" for text in versions)


def _base(report: TestReport | None) -> str:
    return (report.experiment.branch if report and report.experiment else "") or "the base"
