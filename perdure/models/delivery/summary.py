"""A delivery's state as seen from outside: its result and its progress, made in one place for workflow and clients."""

from __future__ import annotations

from datetime import datetime

from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import (
    DecisionMade,
    DeliveryResult,
    ProgressStatus,
    PullRequest,
    Reason,
    Receipt,
    Status,
    TestsResult,
    TestsStatus,
    UsageResult,
)
from perdure.models.delivery.state import DeliveryState, Progress
from perdure.models.rules.allowance import budget_usd
from perdure.models.rules.gates import red_tests_approval_text
from perdure.text import one_line, shell_word

UNREAD_SHOWN, UNREAD_CHARS = 20, 200
"""Messages in a result that no turn has read, and characters of each: a failed delivery's result is part of a failure,
which the server cuts."""

DECISIONS_SHOWN = 20
"""The newest decisions in a result: a failed delivery's result is part of a failure, which the server cuts."""


def result_of(state: DeliveryState, request: DeliveryRequest, delivery_id: str, run_id: str) -> DeliveryResult:
    """Return the published result of a delivery that has ended in `state`. Without a status it counts as not
    delivered."""
    prepared = state.prepared
    shown = state.status in (Status.DELIVERED, Status.DRAFT)
    return DeliveryResult(
        delivery_id=delivery_id,
        run_id=run_id,
        status=state.status or Status.NOT_DELIVERED,
        reason=state.reason,
        message=state.message,
        repository=request.repository,
        base=prepared.base_commit.branch if prepared else request.base,
        base_sha=prepared.base_commit.sha if prepared else None,
        branch=prepared.branch if prepared and (state.building.head or shown) else None,
        head_sha=state.building.head or None,
        checkpoint=state.turns.checkpoint or None,
        pull_request=state.publishing.pull_request,
        landed=state.landing.landed_commit or None,
        items=state.planning.items,
        attempts=state.children.attempts,
        plan=_artifact_link(state.planning.plan),
        tests=result_of_tests(state),
        review=state.reviewing.result.model_copy(
            update={
                "report": _artifact_link(state.reviewing.review),
                "findings": _artifact_link(state.reviewing.findings),
            }
        ),
        steps=tuple(state.steps),
        usage=usage_of(state),
        receipt=_receipt_of(state, request),
        next=next_commands(state, delivery_id),
        unread=unread_messages(state),
        decisions=decisions_of(state),
    )


def _receipt_of(state: DeliveryState, request: DeliveryRequest) -> Receipt:
    """Return the receipt with the experiments' line and, for a fork that is no attempt, with the turn it was forked at
    and what had been paid before."""
    details: dict[str, object] = {"experiment": state.testing.verdict.experiment if state.testing.verdict else ""}
    if (forked := request.forked) is not None and not forked.attempt:
        details["forked_from"] = f"{forked.delivery} at {forked.at}"
        details |= {"inherited_turns": forked.turns, "inherited_usd": forked.usd}
    return state.receipt.model_copy(update=details)


def decisions_of(state: DeliveryState) -> tuple[DecisionMade, ...]:
    """Return the newest DECISIONS_SHOWN decisions of people, oldest first, budget that was added among them; notes are
    cut."""
    decisions = []
    for key, decided in list(state.gates.decided.items())[-DECISIONS_SHOWN:]:
        gate, _, target = key.partition(":")
        note = one_line(decided.note, UNREAD_CHARS)
        budget = gate == "added"
        decisions.append(
            DecisionMade(
                gate="budget" if budget else gate,
                target="" if budget else target,
                verdict="raised" if budget else decided.verdict,
                by=decided.by,
                note=note,
            )
        )
    return tuple(decisions)


def shorten_message(message: str) -> str:
    """Return a message on one line, cut at UNREAD_CHARS, as a result shows it."""
    return one_line(message, UNREAD_CHARS)


def unread_messages(state: DeliveryState) -> tuple[str, ...]:
    """Return the first UNREAD_SHOWN messages that no turn has read, each cut; when there are more, a last entry counts
    them."""
    shown = [shorten_message(message.text) for message in state.messages.pending[:UNREAD_SHOWN]]
    return (*shown, f"and {more} more") if (more := len(state.messages.pending) - UNREAD_SHOWN) > 0 else tuple(shown)


def result_of_tests(state: DeliveryState) -> TestsResult:
    """Return the tests' part of a result, from the newest verdict; with status skipped when nothing was tested."""
    verdict = state.testing.verdict
    if verdict is None:
        return TestsResult(status=TestsStatus.SKIPPED)
    return TestsResult(
        status=verdict.status,
        tree_sha=verdict.tree or None,
        passed=verdict.passed,
        failed=verdict.failed,
        new_failures=verdict.new_failures,
        known_failures=verdict.known_failures,
        fixed=verdict.fixed,
        flaky=verdict.flaky,
        killed_runs=verdict.killed_runs,
        tampered=verdict.tampered,
        accepted=red_tests_approval_text(state),
        experiment=verdict.experiment,
        promises=verdict.promises,
        report=_artifact_link(verdict.report),
    )


