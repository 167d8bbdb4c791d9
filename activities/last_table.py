"""The table of a Treasury that somebody ended, for the one that takes its place.

Effect: none.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.limits import LAST_TABLE_RUNS, LAST_TABLE_TRY
from perdure.models.treasury import TREASURY, LastTable, LastTableInput, Table


@activity.defn
async def last_table(work: LastTableInput) -> LastTable:
    """As that run left it: a worker replays it to answer. Where it had not yet read its own last table, of the run
    before it.

    Fails for ever where there is no such run any more; else it is tried again.
    """
    run_id = work.run_id
    for _ in range(LAST_TABLE_RUNS):
        try:
            found = await _left_by(activity.client().get_workflow_handle(TREASURY, run_id=run_id))
        except RPCError as error:
            gone = error.status == RPCStatusCode.NOT_FOUND
            raise ApplicationError(f"run {run_id} cannot be read: {error.message}", non_retryable=gone) from error
        if not found.table.previous:
            return found
        run_id = found.table.previous
    raise ApplicationError("no run of the last ones has read its table", non_retryable=True)


async def _left_by(handle: WorkflowHandle[object, object]) -> LastTable:
    try:
        return LastTable(table=await handle.query("table", result_type=Table, rpc_timeout=LAST_TABLE_TRY))
    except WorkflowQueryFailedError:  # this version of its code cannot replay it
        return LastTable(table=await _begun_with(handle), whole=False)
    except RPCError as error:
        if error.status != RPCStatusCode.FAILED_PRECONDITION:
            raise
        return LastTable(table=await _begun_with(handle))  # it was ended before any worker had seen it


async def _begun_with(handle: WorkflowHandle[object, object]) -> Table:
    """Return what a run was given, from its first event."""
    async for event in handle.fetch_history_events(page_size=1):
        given = event.workflow_execution_started_event_attributes.input.payloads
        if given:
            table: Table = (await activity.client().data_converter.decode(given, [Table]))[0]
            return table
        break
    return Table()
