"""The table of a Treasury run that somebody ended, for the run that takes its place.

Effect: none.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.limits import LAST_TABLE_RUNS, LAST_TABLE_TRY
from perdure.models.treasury import TREASURY, LastTable, LastTableInput, TreasuryTable


@activity.defn
async def last_table(work: LastTableInput) -> LastTable:
    """Read the table of an ended Treasury run, which a worker replays to answer. Where that run had not yet read the
    table of the run before it, read that one's instead, through at most LAST_TABLE_RUNS runs.

    Raises ApplicationError: for good where a run does not exist any more or no run has a table of its own, else to be
    tried again.
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
    """Query a run for its table. Where no worker can answer, return the table that the run began with: not `whole`
    where this version of the code cannot replay the run, whole where the run ended before any worker had seen it.
    Raises RPCError for anything else."""
    try:
        return LastTable(table=await handle.query("table", result_type=TreasuryTable, rpc_timeout=LAST_TABLE_TRY))
    except WorkflowQueryFailedError:  # this version of its code cannot replay it
        return LastTable(table=await _initial_table(handle), whole=False)
    except RPCError as error:
        if error.status != RPCStatusCode.FAILED_PRECONDITION:
            raise
        return LastTable(table=await _initial_table(handle))  # it was ended before any worker had seen it


async def _initial_table(handle: WorkflowHandle[object, object]) -> TreasuryTable:
    """Return the table with which a run was started, from the first event of its history; an empty table where it was
    started without one."""
    async for event in handle.fetch_history_events(page_size=1):
        payloads = event.workflow_execution_started_event_attributes.input.payloads
        if payloads:
            table: TreasuryTable = (await activity.client().data_converter.decode(payloads, [TreasuryTable]))[0]
            return table
        break
    return TreasuryTable()
