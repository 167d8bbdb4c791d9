"""The fleet's budgets, from outside: put rules in, look at the table, add for today."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.view import look_up
from perdure.models.errors import BadInput, NoWorker, PerdureError
from perdure.models.limits import TASK_QUEUE, WORKFLOW_TASK
from perdure.models.treasury import TREASURY, Add, BudgetRule, Rules, Table

TREASURY_SEEN = timedelta(minutes=1)
"""A worker's pause between looks for the Treasury: who ended it meant today's reservations, not every delivery."""

TAKES_UP_TRIES, TAKES_UP_PAUSE_S = 50, 0.1
"""Until it has read that table, for whoever wants to see it: one a second where a worker lives."""


WORKFLOW = "Treasury"
TABLE_TIMEOUT = timedelta(seconds=15)
"""A query needs a worker; after this long there is none. The server asks a worker that has just died for 10 s."""

ENDED = "it was ended: nobody is given anything until a worker has started it again, within a minute"


async def put_rules(client: Client, rules: Iterable[BudgetRule]) -> None:
    """Tell the Treasury of this configuration's budgets, and start it where there is none. Without rules: nothing.

    One that somebody ended is started again and goes on from the table that was left.
    """
    told = Rules(rules={rule.name: rule.usd_per_day for rule in rules})
    if told.rules:
        await _start(client, await ended(client), "rules", told)


async def _start(client: Client, previous: str, signal: str, said: Rules | Add) -> None:
    await client.start_workflow(
        WORKFLOW,
        args=[Table(previous=previous)] if previous else [],
        id=TREASURY,
        task_queue=TASK_QUEUE,
        task_timeout=WORKFLOW_TASK,
        start_signal=signal,
        start_signal_args=[said],
        static_summary="budgets that deliveries share",
        static_details="It runs for ever, and is not to be cancelled or terminated. `perdure budget --shared`, or "
        "query `table`, shows what each budget has left; signal `add` allows more for today.",
    )


async def keep(client: Client, rules: Iterable[BudgetRule], every: timedelta = TREASURY_SEEN) -> None:
    """Start it again whenever somebody has ended it, for ever; `every`: how often to look. Without rules: nothing."""
    rules = tuple(rules)
    while rules:
        await asyncio.sleep(every.total_seconds())
        with suppress(RPCError):  # the next time
            if await ended(client):
                await put_rules(client, rules)


async def ended(client: Client) -> str:
    """The run id of the newest one, when it has ended; empty while it runs or where there never was one."""
    seen = await look_up(client, TREASURY)
    return "" if seen is None or seen.status is WorkflowExecutionStatus.RUNNING else seen.run_id


async def read_table(client: Client) -> Table:
    """Budgets and reservations. BadInput where there is no Treasury, NoWorker where none answers.

    Of one that somebody has ended: what it knew last, with a note that says so.
    """
    try:
        handle = client.get_workflow_handle(TREASURY)
        for _ in range(TAKES_UP_TRIES):
            table: Table = await handle.query("table", result_type=Table, rpc_timeout=TABLE_TIMEOUT)
            if await ended(client):
                return table.model_copy(update={"note": ENDED})
            if not table.previous:
                return table
            await asyncio.sleep(TAKES_UP_PAUSE_S)
        raise PerdureError("it still reads what the run before it knew", where=TREASURY, fix="look again in a minute")
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            fix = "write [[treasury]] into config.toml and restart the worker; see docs/budget.md"
            raise BadInput("no budgets are shared here", where=TREASURY, fix=fix) from None
        if error.status == RPCStatusCode.FAILED_PRECONDITION and await ended(client):
            return Table(note=ENDED)  # before any worker had seen it
        raise NoWorker("no worker answers", where=TREASURY) from None


async def add(client: Client, rule: str, usd: float) -> None:
    """More for today. It is a signal: counted once, also by a worker that starts later, and after somebody ended it."""
    more = Add(rule=rule, usd=usd, id=uuid.uuid4().hex)
    try:
        if previous := await ended(client):
            await _start(client, previous, "add", more)
            return
        await client.get_workflow_handle(TREASURY).signal("add", more)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        raise BadInput("no budgets are shared here", where=TREASURY, fix="see docs/budget.md") from None
