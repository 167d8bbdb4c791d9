"""Wording that page and text share: numbers, verdicts, orders; pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.cli.look.report.facts import Report, Turn
from perdure.cli.words import count, money, short, tokens
from perdure.models.bent import faults
from perdure.models.promised import Changed, changed, notes
from perdure.models.report import Severity
from perdure.models.result import (
    Attempted,
    Receipt,
    ReviewResult,
    ReviewStatus,
    StepRecord,
    TestsResult,
    TestsStatus,
    UsageResult,
)
from perdure.text import span

TONES = {
    "delivered": "good", "completed": "good", "draft": "warn", "waiting": "warn", "no_changes": "warn",
    "cancelled": "warn", "running": "busy", "not_delivered": "bad",
}  # fmt: skip
SEVERITIES = {Severity.BLOCKER: "bad", Severity.TECH_DEBT: "warn", Severity.SKIPPABLE: "plain"}


def tests_line(tests: TestsResult) -> str:
    """`44 passed, 2 failed, 2 new failures, 1 before too, 1 fixed, 1 flaky`."""
    if tests.status is TestsStatus.SKIPPED:
        return "not run"
    if tests.status is TestsStatus.NONE:
        return "the repository has no test command"
    parts = [f"{tests.passed} passed" if tests.passed is not None else str(tests.status)]
    parts += [f"{tests.failed} failed"] if tests.failed else []
    parts += [count(tests.new_failures, "new failure")] if tests.new_failures is not None else []
    parts += [f"{tests.known_failures} before too"] if tests.known_failures else []
    parts += [f"{count(tests.tampered, 'place')} tampered with"] if tests.tampered else []
    parts += [f"{tests.fixed} fixed"] if tests.fixed else []
    parts += [f"{tests.flaky} flaky"] if tests.flaky else []
    return ", ".join(parts)


def review_line(review: ReviewResult, *, done: bool = False) -> str:
    """`1 blocker, 2 tech debt noted, 1 skippable`. `done`: it was, though no result says so yet."""
    if review.status is ReviewStatus.SKIPPED and not done:
        return "not done"
    parts = [count(review.blockers, "blocker")]
    parts += [f"{review.tech_debt} tech debt noted"] if review.tech_debt else []
    parts += [f"{review.skippable} skippable"] if review.skippable else []
    return ", ".join(parts)


def cost_line(usage: UsageResult, budget: float | None = None) -> str:
    """`$0.43 of $5.00 · 118k tokens, 92 % from cache`."""
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    text = money(usage.cost_usd) + (f" of {money(budget)}" if budget is not None else "")
    if total := prompt + usage.output_tokens:
        text += f" · {tokens(total)} tokens"
        text += f", {100 * usage.cache_read_tokens // prompt} % from cache" if prompt else ""
    if usage.at_risk_usd:
        text += f" · up to {money(usage.at_risk_usd)} more for replies cut off"
    return text


def receipt_line(receipt: Receipt, tests: TestsResult, *, ended: bool = True) -> str:
    """`1 worker death · 1 turn redone · 0 replies paid twice · green on tree c0ffee1`."""
    parts = [count(receipt.worker_deaths, "worker death")]
    if ended:  # it is written at the end: until then, the deaths that history has
        parts.append(f"{count(receipt.turns_redone, 'turn')} redone")
        parts.append(f"{count(receipt.replies_paid_twice, 'reply', 'replies')} paid twice")
    if receipt.replies_cut:
        parts.append(f"{count(receipt.replies_cut, 'reply', 'replies')} cut off by a death")
    if tests.tree_sha and tests.status in (TestsStatus.GREEN, TestsStatus.RED):
        parts.append(f"{tests.status} on tree {short(tests.tree_sha)}")
    if receipt.forked_from:
        usd = "unknown" if receipt.inherited_usd is None else f"${receipt.inherited_usd:.4f}"
        there = f"{count(receipt.inherited_turns, 'turn')}, {usd}, paid there"
        parts.append(f"forked from {receipt.forked_from} ({there})")
    return " · ".join(parts)


def attempt(one: Attempted) -> tuple[str, ...]:
    """A row of the table of attempts: number, end, tests, review, lines, cost, branch."""
    end = "; ".join([*(["chosen"] if one.chosen else []), *([one.words] if one.words else [])]) or "not chosen"
    review = review_line(one.review)
    return str(one.number), end, str(one.tests), review, str(one.lines), money(one.cost_usd), one.branch


def reviewed(report: Report) -> str:
    return review_line(report.review, done=bool(report.reviewed or report.findings))


def survived(report: Report) -> str:
    known = report.receipt
    if report.running:
        known = known.model_copy(update={"worker_deaths": max(known.worker_deaths, len(report.deaths))})
    return receipt_line(known, report.tests, ended=not report.running)


def diff_lines(patch: str) -> list[tuple[str, str]]:
    """Each line of a patch, and what it is: `file`, `place`, `added`, `gone`, or nothing of those."""
    kinds = {"@": "place", "+": "added", "-": "gone"}
    found = []
    for line in patch.splitlines():
        head = line.startswith(("diff ", "index ", "+++ ", "--- ", "new file", "deleted file", "similarity", "rename "))
        found.append(("file" if head else kinds.get(line[:1], ""), line))
    return found


def promises(report: Report) -> tuple[Changed, ...]:
    """Tests of the base that fail on the change, with the reviewer's answers."""
    return changed(report.test_report, report.reviewed)


def tampered(report: Report) -> tuple[str, ...]:
    """Return the reasons the experiments make the verdict red for."""
    return tuple(fault.title for fault in faults(report.test_report)) if report.test_report else ()


def told(report: Report) -> tuple[str, ...]:
    """Return their findings that do not decide."""
    tried = report.test_report.experiment if report.test_report else None
    return notes(tried) if tried is not None else ()


def versions(one: Changed) -> list[tuple[str, str]]:
    """Both versions of a test, as `diff_lines` of a patch."""
    kinds = {"+": "added", "-": "gone", "…": "place"}
    return [(kinds.get(line[:1], ""), line) for line in one.versions]


def took(seconds: float) -> str:
    """Of a single test: `12 ms`, `1.4 s`; empty where nobody measured it."""
    return "" if seconds <= 0 else f"{max(round(1000 * seconds), 1)} ms" if seconds < 0.9995 else span(seconds)


def step_name(record: StepRecord | Turn) -> str:
    return record.step.replace("_", " ") + (f" {record.attempt}" if record.attempt > 1 else "")


def share(cost: float | None, steps: Sequence[StepRecord]) -> float:
    """Of the most expensive step, 0…100."""
    most = max((record.cost_usd or 0.0 for record in steps), default=0.0)
    return 100 * (cost or 0.0) / most if most else 0.0


def total(parts: Iterable[StepRecord | Turn]) -> float | None:
    """Return what steps or turns have cost together; None when one of them is not known."""
    costs = [part.cost_usd for part in parts]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def differs(one: float | None, other: float | None) -> bool:
    """True where a person would see two amounts."""
    return one is not None and other is not None and abs(one - other) >= 0.005
