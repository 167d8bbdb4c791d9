"""Reads a delivery for a report: what the server has, what its workflow answers, what its host keeps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from temporalio.service import RPCError

from perdure.cli.look.report import from_history
from perdure.cli.look.report.facts import Report
from perdure.cli.look.report.from_host import HostReader
from perdure.client import Delivery, Described
from perdure.client.history import Past
from perdure.models.errors import PerdureError
from perdure.models.plan import Plan
from perdure.models.report import Findings, Review, Screenshots, TestReport
from perdure.models.request import DeliveryRequest
from perdure.models.result import DeliveryResult, StepRecord
from perdure.models.state import DeliveryState, Progress
from perdure.models.summary import result_of


async def gather(delivery: Delivery, *, seen: bool = False) -> Report:
    """Everything that can be known now. BadInput when there is no such delivery; what cannot be read is said in it.

    seen  only looked at, again and again: no workflow is asked, which would wake one that waits, and the bytes of the
          screenshots are left out
    """
    described = await delivery.describe()
    past = await delivery.past()
    state = from_history.state_of(past)
    unread = [] if past.complete else ["Temporal does not have the first runs any more: their turns are missing"]
    facts = await _facts(delivery, described, past, state, unread, ask=not seen)
    reader = HostReader(delivery, state.prepared.queue if state.prepared else "")
    tests, review = facts["tests"], facts["review"]
    plan = await reader.document(state.plan, "the plan", Plan)
    test_report = await reader.document(tests.report or "", "the test report", TestReport)
    reviewed = await reader.document(review.report or "", "the review", Review)
    findings = await reader.document(review.findings or "", "the engine's findings", Findings)
    screenshots = await reader.document(state.screenshots, "the screenshots", Screenshots)
    pictures = await reader.pictures(screenshots) if screenshots and not seen else {}
    diff = await reader.diff() if state.head or facts["head_sha"] else ""
    turns = await reader.said(from_history.turns_of(past.acts))
    try:
        untold = await delivery.not_notified()
    except RPCError:
        untold = []
        unread.append("the server does not say who was told")
    return Report(
        **facts,
        delivery_id=delivery.id,
        run_id=described.run_id,
        kind=state.kind,
        title=plan.title if plan else state.title,
        ended=described.closed,
        taken=datetime.now(UTC),
        began=from_history.began(facts["steps"], past.acts),
        turns=tuple(turns),
        deaths=tuple(from_history.deaths_of(past.acts)),
        waits=tuple(from_history.waits_of(past)),
        plan=plan,
        test_report=test_report,
        reviewed=reviewed,
        findings=findings,
        screenshots=screenshots,
        pictures=pictures,
        diff=diff,
        untold=tuple(untold),
        unread=(*unread, *reader.unread),
    )


async def _facts(
    delivery: Delivery, described: Described, past: Past, state: DeliveryState, unread: list[str], *, ask: bool
) -> dict[str, Any]:
    """Return what result or progress say; without a worker, what history does."""
    request = from_history.request_of(past)
    status, message, waiting = "", "", ""
    steps: Sequence[StepRecord] = ()
    if described.running:
        progress = await _progress(delivery, unread) if ask else None
        progress = progress or from_history.progress_from(past, delivery.id, described.run_id, state)
        status, message, waiting, steps = progress.status, progress.message, progress.waiting, progress.steps
        if waiting:
            status = "waiting"
        told = _running(progress, state, request, delivery.id, described.run_id)
    else:
        try:
            told = await delivery.result()
            status = told.status
        except PerdureError as error:  # terminated, or a request that was never valid: no worker said how it ended
            state.steps = from_history.steps_so_far(state, past)
            told = result_of(state, request, delivery.id, described.run_id)
            status = described.status.name.lower().replace("canceled", "cancelled")
            message = str(error)
        message, steps = message or told.message, told.steps
    first = [when for record in steps if (when := from_history.parsed(record.started_at))]
    return {
        "status": status,
        "reason": (told.reason or "") if status == told.status else "",
        "message": message,
        "waiting": waiting,
        "repository": request.repository,
        "request": request.request,
        "issue": str(request.issue or ""),
        "base": told.base or "",
        "base_sha": told.base_sha or "",
        "branch": told.branch or (state.prepared.branch if state.prepared and described.running else ""),
        "head_sha": told.head_sha or "",
        "pull_request": told.pull_request,
        "started": min([described.started, *first]),
        "budget_usd": state.prepared.budget_usd if state.prepared else request.budget_usd,
        "usage": told.usage,
        "receipt": told.receipt,
        "tests": told.tests,
        "review": told.review,
        "decisions": told.decisions,
        "attempts": told.attempts,
        "steps": tuple(steps),
    }


async def _progress(delivery: Delivery, unread: list[str]) -> Progress | None:
    try:
        return await delivery.progress()
    except PerdureError:
        unread.append("no worker answers: steps and costs are as history has them")
        return None


def _running(
    progress: Progress, state: DeliveryState, request: DeliveryRequest, id: str, run_id: str
) -> DeliveryResult:
    """A result of what there is so far: the workflow's own numbers over those of its history."""
    state.steps, state.usage, state.spend = progress.steps, progress.usage, progress.spend
    state.pull_request, state.head = progress.pull_request, progress.head_sha or state.head
    result = result_of(state, request, id, run_id)
    return result.model_copy(update={"decisions": tuple(progress.decisions)})
