"""Plan, review, test report, findings, screenshots and receipt as files that a person can read on a forge's pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from perdure.adapters.forges.neutral import code, line, quote, span
from perdure.adapters.forges.pictures import Addresses, picture_addresses
from perdure.models.changed_base_tests import ChangedPromise, changed_promises, experiment_notes
from perdure.models.plan import Plan
from perdure.models.report import (
    ChangedTest,
    CommandResult,
    Findings,
    Review,
    Screenshots,
    Severity,
    TestCase,
    TestReport,
)
from perdure.models.result import Receipt
from perdure.models.tampering_text import find_faults
from perdure.models.wording import ReviewPoint, case_name, review_points, verdict_of
from perdure.text import visible

_MARKS = {"passed": "✓", "failed": "✗", "errored": "✗", "skipped": "–"}


def artifact_files(
    plan: Plan | None,
    review: Review | None,
    report: TestReport | None,
    receipt: Receipt | None,
    findings: Findings | None = None,
    screenshots: Screenshots | None = None,
    pictures: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Name → content of what there is: plan.md, review.md, tests.md, findings.md, receipt.json, page-1.png…; their
    words are neutralised. `pictures`: perdure.adapters.forges.pictures.picture_files of `screenshots`."""
    pictures = pictures or {}
    shown = {page: name for page, name in picture_addresses(screenshots, {}, beside=True).items() if name in pictures}
    texts = {
        "plan.md": _plan(plan) if plan else "",
        "review.md": _review(review, shown) if review else "",
        "tests.md": _tests(report, review) if report else "",
        "findings.md": _findings(findings) if findings else "",
        "receipt.json": receipt.model_dump_json(indent=2) if receipt else "",
    }
    return {name: f"{text}\n".encode(errors="replace") for name, text in texts.items() if text} | dict(pictures)


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in lines)


def _plan(plan: Plan) -> str:
    tasks = [
        _joined(
            f"### {number}. {line(task.title)}{task.title_suffix}",
            quote(task.details),
            bullets(code(path) for path in task.files),
        )
        for number, task in enumerate(plan.tasks, 1)
    ]
    files = bullets(code(path) for path in plan.relevant_files)
    checks = bullets(line(check) for check in plan.validation)
    return _joined(
        f"# Plan: {line(plan.title)}",
        f"## Problem\n\n{quote(plan.problem)}",
        f"## Solution\n\n{quote(plan.solution)}",
        f"## Files\n\n{files}" if files else "",
        *(["## Tasks", *tasks] if tasks else []),
        f"## How to check\n\n{checks}" if checks else "",
    )


def _review(review: Review, shown: Addresses) -> str:
    found = [_point(point, shown) for point in review_points(review, None)]
    return _joined("# Review", quote(review.summary), *(found or ["Nothing was found."]))


def _point(point: ReviewPoint, shown: Addresses) -> str:
    return _joined(
        f"## {_word(point.severity).capitalize()}: {line(point.title)}",
        code(point.place) if point.file.strip() else "",
        quote(point.description),
        f"Suggestion:\n\n{quote(point.suggestion)}" if point.suggestion.strip() else "",
        *(f"![Screenshot]({shown[page]})" for page in dict.fromkeys(point.screenshots) if page in shown),
    )


def _tests(report: TestReport, review: Review | None) -> str:
    compared = f", compared with {code(report.base)}" if report.base else ""
    fixed = bullets(line(name) for name in report.fixed)
    return _joined(
        "# Tests",
        f"On tree `{report.tree}`, which is commit `{report.commit}`{compared}.",
        line(report.note) if report.note.strip() else "",
        *experiment_page(report, review),
        f"Failed on {code(report.base) or 'the base'} and pass now:\n\n{fixed}" if fixed else "",
        *(_command(command) for command in report.commands),
    )


def _command(command: CommandResult) -> str:
    failed = [case for case in command.cases if case.outcome in ("failed", "errored")]
    counts = {kind: sum(case.outcome == kind for case in command.cases) for kind in _MARKS}
    shown = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
    return _joined(
        f"## {line(command.name)}",
        f"{code(command.command)}: {line(verdict_of(command))}, {command.duration_s:.1f} s.",
        line(command.reason) if command.reason.strip() else "",
        f"{shown}." if shown else "",
        *(_failure(case) for case in failed),
        f"### Last lines\n\n{fenced(command.tail)}" if command.tail.strip() and command.verdict != "passed" else "",
        f"### All\n\n{bullets(_case(case) for case in command.cases)}" if command.cases else "",
    )


