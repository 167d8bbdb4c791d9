"""The check that the state with which a backlog's run begins comes from the run before it, from its delivery, or from
an ended run.

Effect: none. Whoever may start workflows may start a Backlog with any state: with a branch, a queue and commits of
their choice. The server alone knows which run went on in which, and which workflow began which; nobody can send that. A
run on our queue was carried out by our workers, who check its own state in the same way before anything else.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.api.enums.v1 import ContinueAsNewInitiator
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
)

from activities.delivery_lookup import describe_workflow, read_start_event
from perdure.models.backlog_state import BacklogState, ReopenedFrom
from perdure.models.limits import TASK_QUEUE
from perdure.models.previous_run import PreviousRunInput, PreviousRunResult, state_digest
from perdure.models.rules.changes import reopen_backlog
from perdure.models.rules.inbox import NotCounted

QUERY_TIMEOUT = timedelta(seconds=20)
"""The time a worker has to replay a thousand events of the ended run; after that the activity is tried again."""

UNKNOWN_STATE = "its state comes from no run before it: start it with its items alone"


@activity.defn
async def former_run(work: PreviousRunInput) -> PreviousRunResult:
    """Check where the state of a backlog's run comes from, and return the reason why it does not count; empty: it does.
    Raises RPCError, to be tried again."""
    client = activity.client()
    if work.continued_run_id:
        is_genuine = await _is_continued_from(client, work.backlog, work.continued_run_id)
    elif work.parent_id:
        is_genuine = _is_ours(await describe_workflow(client, work.parent_id, work.parent_run_id), "Delivery")
    elif work.reopened_from is not None:
        return PreviousRunResult(reason=await _reopening_problem(client, work, work.reopened_from))
    else:
        is_genuine = False
    return PreviousRunResult(reason="" if is_genuine else UNKNOWN_STATE)


async def _is_continued_from(client: Client, id: str, run_id: str) -> bool:
    """Return whether the run that asks is the one in which our run `run_id` went on by itself, as continue-as-new does.
    A retry policy or a cron schedule of whoever started it begins a next run too, but with what was sent; then False.
    """
    if not _is_ours(await describe_workflow(client, id, run_id), "Backlog"):
        return False
    # The first event of the run that asks says so; the event that closed the run before leaves it out (seen with
    # 1.32.0).
    own_handle = client.get_workflow_handle(id, run_id=activity.info().workflow_run_id)
    async for event in own_handle.fetch_history_events(page_size=1):
        started = event.workflow_execution_started_event_attributes
        initiator = started.initiator
        return (started.continued_execution_run_id, initiator) == (
            run_id,
            ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_WORKFLOW,
        )
    return False


async def _reopening_problem(client: Client, work: PreviousRunInput, reopened_from: ReopenedFrom) -> str:
    """Return the reason why the state is not that of the ended run with the change applied to it; empty: it is.

    Asks the ended run for its state by a query, applies the change, and compares the digests. A request that is not the
    ended run's, a change that is refused and a run that cannot be replayed are reasons too.
    """
    description = await describe_workflow(client, work.backlog, reopened_from.run_id)
    if (
        description is None
        or not _is_ours(description, "Backlog")
        or description.status == WorkflowExecutionStatus.RUNNING
    ):
        return UNKNOWN_STATE
    handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(work.backlog, run_id=description.run_id)
    request, _ = await read_start_event(handle)
    if {name: value for name, value in request.items() if name != "items"} != work.backlog_request:
        return f"its request is not that of the run before it ({description.run_id})"
    try:
        ended_state: BacklogState = await handle.query("state", result_type=BacklogState, rpc_timeout=QUERY_TIMEOUT)
        expected_state = reopen_backlog(
            ended_state,
            reopened_from.change,
            reopened_from.item,
            reopened_from.note,
            reopened_from.changed_at or datetime.now(UTC),
        )
    except NotCounted as error:
        return error.what
    except WorkflowQueryFailedError as error:
        return f"the run before it ({description.run_id}) cannot be read: {error}"[:300]
    if not ended_state.items or state_digest(expected_state) != work.digest:
        return f"its state is not that of the run before it ({description.run_id})"
    return ""


def _is_ours(description: WorkflowExecutionDescription | None, kind: str) -> bool:
    """Return whether the workflow exists, is of this type, and runs or ran on our own task queue."""
    return description is not None and (description.workflow_type, description.task_queue) == (kind, TASK_QUEUE)
