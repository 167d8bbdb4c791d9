"""Wording that the page and the text of a report share: numbers, verdicts, orders; pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.models.checks.report import Severity
from perdure.models.checks.verdict_text import ChangedPromise, changed_promises, experiment_notes, find_faults
from perdure.models.delivery.result import (
    AttemptResult,
    Receipt,
    ReviewResult,
    ReviewStatus,
    StepRecord,
    TestsResult,
    TestsStatus,
    UsageResult,
)
from perdure.render.formatting import format_tokens, money, pluralise, short_sha
from perdure.render.report.facts import DeliveryReport, ReportTurn
from perdure.text import span

TONES = {
    "delivered": "good", "completed": "good", "draft": "warn", "waiting": "warn", "no_changes": "warn",
    "cancelled": "warn", "running": "busy", "not_delivered": "bad",
}  # fmt: skip
SEVERITIES = {Severity.BLOCKER: "bad", Severity.TECH_DEBT: "warn", Severity.SKIPPABLE: "plain"}


def tests_line(tests: TestsResult) -> str:
    """Return the counts of a verdict: `44 passed, 2 failed, 2 new failures, 1 before too, 1 fixed, 1 flaky`.

    Where no test was run it says so, or that the repository has no test command.
    """
    if tests.status is TestsStatus.SKIPPED:
        return "not run"
    if tests.status is TestsStatus.NONE:
        return "the repository has no test command"
    parts = [f"{tests.passed} passed" if tests.passed is not None else str(tests.status)]
    parts += [f"{tests.failed} failed"] if tests.failed else []
    parts += [pluralise(tests.new_failures, "new failure")] if tests.new_failures is not None else []
    parts += [f"{tests.known_failures} before too"] if tests.known_failures else []
    parts += [f"{pluralise(tests.tampered, 'place')} tampered with"] if tests.tampered else []
    parts += [f"{tests.fixed} fixed"] if tests.fixed else []
    parts += [f"{tests.flaky} flaky"] if tests.flaky else []
    return ", ".join(parts)


def review_line(review: ReviewResult, *, done: bool = False) -> str:
    """Return the counts of a review: `1 blocker, 2 tech debt noted, 1 skippable`, or `not done`.

    `done`: it was done, though no result says so yet.
    """
    if review.status is ReviewStatus.SKIPPED and not done:
        return "not done"
    parts = [pluralise(review.blockers, "blocker")]
    parts += [f"{review.tech_debt} tech debt noted"] if review.tech_debt else []
    parts += [f"{review.skippable} skippable"] if review.skippable else []
    return ", ".join(parts)


def cost_line(usage: UsageResult, budget: float | None = None) -> str:
    """Return cost and tokens: `$0.43 of $5.00 · 118k tokens, 92 % from cache`, and what cut off replies may cost
    besides."""
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    text = money(usage.cost_usd) + (f" of {money(budget)}" if budget is not None else "")
    if total := prompt + usage.output_tokens:
        text += f" · {format_tokens(total)} tokens"
        text += f", {100 * usage.cache_read_tokens // prompt} % from cache" if prompt else ""
    if usage.at_risk_usd:
        text += f" · up to {money(usage.at_risk_usd)} more for replies cut off"
    return text


def receipt_line(receipt: Receipt, tests: TestsResult, *, ended: bool = True) -> str:
    """Return the counts of a receipt: `1 worker death · 1 turn redone · 0 replies paid twice · green on tree c0ffee1`.

    `ended` False: without turns redone and replies paid twice, which are counted at the end. Of a fork it names the
    origin, and what it inherited from there.
    """
    parts = [pluralise(receipt.worker_deaths, "worker death")]
    if ended:  # These are written at the end: until then only the deaths in history are known.
        parts.append(f"{pluralise(receipt.turns_redone, 'turn')} redone")
        parts.append(f"{pluralise(receipt.replies_paid_twice, 'reply', 'replies')} paid twice")
    if receipt.replies_cut:
        parts.append(f"{pluralise(receipt.replies_cut, 'reply', 'replies')} cut off by a death")
    if tests.tree_sha and tests.status in (TestsStatus.GREEN, TestsStatus.RED):
        parts.append(f"{tests.status} on tree {short_sha(tests.tree_sha)}")
    if receipt.forked_from:
        usd = "unknown" if receipt.inherited_usd is None else f"${receipt.inherited_usd:.4f}"
        inherited = f"{pluralise(receipt.inherited_turns, 'turn')}, {usd}, paid there"
        parts.append(f"forked from {receipt.forked_from} ({inherited})")
    return " · ".join(parts)


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
        money(attempt.cost_usd),
        attempt.branch,
    )


def report_review_line(report: DeliveryReport) -> str:
    """Return the counts of a report's review."""
    return review_line(report.review, done=bool(report.reviewed or report.findings))


def report_receipt_line(report: DeliveryReport) -> str:
    """Return the counts of a report's receipt; while the delivery runs, with the deaths that history has."""
    receipt = report.receipt
    if report.running:
        receipt = receipt.model_copy(update={"worker_deaths": max(receipt.worker_deaths, len(report.deaths))})
    return receipt_line(receipt, report.tests, ended=not report.running)


def diff_lines(patch: str) -> list[tuple[str, str]]:
    """Return each line of a patch with its kind before it: `file`, `place`, `added`, `gone`, or empty for any other."""
    kinds = {"@": "place", "+": "added", "-": "gone"}
    labelled = []
    for line in patch.splitlines():
        head = line.startswith(("diff ", "index ", "+++ ", "--- ", "new file", "deleted file", "similarity", "rename "))
        labelled.append(("file" if head else kinds.get(line[:1], ""), line))
    return labelled


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


def step_name(record: StepRecord | ReportTurn) -> str:
    """Return the name of a step, with its number from the second time on."""
    return record.step.replace("_", " ") + (f" {record.attempt}" if record.attempt > 1 else "")


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
