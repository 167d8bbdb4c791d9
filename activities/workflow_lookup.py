"""Activities that ask the Temporal server about other workflows: the status of deliveries that report nothing
(`look_for`), the request a delivery goes on with (`resume_point`), the last table of the Treasury (`last_table`), a
delivery's host (`find_host`); and one that sets a delivery's priority.

Effect: none, but for a priority: the options of that delivery's workflow on the server. Key: the delivery; the same
again changes nothing.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio import activity
from temporalio.api.common.v1 import Priority, WorkflowExecution
from temporalio.api.history.v1 import WorkflowExecutionStartedEventAttributes
from temporalio.api.workflow.v1 import WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import UpdateWorkflowExecutionOptionsRequest
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.server.slots import find_host_reason
from perdure.client.server.view import find_accepted_run
from perdure.models.backlog.landing import (
    DeliveryLookup,
    DeliveryLookupInput,
    DeliveryStatus,
    PriorityInput,
    PriorityResult,
    ResumeInput,
    ResumeResult,
)
from perdure.models.budget.treasury import TREASURY, LastTable, LastTableInput, TreasuryTable
from perdure.models.delivery.request import ResumePoint
from perdure.models.delivery.result import DeliveryResult
from perdure.models.delivery.state import DeliveryState, retry_request
from perdure.models.delivery.work import HostLookup, HostLookupInput
from perdure.models.errors import InvalidRequest
from perdure.models.limits import END_MESSAGE_CHARS, LAST_TABLE_RUNS, LAST_TABLE_TRY, RPC_TIMEOUT
from perdure.models.rules.dependencies import stackable_commit
from perdure.text import shorten

RUNNING, MISSING = "running", "missing"


@activity.defn
async def look_for(work: DeliveryLookupInput) -> DeliveryLookup:
    """Look up each delivery of a backlog on the server and return its status, by workflow id; send a heartbeat after
    each. Raises RPCError, which is retried, when the server does not answer."""
    client, statuses = activity.client(), {}
    for number, delivery in enumerate(work.deliveries, start=1):
        statuses[delivery] = await _delivery_status(client, delivery, ships=work.ships)
        activity.heartbeat(number)
    return DeliveryLookup(statuses=statuses)


@activity.defn
async def find_host(work: HostLookupInput) -> HostLookup:
    """Return whether a worker takes activities from a host's queue. Raises RPCError, which is retried, when the server
    does not answer."""
    return HostLookup(reason=await find_host_reason(activity.client(), work.queue))


@activity.defn
async def resume_point(work: ResumeInput) -> ResumeResult:
    """Return the request with which a delivery's newest run goes on where it ended, as `perdure retry` sends it. The
    result has a reason instead of a request when there is no such delivery, it is running or delivered, it left nothing
    to go on from, or its request does not allow it. Raises RPCError when the server does not answer."""
    client = activity.client()
    description = await find_accepted_run(client, work.workflow_id)
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
    """Return the status of a delivery's newest run: missing, running, or what its result says. When it ended without a
    result, Temporal's own status, with the spending and the landed commit from the state in its memo. Raises RPCError
    when the server does not answer.

    ships  the delivery belongs to a stack: its branch, pull request and proposed commit are returned too
    """
    description = await find_accepted_run(client, delivery)
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
            usd=state.spending.usage.cost_usd,
            commit=state.landing.landed_commit,
        )
    return DeliveryStatus(
        status=result.status,
        run_id=first_run_id,
        reason=result.reason or "",
        message=shorten(result.message, END_MESSAGE_CHARS),
        usd=result.usage.cost_usd,
        commit=stackable_commit(result) if ships else result.landed or "",
        branch=(result.branch or "") if ships else "",
        pull_request=result.pull_request.url if ships and result.pull_request else "",
        items=result.items,
    )


async def describe_workflow(client: Client, id: str, run_id: str | None = None) -> WorkflowExecutionDescription | None:
    """Return the server's description of a workflow's newest run, or of run `run_id`; None when the server does not
    know it, or `run_id` is not valid. Raises RPCError for any other failure."""
    try:
        return await client.get_workflow_handle(id, run_id=run_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND or (run_id and error.status is RPCStatusCode.INVALID_ARGUMENT):
            return None
        raise


async def _read_result(client: Client, description: WorkflowExecutionDescription) -> DeliveryResult | None:
    """Return the result of an ended run, also of one that did not deliver, from its failure; None when it has none: it
    was terminated, timed out, cancelled, failed otherwise, or its request was refused."""
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
    both from the first event of history; `({}, "")` when there is no event, and an empty request when it is no object.
    """
    if (started := await start_attributes(handle)) is None:
        return {}, ""
    values = await activity.client().data_converter.decode_wrapper(started.input)
    request = values[0] if values and isinstance(values[0], dict) else {}
    return request, started.first_execution_run_id


