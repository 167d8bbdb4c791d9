"""Plan, review, test report, findings, screenshots and receipt as files that a person can read on a forge's pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from perdure.adapters.forges.findings import findings_page
from perdure.adapters.forges.neutral import code, line, quote
from perdure.adapters.forges.pictures import Addresses, picture_addresses
from perdure.adapters.forges.promises import experiment_page
from perdure.models.report import CommandResult, Findings, Plan, Review, Screenshots, Severity, TestCase, TestReport
from perdure.models.result import Receipt
from perdure.text import visible

_VERDICTS = {
    "passed": "passed",
    "failed": "failed",
    "timed_out": "took too long and was ended",
    "not_started": "could not start",
    "contradicted": "its report and its exit code disagree",
}
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
        "findings.md": findings_page(findings) if findings else "",
        "receipt.json": receipt.model_dump_json(indent=2) + "\n" if receipt else "",
    }
    return {name: text.encode(errors="replace") for name, text in texts.items() if text} | dict(pictures)


def _page(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in lines)


def _plan(plan: Plan) -> str:
    tasks = [
        _page(
            f"### {number}. {line(task.title)}{task.terms}",
            quote(task.details),
            _list(code(path) for path in task.files),
        )
        for number, task in enumerate(plan.tasks, 1)
    ]
    files = _list(code(path) for path in plan.relevant_files)
    checks = _list(line(check) for check in plan.validation)
    return _page(
        f"# Plan: {line(plan.title)}",
        f"## Problem\n\n{quote(plan.problem)}",
        f"## Solution\n\n{quote(plan.solution)}",
        f"## Files\n\n{files}" if files else "",
        *(["## Tasks", *(task.rstrip("\n") for task in tasks)] if tasks else []),
        f"## How to check\n\n{checks}" if checks else "",
    )


def _review(review: Review, shown: Addresses) -> str:
    order = list(Severity)
    found = sorted(review.issues, key=lambda issue: order.index(issue.severity))
    findings = [
        _page(
            f"## {issue.severity.replace('_', ' ').capitalize()}: {line(issue.title)}",
            code(issue.file + (f":{issue.line}" if issue.line else "")) if issue.file.strip() else "",
            quote(issue.description),
            f"Suggestion:\n\n{quote(issue.suggestion)}" if issue.suggestion.strip() else "",
            *(f"![Screenshot]({shown[page]})" for page in dict.fromkeys(issue.screenshots) if page in shown),
        ).rstrip("\n")
        for issue in found
    ]
    return _page("# Review", quote(review.summary), *(findings or ["Nothing was found."]))


def _tests(report: TestReport, review: Review | None) -> str:
    compared = f", compared with {code(report.base)}" if report.base else ""
    fixed = _list(line(name) for name in report.fixed)
    return _page(
        "# Tests",
        f"On tree `{report.tree}`, which is commit `{report.commit}`{compared}.",
        line(report.note) if report.note.strip() else "",
        *experiment_page(report, review),
        f"Failed on {code(report.base) or 'the base'} and pass now:\n\n{fixed}" if fixed else "",
        *(_command(command) for command in report.commands),
    )


def _command(command: CommandResult) -> str:
    said = [_VERDICTS.get(command.verdict, line(command.verdict))]
    said += [f"exit code {command.exit_code}"] if command.exit_code is not None else []
    said += ["as on the base" if command.since == "known" else command.since] if command.since else []
    said += ["passed when it was run once more"] if command.flaky else []
    said += [] if command.required else ["does not decide"]
    failed = [case for case in command.cases if case.outcome in ("failed", "errored")]
    counts = {kind: sum(case.outcome == kind for case in command.cases) for kind in _MARKS}
    shown = ", ".join(f"{number} {kind}" for kind, number in counts.items() if number)
    return _page(
        f"## {line(command.name)}",
        f"{code(command.command)}: {', '.join(said)}, {command.duration_s:.1f} s.",
        line(command.reason) if command.reason.strip() else "",
        f"{shown}." if shown else "",
        *(_failure(case) for case in failed),
        f"### Last lines\n\n{fenced(command.tail)}" if command.tail.strip() and command.verdict != "passed" else "",
        f"### All\n\n{_list(_case(case) for case in command.cases)}" if command.cases else "",
    ).rstrip("\n")


def _failure(case: TestCase) -> str:
    again = f"Again: {code(case.command)}" if case.command else ""
    return _page(f"### ✗ {line(_named(case))}", fenced(case.message) if case.message.strip() else "", again).rstrip(
        "\n"
    )


def _case(case: TestCase) -> str:
    notes = [word for word, holds in (("as on the base", case.known), ("flaky", case.flaky)) if holds]
    return f"{_MARKS.get(case.outcome, '·')} {line(_named(case))}" + (f" ({', '.join(notes)})" if notes else "")


def _named(case: TestCase) -> str:
    return f"{case.file}: {case.name}" if case.file and case.file not in case.name else case.name


def fenced(text: str) -> str:
    """Output as it was, in a fence that it cannot end."""
    kept = visible(text).replace("\t", "    ")
    longest = max((len(run) for run in re.findall(r"`+", kept)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{kept.strip(chr(10))}\n{fence}"
