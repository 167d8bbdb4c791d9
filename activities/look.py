"""Looks at the deliveries of a backlog, as the server knows them: for one that was terminated, or told nobody.

Effect: none.
"""

from __future__ import annotations

from typing import Any

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.errors import InvalidRequest
from perdure.models.landing import Found, Look, LookInput, Resumed, ResumeInput
from perdure.models.limits import END_CHARS
from perdure.models.request import ResumePoint
from perdure.models.result import DeliveryResult
from perdure.models.rules.stack import proposed
from perdure.models.state import DeliveryState, retried

RUNNING, MISSING = "running", "missing"


@activity.defn
async def look_for(work: LookInput) -> Look:
    """Each as the server knows it. Raises RPCError, to be tried again."""
    client, found = activity.client(), {}
    for number, delivery in enumerate(work.deliveries, start=1):
        found[delivery] = await _found(client, delivery, ships=work.ships)
        activity.heartbeat(number)
    return Look(found=found)


@activity.defn
async def resume_point(work: ResumeInput) -> Resumed:
    """The request of a delivery's newest run, made to go on where that ended, as `perdure retry` sends it."""
    client = activity.client()
    seen = await described(client, work.workflow_id)
    if seen is None:
        return Resumed(words="there is no such delivery")
    if seen.status == WorkflowExecutionStatus.RUNNING:
        return Resumed(words="it is running")
    if seen.status == WorkflowExecutionStatus.COMPLETED:
        return Resumed(words="it is delivered")
    request, _ = await begun(client.get_workflow_handle(seen.id, run_id=seen.run_id))
    left = (await seen.memo()).get("resume")
    if not left and "resume" not in request:
        return Resumed(words="it left nothing behind to go on from")
    try:
        return Resumed(request=retried(request, ResumePoint.model_validate(left) if left else None))
    except InvalidRequest as error:
        return Resumed(words=error.what)


async def _found(client: Client, delivery: str, *, ships: bool) -> Found:
    seen = await described(client, delivery)
    if seen is None:
        return Found(status=MISSING)
    first = seen.raw_description.workflow_execution_info.first_run_id
    handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(delivery, run_id=seen.run_id)
    first = first or (await begun(handle))[1]
    if seen.status == WorkflowExecutionStatus.RUNNING:
        return Found(status=RUNNING, run_id=first)
    result = await _result(client, seen)
    if result is None:
        state = DeliveryState.model_validate(((await seen.memo()).get("resume") or {}).get("state") or {}).as_ended()
        return Found(status=_word(seen.status), run_id=first, usd=state.usage.cost_usd, commit=state.landed)
    return Found(
        status=result.status,
        run_id=first,
        reason=result.reason or "",
        message=result.message[:END_CHARS],
        usd=result.usage.cost_usd,
        commit=proposed(result) if ships else result.landed or "",
        branch=(result.branch or "") if ships else "",
        pull_request=result.pull_request.url if ships and result.pull_request else "",
        items=result.items,
    )


async def described(client: Client, id: str, run_id: str | None = None) -> WorkflowExecutionDescription | None:
    """None where the server knows no such workflow, or no such run; a run's id may be no id at all."""
    try:
        return await client.get_workflow_handle(id, run_id=run_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND or (run_id and error.status is RPCStatusCode.INVALID_ARGUMENT):
            return None
        raise


async def _result(client: Client, seen: WorkflowExecutionDescription) -> DeliveryResult | None:
    """None where it did not end by itself: terminated, timed out, cancelled, or refused before it began."""
    handle = client.get_workflow_handle(seen.id, run_id=seen.run_id, result_type=DeliveryResult)
    try:
        result: DeliveryResult = await handle.result(follow_runs=False)
        return result
    except WorkflowFailureError as error:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.type == "NotDelivered" and cause.details:
            return DeliveryResult.model_validate(cause.details[0])
        return None


async def begun(handle: WorkflowHandle[Any, Any]) -> tuple[dict[str, Any], str]:
    """The request as it was sent, and the first of the runs that follow from it, from the first event of history."""
    async for event in handle.fetch_history_events(page_size=1):
        started = event.workflow_execution_started_event_attributes
        values = await activity.client().data_converter.decode_wrapper(started.input)
        request = values[0] if values and isinstance(values[0], dict) else {}
        return request, started.first_execution_run_id
    return {}, ""


def _word(status: WorkflowExecutionStatus | None) -> str:
    """Temporal's status in our spelling."""
    return "cancelled" if status == WorkflowExecutionStatus.CANCELED else status.name.lower() if status else MISSING