async def start_attributes(handle: WorkflowHandle[Any, Any]) -> WorkflowExecutionStartedEventAttributes | None:
    """Return the attributes of the first event of a run's history, such as its input; None when there is no event."""
    async for event in handle.fetch_history_events(page_size=1):
        return event.workflow_execution_started_event_attributes
    return None


def _status_name(status: WorkflowExecutionStatus | None) -> str:
    """Return Temporal's status in our spelling; `missing` for None."""
    return "cancelled" if status == WorkflowExecutionStatus.CANCELED else status.name.lower() if status else MISSING


@activity.defn
async def last_table(work: LastTableInput) -> LastTable:
    """Read the table of an ended Treasury run, which a worker replays to answer. When that run had not yet read the
    table of the run before it, read that one's instead, through at most LAST_TABLE_RUNS runs.

    Raises ApplicationError: non-retryable when a run does not exist any more or none of them has a table of its own,
    retryable for any other failure.
    """
    run_id = work.run_id
    for _ in range(LAST_TABLE_RUNS):
        try:
            result = await _final_table(activity.client().get_workflow_handle(TREASURY, run_id=run_id))
        except RPCError as error:
            is_missing = error.status == RPCStatusCode.NOT_FOUND
            raise ApplicationError(f"run {run_id} cannot be read: {error.message}", non_retryable=is_missing) from error
        if not result.table.previous:
            return result
        run_id = result.table.previous
    raise ApplicationError("no run of the last ones has read its table", non_retryable=True)


async def _final_table(handle: WorkflowHandle[object, object]) -> LastTable:
    """Query a run for its table. When no worker can answer, return the table that the run began with: marked as not
    `whole` when this version of the code cannot replay the run, as whole when the run ended before any worker had seen
    it. Raises RPCError for anything else."""
    try:
        return LastTable(table=await handle.query("table", result_type=TreasuryTable, rpc_timeout=LAST_TABLE_TRY))
    except WorkflowQueryFailedError:  # this version of its code cannot replay it
        return LastTable(table=await _initial_table(handle), whole=False)
    except RPCError as error:
        if error.status != RPCStatusCode.FAILED_PRECONDITION:
            raise
        return LastTable(table=await _initial_table(handle))  # it was ended before any worker had seen it


async def _initial_table(handle: WorkflowHandle[object, object]) -> TreasuryTable:
    """Return the table with which a run was started, from the first event of its history; an empty table when it was
    started without one."""
    started = await start_attributes(handle)
    if started is None or not started.input.payloads:
        return TreasuryTable()
    table: TreasuryTable = (await activity.client().data_converter.decode(started.input.payloads, [TreasuryTable]))[0]
    return table


_UNSUPPORTED = (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.PERMISSION_DENIED)


@activity.defn
async def prioritise_delivery(work: PriorityInput) -> PriorityResult:
    """Set the priority and the fairness key of a running delivery on the server; return an empty reason, or why not:
    the server does not do that, or the delivery has ended. Raises RPCError, which is retried, when the server does not
    answer."""
    client = activity.client()
    request = UpdateWorkflowExecutionOptionsRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=work.delivery),
        workflow_execution_options=WorkflowExecutionOptions(
            priority=Priority(priority_key=work.key, fairness_key=work.shared_with)
        ),
        update_mask=FieldMask(paths=["priority"]),
        identity=client.identity,
    )
    try:
        await client.workflow_service.update_workflow_execution_options(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return PriorityResult(reason="it has ended")
        if error.status in _UNSUPPORTED:
            return PriorityResult(reason=shorten(f"this server does not change what runs: {error.message}", 200))
        raise
    return PriorityResult()