def usage_of(state: DeliveryState) -> UsageResult:
    """Return tokens and money of all replies of all runs, by the recorded usage and, for money, by the spend log too,
    so that a rewind hides none.

    The cost is the larger of the two; None when a price is not known.
    """
    usage, spend = state.spending.usage, state.spending.spend
    known = usage.cost_usd is not None and spend.usd is not None
    return UsageResult(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=round(max(usage.cost_usd or 0, spend.usd or 0), 6) if known else None,
        at_risk_usd=spend.at_risk_usd,
    )


def next_commands(state: DeliveryState, delivery_id: str) -> tuple[str, ...]:
    """Return the commands that a person would probably type next, by how the delivery has ended; the likeliest
    first."""
    id = shell_word(delivery_id)
    if state.publishing.pull_request is not None and (kept_in := local_repository(state.publishing.pull_request)):
        show = f"perdure pulls {state.publishing.pull_request.number} --repo {shell_word(kept_in)}"
        return (show, f"perdure diff {id}", f"perdure show {id}")
    if state.status in (Status.DELIVERED, Status.DRAFT, Status.COMPLETED):
        return (f"perdure diff {id}", f"perdure show {id}")
    if state.reason is Reason.INVALID_REQUEST:
        return (f"perdure show {id}",)
    if state.prepared is None:
        return (f"perdure retry {id}",)
    return (f"perdure logs {id}", f"perdure diff {id}", f"perdure retry {id}")


def local_repository(pull: PullRequest) -> str:
    """Return the path of the repository whose local forge holds a pull request; empty for a pull request that has a web
    page."""
    path, separator, number = pull.url.rpartition("#pull/")
    return path if separator and number.isdecimal() else ""


def delivery_status(state: DeliveryState) -> ProgressStatus:
    """Return where a delivery stands, in the word that the query and the search attribute share."""
    if state.status is not None:
        return ProgressStatus(state.status)
    return ProgressStatus.WAITING if state.waiting else ProgressStatus.RUNNING


def progress_of(
    state: DeliveryState, request: DeliveryRequest, delivery_id: str, run_id: str, now: datetime | None = None
) -> Progress:
    """Return the answer to query `progress`. `now`: the workflow's time, until which the used time is counted; None: it
    is left out unless a person is waited for."""
    prepared = state.prepared
    return Progress(
        delivery_id=delivery_id,
        run_id=run_id,
        repository=request.repository,
        status=delivery_status(state),
        phase=state.phase,
        reason=state.reason,
        message=state.message,
        base=prepared.base_commit.branch if prepared else request.base,
        base_sha=prepared.base_commit.sha if prepared else None,
        branch=prepared.branch if prepared else None,
        head_sha=state.building.head or None,
        checkpoint=state.turns.checkpoint or None,
        queue=prepared.queue if prepared else None,
        budget_usd=budget_usd(state, prepared) if prepared else request.budget_usd,
        test_fixes=prepared.limits.test_fixes if prepared else None,
        review_fixes=prepared.limits.review_fixes if prepared else None,
        steps=state.steps,
        usage=state.spending.usage,
        spend=state.spending.spend,
        pull_request=state.publishing.pull_request,
        waiting=state.waiting,
        pending_decision=state.gates.pending_decision,
        unread=len(state.messages.pending),
        held=state.gates.hold_reason,
        plan=state.planning.plan,
        report=state.testing.verdict.report if state.testing.verdict else "",
        review=state.reviewing.review,
        budget_tokens=prepared.limits.budget_tokens + state.budget.extra_tokens
        if prepared and prepared.limits.budget_tokens
        else 0,
        time_s=prepared.limits.time_s + state.budget.extra_time_s if prepared else None,
        used_s=_used_s(state, now),
        decisions=list(decisions_of(state)),
    )


def _used_s(state: DeliveryState, now: datetime | None) -> float | None:
    """Return the seconds used of the time limit, until it began to wait for a person, or else until `now`; None when
    the beginning or the end is not known."""
    until = state.gates.pending_decision.since if state.gates.pending_decision is not None else now
    return (
        max(0.0, (until - state.budget.started).total_seconds()) if until is not None and state.budget.started else None
    )


def _artifact_link(artifact: str) -> str | None:
    """Return how results name an artifact, `artifact:sha256:…`; None for an empty hash."""
    return f"artifact:sha256:{artifact}" if artifact else None
