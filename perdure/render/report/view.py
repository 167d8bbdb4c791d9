"""Rows, counts and labelled lines that text and HTML page of a report share, some called from its templates; pure
functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.models.checks.report import Severity
from perdure.models.checks.verdict_text import ChangedPromise, changed_promises, experiment_notes, find_faults
from perdure.models.delivery.result import AttemptResult, ReviewStatus, StepRecord
from perdure.models.delivery.result_text import receipt_line, review_line
from perdure.models.patch import label_lines
from perdure.render.report.facts import DeliveryReport, ReportTurn
from perdure.text import format_money, span

TONES = {
    "delivered": "good", "completed": "good", "draft": "warn", "waiting": "warn", "no_changes": "warn",
    "cancelled": "warn", "running": "busy", "not_delivered": "bad",
}  # fmt: skip
SEVERITIES = {Severity.BLOCKER: "bad", Severity.TECH_DEBT: "warn", Severity.SKIPPABLE: "plain"}


def attempt_cells(attempt: AttemptResult) -> tuple[str, ...]:
    """Return a row of the table of attempts: number, end, tests, review, lines, cost, branch."""
    end = (
        "; ".join([*(["chosen"] if attempt.chosen else []), *([attempt.failure] if attempt.failure else [])])
        or "not chosen"
    )
    review = review_line(attempt.review)
    return (
        str(attempt.number),
        end,
        str(attempt.tests),
        review,
        str(attempt.lines),
        format_money(attempt.cost_usd),
        attempt.branch,
    )


def has_review(report: DeliveryReport) -> bool:
    """Return whether somebody, or the engine, has reviewed the change."""
    return report.review.status is not ReviewStatus.SKIPPED or bool(report.reviewed or report.findings)


def report_review_line(report: DeliveryReport) -> str:
    """Return the counts of a report's review."""
    return review_line(report.review, done=has_review(report))


def report_receipt_line(report: DeliveryReport) -> str:
    """Return the counts of a report's receipt; while the delivery runs, with the deaths that history has."""
    receipt = report.receipt
    if report.running:
        seen_deaths = sum(not death.silent for death in report.deaths)
        receipt = receipt.model_copy(update={"worker_deaths": max(receipt.worker_deaths, seen_deaths)})
    return receipt_line(receipt, report.tests, ended=not report.running)


def diff_lines(patch: str) -> list[tuple[str, str]]:
    """Return each line of a patch with its kind before it: `file`, `place`, `added`, `gone`, or empty for any other."""
    data = patch.encode(errors="replace")
    return [(kind, data[start:end].decode().removesuffix("\r")) for kind, start, end in label_lines(data)]


def promises(report: DeliveryReport) -> tuple[ChangedPromise, ...]:
    """Return the tests of the base that fail on the change, with the reviewer's answers."""
    return changed_promises(report.test_report, report.reviewed)


def tampering_titles(report: DeliveryReport) -> tuple[str, ...]:
    """Return the reasons for which the experiments make the verdict red."""
    return tuple(fault.title for fault in find_faults(report.test_report)) if report.test_report else ()


def experiment_findings(report: DeliveryReport) -> tuple[str, ...]:
    """Return the findings of the experiments that decide nothing."""
    experiment = report.test_report.experiment if report.test_report else None
    return experiment_notes(experiment) if experiment is not None else ()


def version_lines(promise: ChangedPromise) -> list[tuple[str, str]]:
    """Return both versions of a test, each line with its kind before it, as `diff_lines` does."""
    kinds = {"+": "added", "-": "gone", "…": "place"}
    return [(kinds.get(line[:1], ""), line) for line in promise.versions]


def format_test_time(seconds: float) -> str:
    """Return the time of a single test, `12 ms`, `1.4 s`; empty where nobody measured it."""
    return "" if seconds <= 0 else f"{max(round(1000 * seconds), 1)} ms" if seconds < 0.9995 else span(seconds)


def cost_share(cost: float | None, steps: Sequence[StepRecord]) -> float:
    """Return a cost in percent, 0…100, of that of the most expensive step."""
    most = max((record.cost_usd or 0.0 for record in steps), default=0.0)
    return 100 * (cost or 0.0) / most if most else 0.0


def total_cost(parts: Iterable[StepRecord | ReportTurn]) -> float | None:
    """Return what steps or turns have cost together; None when the cost of one of them is not known."""
    costs = [part.cost_usd for part in parts]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def is_other_amount(first: float | None, second: float | None) -> bool:
    """Return whether a person would see two different amounts: both are known, and half a cent or more lies between
    them."""
    return first is not None and second is not None and abs(first - second) >= 0.005
