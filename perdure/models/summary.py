"""A delivery's state as seen from outside: result and progress, in one place for workflow and clients."""

from __future__ import annotations

import shlex
from datetime import datetime

from perdure.models.request import DeliveryRequest
from perdure.models.result import (
    DecisionMade,
    DeliveryResult,
    PullRequest,
    Receipt,
    Status,
    TestsResult,
    TestsStatus,
    UsageResult,
)
from perdure.models.rules.gates import accepted
from perdure.models.state import DeliveryState, Progress

UNREAD_SHOWN, UNREAD_CHARS = 20, 200
"""Of words that no turn has read, in a result: a failed delivery's is part of a failure, which the server cuts."""

DECISIONS_SHOWN = 20
"""The newest decisions in a result: a failed delivery's is part of a failure, which the server cuts."""


def result_of(state: DeliveryState, request: DeliveryRequest, delivery_id: str, run_id: str) -> DeliveryResult:
    """The published result of a delivery that has ended in `state`."""
    prepared = state.prepared
    shown = state.status in (Status.DELIVERED, Status.DRAFT)
    return DeliveryResult(
        delivery_id=delivery_id,
        run_id=run_id,
        status=state.status or Status.NOT_DELIVERED,
        reason=state.reason,
        message=state.message,
        repository=request.repository,
        base=prepared.base if prepared else request.base,
        base_sha=prepared.base_sha if prepared else None,
        branch=prepared.branch if prepared and (state.head or shown) else None,
        head_sha=state.head or None,
        checkpoint=state.checkpoint or None,
        pull_request=state.pull_request,
        landed=state.landed or None,
        items=state.items,
        attempts=state.attempts,
        plan=_link(state.plan),
        tests=tests_of(state),
        review=state.review_result.model_copy(
            update={"report": _link(state.review), "findings": _link(state.findings)}
        ),
        steps=tuple(state.steps),
        usage=usage_of(state),
        receipt=_receipt(state, request),
        next=next_commands(state, delivery_id),
        unread=unread_of(state),
        decisions=decisions_of(state),
    )


def _receipt(state: DeliveryState, request: DeliveryRequest) -> Receipt:
    told: dict[str, object] = {"experiment": state.tests.experiment if state.tests else ""}
    if (forked := request.forked) is not None and not forked.attempt:
        told["forked_from"] = f"{forked.delivery} at {forked.at}"
        told |= {"inherited_turns": forked.turns, "inherited_usd": forked.usd}
    return state.receipt.model_copy(update=told)


def decisions_of(state: DeliveryState) -> tuple[DecisionMade, ...]:
    """The decisions of people, the newest as many as a result holds."""
    made = []
    for key, decided in list(state.decided.items())[-DECISIONS_SHOWN:]:
        gate, _, of = key.partition(":")
        note = " ".join(decided.note.split())[:UNREAD_CHARS]
        budget = gate == "added"
        made.append(
            DecisionMade(
                gate="budget" if budget else gate,
                of="" if budget else of,
                verdict="raised" if budget else decided.verdict,
                by=decided.by,
                note=note,
            )
        )
    return tuple(made)


def unread_of(state: DeliveryState) -> tuple[str, ...]:
    """Return what people said and no turn has read, as much of it as a result holds."""
    shown = [shortened(said.text) for said in state.said[:UNREAD_SHOWN]]
    return (*shown, f"and {more} more") if (more := len(state.said) - UNREAD_SHOWN) > 0 else tuple(shown)


def shortened(said: str) -> str:
    """Words as a result names them."""
    text = " ".join(said.split())
    return text if len(text) <= UNREAD_CHARS else text[: UNREAD_CHARS - 1] + "…"


def tests_of(state: DeliveryState) -> TestsResult:
    verdict = state.tests
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
        tampered=verdict.tampered,
        accepted=accepted(state),
        experiment=verdict.experiment,
        promises=verdict.promises,
        report=_link(verdict.report),
    )


def usage_of(state: DeliveryState) -> UsageResult:
    """Tokens and money of all replies of all runs, from the spend log once it has ended: a rewind must hide neither."""
    usage, spend = state.usage, state.spend
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
    """Return what a person would probably type next."""
    id = shlex.quote(delivery_id)
    if state.pull_request is not None and (kept_in := local_repository(state.pull_request)):
        show = f"perdure pulls {state.pull_request.number} --repo {shlex.quote(kept_in)}"
        return (show, f"perdure diff {id}", f"perdure show {id}")
    if state.status in (Status.DELIVERED, Status.DRAFT, Status.COMPLETED):
        return (f"perdure diff {id}", f"perdure show {id}")
    if state.prepared is None:
        return (f"perdure retry {id}",)
    return (f"perdure logs {id}", f"perdure diff {id}", f"perdure retry {id}")


def local_repository(pull: PullRequest) -> str:
    """The directory whose local forge keeps a pull request; empty for one that has a web page."""
    path, found, number = pull.url.rpartition("#pull/")
    return path if found and number.isdecimal() else ""


def progress_of(
    state: DeliveryState, request: DeliveryRequest, delivery_id: str, run_id: str, now: datetime | None = None
) -> Progress:
    """The answer to query `progress`."""
    prepared = state.prepared
    return Progress(
        delivery_id=delivery_id,
        run_id=run_id,
        repository=request.repository,
        status=state.status or "running",
        phase=state.phase,
        reason=state.reason,
        message=state.message,
        base=prepared.base if prepared else request.base,
        base_sha=prepared.base_sha if prepared else None,
        branch=prepared.branch if prepared else None,
        head_sha=state.head or None,
        checkpoint=state.checkpoint or None,
        queue=prepared.queue if prepared else None,
        budget_usd=prepared.budget_usd + state.extra_usd if prepared else request.budget_usd,
        test_fixes=prepared.test_fixes if prepared else None,
        review_fixes=prepared.review_fixes if prepared else None,
        steps=state.steps,
        usage=state.usage,
        spend=state.spend,
        pull_request=state.pull_request,
        waiting=state.waiting,
        asked=state.asked,
        unread=len(state.said),
        held=state.held,
        plan=state.plan,
        report=state.tests.report if state.tests else "",
        review=state.review,
        budget_tokens=prepared.budget_tokens + state.extra_tokens if prepared and prepared.budget_tokens else 0,
        time_s=prepared.time_s + state.extra_time_s if prepared else None,
        used_s=_used_s(state, now),
        decisions=list(decisions_of(state)),
    )


def _used_s(state: DeliveryState, now: datetime | None) -> float | None:
    """Of its time, until it began to wait for somebody, or `now`."""
    until = state.asked.since if state.asked is not None else now
    return max(0.0, (until - state.started).total_seconds()) if until is not None and state.started else None


def _link(artifact: str) -> str | None:
    return f"artifact:sha256:{artifact}" if artifact else None
