"""Reading a delivery for a report: what the server has, what its workflow answers, what its host keeps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from temporalio.service import RPCError

from perdure.cli.look.report import from_history
from perdure.cli.look.report.facts import DeliveryReport
from perdure.cli.look.report.from_host import HostReader
from perdure.client import Delivery, RunDescription
from perdure.client.history import DeliveryHistory
from perdure.models.errors import PerdureError
from perdure.models.plan import Plan
from perdure.models.report import Findings, Review, Screenshots, TestReport
from perdure.models.request import DeliveryRequest
from perdure.models.result import DeliveryResult, StepRecord
from perdure.models.state import DeliveryState, Progress
from perdure.models.summary import result_of


async def gather_report(delivery: Delivery, *, passive: bool = False) -> DeliveryReport:
    """Read everything about a delivery that can be known now. What cannot be read is named in the report's `unread`.

    passive  for who only looks, again and again: no workflow is asked, which would wake one that waits, and the bytes
    of the screenshots are left out

    Raises BadInput when there is no such delivery.
    """
    described = await delivery.describe()
    past = await delivery.past()
    state = from_history.state_of(past)
    unread = [] if past.complete else ["Temporal does not have the first runs any more: their turns are missing"]
    facts = await _read_facts(delivery, described, past, state, unread, ask=not passive)
    reader = HostReader(delivery, state.prepared.queue if state.prepared else "")
    tests, review = facts["tests"], facts["review"]
    plan = await reader.read_document(state.plan, "the plan", Plan)
    test_report = await reader.read_document(tests.report or "", "the test report", TestReport)
    reviewed = await reader.read_document(review.report or "", "the review", Review)
    findings = await reader.read_document(review.findings or "", "the engine's findings", Findings)
    screenshots = await reader.read_document(state.screenshots, "the screenshots", Screenshots)
    pictures = await reader.read_pictures(screenshots) if screenshots and not passive else {}
    diff = await reader.read_diff() if state.head or facts["head_sha"] else ""
    turns = await reader.add_transcripts(from_history.turns_of(past.activities))
    try:
        untold = await delivery.failed_notices()
    except RPCError:
        untold = []
        unread.append("the server does not say who was told")
    return DeliveryReport(
        **facts,
        delivery_id=delivery.id,
        run_id=described.run_id,
        kind=state.kind,
        title=plan.title if plan else state.title,
        ended=described.closed,
        taken=datetime.now(UTC),
        began=from_history.step_start_times(facts["steps"], past.activities),
        turns=tuple(turns),
        deaths=tuple(from_history.deaths_of(past.activities)),
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


async def _read_facts(
    delivery: Delivery,
    described: RunDescription,
    past: DeliveryHistory,
    state: DeliveryState,
    unread: list[str],
    *,
    ask: bool,
) -> dict[str, Any]:
    """Read the fields of a report that result or progress have; without a worker fold them from history.

    `ask` False: a running workflow is not asked. Adds to `unread` what could not be read.
    """
    request = from_history.request_of(past)
    status, message, waiting = "", "", ""
    steps: Sequence[StepRecord] = ()
    if described.running:
        progress = await _query_progress(delivery, unread) if ask else None
        progress = progress or from_history.progress_from(past, delivery.id, described.run_id, state)
        status, message, waiting, steps = progress.status, progress.message, progress.waiting, progress.steps
        if waiting:
            status = "waiting"
        result = _result_so_far(progress, state, request, delivery.id, described.run_id)
    else:
        try:
            result = await delivery.result()
            status = result.status
        except PerdureError as error:  # Terminated, or a request that was never valid: no worker said how it ended.
            state.steps = from_history.steps_so_far(state, past)
            result = result_of(state, request, delivery.id, described.run_id)
            status = described.status.name.lower().replace("canceled", "cancelled")
            message = str(error)
        message, steps = message or result.message, result.steps
    start_times = [time for record in steps if (time := from_history.parse_time(record.started_at))]
    return {
        "status": status,
        "reason": (result.reason or "") if status == result.status else "",
        "message": message,
        "waiting": waiting,
        "repository": request.repository,
        "request": request.request,
        "issue": str(request.issue or ""),
        "base": result.base or "",
        "base_sha": result.base_sha or "",
        "branch": result.branch or (state.prepared.branch if state.prepared and described.running else ""),
        "head_sha": result.head_sha or "",
        "pull_request": result.pull_request,
        "started": min([described.started, *start_times]),
        "budget_usd": state.prepared.budget_usd if state.prepared else request.budget_usd,
        "usage": result.usage,
        "receipt": result.receipt,
        "tests": result.tests,
        "review": result.review,
        "decisions": result.decisions,
        "attempts": result.attempts,
        "steps": tuple(steps),
    }


async def _query_progress(delivery: Delivery, unread: list[str]) -> Progress | None:
    """Query the workflow for its progress; None where no worker answers, which is added to `unread`."""
    try:
        return await delivery.progress()
    except PerdureError:
        unread.append("no worker answers: steps and costs are as history has them")
        return None


def _result_so_far(
    progress: Progress, state: DeliveryState, request: DeliveryRequest, id: str, run_id: str
) -> DeliveryResult:
    """Return a result of what there is so far: the workflow's own numbers over those in `state`, which is changed."""
    state.steps, state.usage, state.spend = progress.steps, progress.usage, progress.spend
    state.pull_request, state.head = progress.pull_request, progress.head_sha or state.head
    result = result_of(state, request, id, run_id)
    return result.model_copy(update={"decisions": tuple(progress.decisions)})
