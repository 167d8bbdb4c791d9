"""The origin of the state with which a backlog's run begins: the run before it, its delivery, or an ended run.

Effect: none. Whoever may start workflows may start a Backlog with any state: with a branch, a queue and commits of his
choice. The server alone knows which run went on in which, and who began whom; nobody can send that. A run on our queue
was carried out by our workers, who check its own state in the same way before anything else.
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

from activities.look import begun, described
from perdure.models.backlog_state import BacklogState, GoOn
from perdure.models.former import Former, FormerInput, state_digest
from perdure.models.limits import TASK_QUEUE
from perdure.models.rules.changes import reopened
from perdure.models.rules.inbox import NotCounted

QUERY_TIMEOUT = timedelta(seconds=20)
"""For a worker to go through a thousand events of the ended run; then it is asked again."""

STRANGE = "its state comes from no run before it: start it with its items alone"


@activity.defn
async def former_run(work: FormerInput) -> Former:
    """Say whether the state counts. Raises RPCError, to be tried again."""
    client = activity.client()
    if work.continued:
        known = await _went_on(client, work.backlog, work.continued)
    elif work.parent:
        known = _is_ours(await described(client, work.parent, work.parent_run), "Delivery")
    elif work.again is not None:
        return Former(refused=await _not_that_of(client, work, work.again))
    else:
        known = False
    return Former(refused="" if known else STRANGE)


async def _went_on(client: Client, id: str, run_id: str) -> bool:
    """That run of ours ended by going on in a new one by itself: a retry policy or a cron schedule of whoever started
    it begins a next run, too, with what was sent."""
    if not _is_ours(await described(client, id, run_id), "Backlog"):
        return False
    # What this run's own first event says: the event that closed the run before leaves it out (seen with 1.32.0).
    this = client.get_workflow_handle(id, run_id=activity.info().workflow_run_id)
    async for event in this.fetch_history_events(page_size=1):
        begun = event.workflow_execution_started_event_attributes
        by = begun.initiator
        return (begun.continued_execution_run_id, by) == (
            run_id,
            ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_WORKFLOW,
        )
    return False


async def _not_that_of(client: Client, work: FormerInput, again: GoOn) -> str:
    """Say why the state is not that of the ended run, changed; empty: it is."""
    seen = await described(client, work.backlog, again.run_id)
    if seen is None or not _is_ours(seen, "Backlog") or seen.status == WorkflowExecutionStatus.RUNNING:
        return STRANGE
    handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(work.backlog, run_id=seen.run_id)
    request, _ = await begun(handle)
    if {name: value for name, value in request.items() if name != "items"} != work.said:
        return f"its request is not that of the run before it ({seen.run_id})"
    try:
        ended: BacklogState = await handle.query("state", result_type=BacklogState, rpc_timeout=QUERY_TIMEOUT)
        changed = reopened(ended, again.change, again.item, again.note, again.at or datetime.now(UTC))
    except NotCounted as error:
        return error.what
    except WorkflowQueryFailedError as error:
        return f"the run before it ({seen.run_id}) cannot be read: {error}"[:300]
    if not ended.items or state_digest(changed) != work.state:
        return f"its state is not that of the run before it ({seen.run_id})"
    return ""


def _is_ours(seen: WorkflowExecutionDescription | None, kind: str) -> bool:
    return seen is not None and (seen.workflow_type, seen.task_queue) == (kind, TASK_QUEUE)
