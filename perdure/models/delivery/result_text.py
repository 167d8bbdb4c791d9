"""The facts of a delivery as people read them, one function a fact: terminal, report, pages, Web UI, pull request,
issue comment and webhook take the text from here and add their own markup."""

from __future__ import annotations

from perdure.models.checks.report import killed_runs_text
from perdure.models.delivery.decisions import PendingDecision
from perdure.models.delivery.result import Receipt, ReviewResult, ReviewStatus, TestsResult, TestsStatus, UsageResult
from perdure.text import format_count, format_money, format_tokens, one_line, short_sha


def outcome_text(status: str, reason: str | None = "") -> str:
    """Return how a delivery ended, and why when a reason is known: `not delivered: tests red`."""
    return ": ".join(part.replace("_", " ") for part in (status, reason) if part)


def reason_text(reason: str | None, message: str) -> str:
    """Return why a delivery ended, the reason and behind it the message: `tests red: 2 of 44 fail`.

    A message that begins with the reason stands alone, and so does either when the other is empty.
    """
    text = (reason or "").replace("_", " ")
    if not (text and message):
        return message or text
    has_reason = message.startswith(text) or message.replace("tests are red", "tests red").startswith(text)
    return message if has_reason else f"{text}: {message}"


def step_name(step: str, attempt: int) -> str:
    """Return the name of a step, with its number from the second time on: `fix tests 2`."""
    return step.replace("_", " ") + (f" {attempt}" if attempt > 1 else "")


def pending_text(pending_decision: PendingDecision, limit: int = 300) -> str:
    """Return in one line what a person is to decide: the agent's question, or what the gate is about."""
    question = pending_decision.question
    return one_line(pending_decision.summary if question is None else question.text, limit)


def untested_text(status: TestsStatus) -> str:
    """Return why there is no verdict: `not run`, or that the repository has no test command; empty when there is
    one."""
    reasons = {TestsStatus.SKIPPED: "not run", TestsStatus.NONE: "the repository has no test command"}
    return reasons.get(status, "")


def tests_line(tests: TestsResult) -> str:
    """Return a verdict's counts in one line: `44 passed, 2 failed, 2 new failures, 1 before too, 1 fixed, 1 flaky`,
    places tampered with, and runs that were killed.

    Passed tests and new failures are told at zero as well, the other counts only above it. The status stands in place
    of a passed count that is not known, and new failures that are not known are left out. When there is no verdict,
    return why.
    """
    if reason := untested_text(tests.status):
        return reason
    parts = [f"{tests.passed} passed" if tests.passed is not None else str(tests.status)]
    parts += [f"{tests.failed} failed"] if tests.failed else []
    parts += [format_count(tests.new_failures, "new failure")] if tests.new_failures is not None else []
    parts += [f"{tests.known_failures} before too"] if tests.known_failures else []
    parts += [f"{format_count(tests.tampered, 'place')} tampered with"] if tests.tampered else []
    parts += [f"{tests.fixed} fixed"] if tests.fixed else []
    parts += [f"{tests.flaky} flaky"] if tests.flaky else []
    parts += [killed_runs_text(tests.killed_runs)] if tests.killed_runs else []
    return ", ".join(parts)


def count_severities(blockers: int, tech_debt: int, skippable: int) -> str:
    """Return how many findings there are of each severity: `1 blocker, 2 tech debt, 1 skippable`.

    A severity without findings is left out; empty where nothing was found.
    """
    parts = [format_count(blockers, "blocker")] if blockers else []
    parts += [f"{tech_debt} tech debt"] if tech_debt else []
    parts += [f"{skippable} skippable"] if skippable else []
    return ", ".join(parts)


def review_line(review: ReviewResult, *, done: bool = False) -> str:
    """Return the counts of a review, blockers always among them: `0 blockers, 2 tech debt`; `not done` when it was
    skipped.

    `done`: it was done, though no result says so yet.
    """
    if review.status is ReviewStatus.SKIPPED and not done:
        return "not done"
    counts = count_severities(review.blockers, review.tech_debt, review.skippable)
    return counts if review.blockers else ", ".join(part for part in ("0 blockers", counts) if part)


def at_risk_text(usd: float) -> str:
    """Return what replies that were cut off may cost besides, `up to $0.10 more for replies cut off`; empty: there are
    none."""
    return f"up to {format_money(usd)} more for replies cut off" if usd else ""


def spent_line(usd: float | None, at_risk_usd: float, budget_usd: float | None = None) -> str:
    """Return what was spent, of which budget, and what may come besides: `$0.43 of $5.00, up to $0.10 more for replies
    cut off`; `unknown` for an unknown price."""
    return ", ".join(
        part for part in (format_money(usd, budget_usd, unknown="unknown"), at_risk_text(at_risk_usd)) if part
    )


def cost_line(usage: UsageResult, budget_usd: float | None = None) -> str:
    """Return cost and tokens, `$0.43 of $5.00 · 118k tokens, 92 % from cache`, and what replies that were cut off may
    cost besides; tokens are left out when there are none."""
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    parts = [format_money(usage.cost_usd, budget_usd)]
    if total := prompt + usage.output_tokens:
        share = f", {100 * usage.cache_read_tokens // prompt} % from cache" if prompt else ""
        parts.append(f"{format_tokens(total)} tokens{share}")
    return " · ".join(part for part in (*parts, at_risk_text(usage.at_risk_usd)) if part)


def change_line(files: int, added: int, deleted: int) -> str:
    """Return the size of a change: `+48 −7 in 2 files`."""
    return f"+{added} −{deleted} in {format_count(files, 'file')}"


def receipt_counts(receipt: Receipt, *, ended: bool = True) -> list[str]:
    """Return the counts of a receipt: `1 worker death`, `1 turn redone`, `0 replies paid twice`, and replies that were
    cut off, if any.

    `ended` False: without turns redone and replies paid twice, which are counted at the end; until then only the deaths
    in history are known.
    """
    counts = [format_count(receipt.worker_deaths, "worker death")]
    if ended:
        counts.append(f"{format_count(receipt.turns_redone, 'turn')} redone")
        counts.append(f"{format_count(receipt.replies_paid_twice, 'reply', 'replies')} paid twice")
    if receipt.replies_cut:
        counts.append(f"{format_count(receipt.replies_cut, 'reply', 'replies')} cut off")
    return counts


def receipt_line(receipt: Receipt, tests: TestsResult, *, ended: bool = True) -> str:
    """Return the counts of a receipt and the tree that was tested: `1 worker death · 1 turn redone · 0 replies paid
    twice · green on tree c0ffee1`. Of a fork it names the origin, and what it inherited from there.

    `ended`: as for `receipt_counts`.
    """
    parts = receipt_counts(receipt, ended=ended)
    if tests.tree_sha and tests.status in (TestsStatus.GREEN, TestsStatus.RED):
        parts.append(f"{tests.status} on tree {short_sha(tests.tree_sha)}")
    if receipt.forked_from:
        turns, usd = (
            format_count(receipt.inherited_turns, "turn"),
            format_money(receipt.inherited_usd, unknown="unknown", digits=4),
        )
        parts.append(f"forked from {receipt.forked_from} ({turns}, {usd}, paid there)")
    return " · ".join(parts)
