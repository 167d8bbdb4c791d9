"""The Treasury, the workflow that keeps budgets which deliveries share: send it rules, read it, add money. The worker
sends it the rules of its configuration and keeps it running; command `perdure budget` reads it and adds money, the page
only reads it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.server.view import find_workflow
from perdure.models.budget.treasury import TREASURY, BudgetRule, DayBudgetIncrease, TreasuryRules, TreasuryTable
from perdure.models.errors import BadInput, NoWorker, PerdureError
from perdure.models.limits import TASK_QUEUE, WORKFLOW_TASK

TREASURY_SEEN = timedelta(minutes=1)
"""A worker's pause between two checks that the Treasury runs: whoever ended it meant today's reservations, not every
delivery."""

TAKES_UP_TRIES, TAKES_UP_PAUSE_S = 50, 0.1
"""The number of queries, and their interval, for a Treasury that has just been started again, until it has read the
table of the run before: a second where a worker lives."""


TREASURY_WORKFLOW = "Treasury"
TABLE_TIMEOUT = timedelta(seconds=15)
"""Limit of the query, which needs a worker; the server waits 10 s for a worker that has just died."""

ENDED = "it was ended: nobody is given anything until a worker has started it again, within a minute"


async def put_rules(client: Client, rules: Iterable[BudgetRule]) -> None:
    """Send this configuration's budgets to the Treasury, and start it where none runs. Without rules, do nothing.

    A Treasury that somebody ended is started again and goes on from the table it left.
    """
    message = TreasuryRules(rules={rule.name: rule.usd_per_day for rule in rules})
    if message.rules:
        await _start_treasury(client, await find_ended_run(client), "rules", message)


async def _start_treasury(
    client: Client, previous: str, signal: str, payload: TreasuryRules | DayBudgetIncrease
) -> None:
    """Start the Treasury with a first signal; where it runs already, only send it the signal.

    `previous` is the run id of an ended Treasury whose table the new run goes on from; empty: it begins with none.
    """
    await client.start_workflow(
        TREASURY_WORKFLOW,
        args=[TreasuryTable(previous=previous)] if previous else [],
        id=TREASURY,
        task_queue=TASK_QUEUE,
        task_timeout=WORKFLOW_TASK,
        start_signal=signal,
        start_signal_args=[payload],
        static_summary="budgets that deliveries share",
        static_details="It runs for ever, and is not to be cancelled or terminated. `perdure budget --shared`, or "
        "query `table`, shows what each budget has left; signal `add` allows more for today.",
    )


async def keep_treasury_running(client: Client, rules: Iterable[BudgetRule], every: timedelta = TREASURY_SEEN) -> None:
    """Check in a loop, until cancelled, whether somebody has ended the Treasury; if so, start it again and send it
    `rules`.

    `every` is the pause before each check. After an RPCError the next check tries again. Returns at once when there are
    no rules.
    """
    rules = tuple(rules)
    while rules:
        await asyncio.sleep(every.total_seconds())
        with suppress(RPCError):  # the next time
            if await find_ended_run(client):
                await put_rules(client, rules)


async def find_ended_run(client: Client) -> str:
    """Return the run id of the newest Treasury when it has ended; empty while it runs or where there never was one."""
    execution = await find_workflow(client, TREASURY)
    return "" if execution is None or execution.status is WorkflowExecutionStatus.RUNNING else execution.run_id


async def read_budget_table(client: Client) -> TreasuryTable:
    """Query the Treasury for its table of budgets and reservations.

    Of a Treasury that somebody ended, returns what it knew last, with a note that says so; an empty table with that
    note when no worker had ever seen it. A Treasury that was just started again is asked until it has read the table of
    the run before; PerdureError when it has not within some seconds. Raises BadInput when there is no Treasury, and
    NoWorker when the query fails otherwise.
    """
    try:
        handle = client.get_workflow_handle(TREASURY)
        for _ in range(TAKES_UP_TRIES):
            table: TreasuryTable = await handle.query("table", result_type=TreasuryTable, rpc_timeout=TABLE_TIMEOUT)
            if await find_ended_run(client):
                return table.model_copy(update={"note": ENDED})
            if not table.previous:
                return table
            await asyncio.sleep(TAKES_UP_PAUSE_S)
        raise PerdureError("it still reads what the run before it knew", where=TREASURY, fix="look again in a minute")
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            fix = "write [[treasury]] into config.toml and restart the worker; see docs/budget.md"
            raise BadInput("no budgets are shared here", where=TREASURY, fix=fix) from None
        if error.status == RPCStatusCode.FAILED_PRECONDITION and await find_ended_run(client):
            return TreasuryTable(note=ENDED)  # before any worker had seen it
        raise NoWorker("no worker answers", where=TREASURY) from None


async def add_to_budget(client: Client, rule: str, usd: float) -> None:
    """Add dollars to one budget for today, by signal `add`, which counts once; no worker needs to run.

    A Treasury that somebody ended is started again with this signal. Raises BadInput when there is no Treasury.
    """
    signal = DayBudgetIncrease(rule=rule, usd=usd, id=uuid.uuid4().hex)
    try:
        if previous := await find_ended_run(client):
            await _start_treasury(client, previous, "add", signal)
            return
        await client.get_workflow_handle(TREASURY).signal("add", signal)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        raise BadInput("no budgets are shared here", where=TREASURY, fix="see docs/budget.md") from None