def _failure(case: TestCase) -> str:
    again = f"Again: {code(case.command)}" if case.command else ""
    return _joined(f"### ✗ {line(case_name(case))}", fenced(case.message) if case.message.strip() else "", again)


def _case(case: TestCase) -> str:
    notes = [word for word, holds in (("as on the base", case.known), ("flaky", case.flaky)) if holds]
    return f"{_MARKS.get(case.outcome, '·')} {line(case_name(case))}" + (f" ({', '.join(notes)})" if notes else "")


def fenced(text: str) -> str:
    """Output as it was, in a fence that it cannot end."""
    kept = visible(text).replace("\t", "    ")
    longest = max((len(run) for run in re.findall(r"`+", kept)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{kept.strip(chr(10))}\n{fence}"


_FINDINGS_SHOWN = 30
"""Findings in a pull request's text; findings.md has all of them."""


def findings_section(findings: Findings | None) -> str:
    """One line each, the worst first; empty when nothing was found."""
    found = review_points(None, findings)
    lines = [
        f"- **{_word(point.severity)}** {line(point.title)}"
        + (f" ({place})" if point.file.strip() and (place := span(point.place)) else "")
        for point in found[:_FINDINGS_SHOWN]
    ]
    if len(found) > _FINDINGS_SHOWN:
        lines.append(f"- and {len(found) - _FINDINGS_SHOWN} more")
    return "\n".join(lines)


def findings_line(findings: Findings) -> str:
    """`2 blockers, 1 tech debt, in 3 files, +48 −7`."""
    counts = Counter(finding.severity for finding in findings.findings)
    words = [f"{counts[severity]} {_word(severity)}" for severity in Severity if counts[severity]]
    files = "1 file" if findings.files == 1 else f"{findings.files} files"
    return f"{', '.join(words) or 'nothing found'}, in {files}, +{findings.added} −{findings.deleted}"


def _findings(findings: Findings) -> str:
    parts = [
        "# Found by the engine",
        f"From `{findings.base}` to `{findings.head}`: {findings_line(findings)}.",
        *(_point(point, {}) for point in review_points(None, findings)),
    ]
    if findings.changed_tests:
        parts += ["## Tests that check something else now", *(_changed(test) for test in findings.changed_tests)]
    return _joined(*parts)


def _changed(test: ChangedTest) -> str:
    place = code(test.file + (f":{test.line}" if test.line else ""))
    before = f"Before:\n\n{quote(test.before)}" if test.before.strip() else ""
    after = f"Now:\n\n{quote(test.after)}" if test.after.strip() else ""
    return _joined(f"### {line(test.name)}", place, before, after)


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _word(severity: Severity) -> str:
    return severity.replace("_", " ")


_PROMISES_SHOWN = 10
"""In a pull request's text; tests.md has all of them."""


def promises_section(report: TestReport | None, review: Review | None) -> str:
    """Each test of the base that fails on the change: why that is right, and both versions. Empty without any."""
    found = changed_promises(report, review)
    if not found:
        return ""
    base = line(_base(report))
    said = f"These tests of {base} fail on this change. Each was justified by words of the request, or is a blocker."
    more = [f"- and {len(found) - _PROMISES_SHOWN} more"] if len(found) > _PROMISES_SHOWN else []
    return "\n\n".join([said, *(_promise(one) for one in found[:_PROMISES_SHOWN]), *more])


def experiment_page(report: TestReport, review: Review | None) -> list[str]:
    """Parts of tests.md: the line, why it is red, what else there is to know, every changed promise."""
    tried = report.experiment
    if tried is None:
        return []
    told = [*(f"tampered: {fault.title}" for fault in find_faults(report)), *experiment_notes(tried)]
    parts = [line(tried.summary_line), "\n".join(f"- {line(words)}" for words in told)]
    if found := changed_promises(report, review):
        parts += ["## Changed promises", *(_promise(one, fails=True) for one in found)]
    return [part for part in parts if part]


def _promise(one: ChangedPromise, *, fails: bool = False) -> str:
    head = f"- **{line(one.name)}**: {line(one.justification)}"
    message = one.promise.message.strip() if fails else ""
    parts = [quote(text) for text in (message, _versions(one.versions)) if text]
    return "\n\n".join([head, *parts])


def _versions(versions: tuple[str, ...]) -> str:
    """Indented by four, so that a quotation shows it as it is, and it can end nothing."""
    return "\n".join(f"    {text}" for text in versions)


def _base(report: TestReport | None) -> str:
    return (report.experiment.branch if report and report.experiment else "") or "the base"
