"""Lookups of deliveries on the Temporal server: the status of a backlog's deliveries that were terminated or have
reported nothing, and the request with which an ended delivery goes on.

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
from perdure.models.landing import DeliveryLookup, DeliveryLookupInput, DeliveryStatus, ResumeInput, ResumeResult
from perdure.models.limits import END_MESSAGE_CHARS
from perdure.models.request import ResumePoint
from perdure.models.result import DeliveryResult
from perdure.models.rules.stack import stackable_commit
from perdure.models.state import DeliveryState, retry_request

RUNNING, MISSING = "running", "missing"


@activity.defn
async def look_for(work: DeliveryLookupInput) -> DeliveryLookup:
    """Look up each delivery of a backlog on the server and return its status, by workflow id; send a heartbeat after
    each. Raises RPCError, to be tried again."""
    client, statuses = activity.client(), {}
    for number, delivery in enumerate(work.deliveries, start=1):
        statuses[delivery] = await _delivery_status(client, delivery, ships=work.ships)
        activity.heartbeat(number)
    return DeliveryLookup(statuses=statuses)


@activity.defn
async def resume_point(work: ResumeInput) -> ResumeResult:
    """Return the request with which a delivery's newest run goes on where it ended, as `perdure retry` sends it;
    without a request, and with the reason, where there is no such delivery, it is running or delivered, or it left
    nothing to go on from."""
    client = activity.client()
    description = await describe_workflow(client, work.workflow_id)
    if description is None:
        return ResumeResult(reason="there is no such delivery")
    if description.status == WorkflowExecutionStatus.RUNNING:
        return ResumeResult(reason="it is running")
    if description.status == WorkflowExecutionStatus.COMPLETED:
        return ResumeResult(reason="it is delivered")
    request, _ = await read_start_event(client.get_workflow_handle(description.id, run_id=description.run_id))
    resume_memo = (await description.memo()).get("resume")
    if not resume_memo and "resume" not in request:
        return ResumeResult(reason="it left nothing behind to go on from")
    try:
        return ResumeResult(
            request=retry_request(request, ResumePoint.model_validate(resume_memo) if resume_memo else None)
        )
    except InvalidRequest as error:
        return ResumeResult(reason=error.what)


async def _delivery_status(client: Client, delivery: str, *, ships: bool) -> DeliveryStatus:
    """Return the status of a delivery's newest run: missing, running, or as its result says. Where it ended without a
    result, Temporal's own status, with the spending and the landed commit from the state in its memo.

    ships  the delivery belongs to a stack: its branch, pull request and proposed commit are returned too
    """
    description = await describe_workflow(client, delivery)
    if description is None:
        return DeliveryStatus(status=MISSING)
    first_run_id = description.raw_description.workflow_execution_info.first_run_id
    handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(delivery, run_id=description.run_id)
    first_run_id = first_run_id or (await read_start_event(handle))[1]
    if description.status == WorkflowExecutionStatus.RUNNING:
        return DeliveryStatus(status=RUNNING, run_id=first_run_id)
    result = await _read_result(client, description)
    if result is None:
        state = DeliveryState.model_validate(
            ((await description.memo()).get("resume") or {}).get("state") or {}
        ).as_ended()
        return DeliveryStatus(
            status=_status_name(description.status),
            run_id=first_run_id,
            usd=state.usage.cost_usd,
            commit=state.landed_commit,
        )
    return DeliveryStatus(
        status=result.status,
        run_id=first_run_id,
        reason=result.reason or "",
        message=result.message[:END_MESSAGE_CHARS],
        usd=result.usage.cost_usd,
        commit=stackable_commit(result) if ships else result.landed or "",
        branch=(result.branch or "") if ships else "",
        pull_request=result.pull_request.url if ships and result.pull_request else "",
        items=result.items,
    )


async def describe_workflow(client: Client, id: str, run_id: str | None = None) -> WorkflowExecutionDescription | None:
    """Return the server's description of a workflow, or of one run of it; None where the server does not know it, or
    where `run_id` is no id at all. Raises RPCError for any other failure."""
    try:
        return await client.get_workflow_handle(id, run_id=run_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND or (run_id and error.status is RPCStatusCode.INVALID_ARGUMENT):
            return None
        raise


async def _read_result(client: Client, description: WorkflowExecutionDescription) -> DeliveryResult | None:
    """Return the result of an ended run, from its failure too where it did not deliver; None where it did not end by
    itself: terminated, timed out, cancelled, or refused before it began."""
    handle = client.get_workflow_handle(description.id, run_id=description.run_id, result_type=DeliveryResult)
    try:
        result: DeliveryResult = await handle.result(follow_runs=False)
        return result
    except WorkflowFailureError as error:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.type == "NotDelivered" and cause.details:
            return DeliveryResult.model_validate(cause.details[0])
        return None


async def read_start_event(handle: WorkflowHandle[Any, Any]) -> tuple[dict[str, Any], str]:
    """Return the request that a workflow was started with, as it was sent, and the first run id of its chain of runs,
    both from the first event of history; `({}, "")` where there is no event."""
    async for event in handle.fetch_history_events(page_size=1):
        started = event.workflow_execution_started_event_attributes
        values = await activity.client().data_converter.decode_wrapper(started.input)
        request = values[0] if values and isinstance(values[0], dict) else {}
        return request, started.first_execution_run_id
    return {}, ""


def _status_name(status: WorkflowExecutionStatus | None) -> str:
    """Return Temporal's status in our spelling; `missing` for None."""
    return "cancelled" if status == WorkflowExecutionStatus.CANCELED else status.name.lower() if status else MISSING
