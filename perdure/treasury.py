"""The fleet's budgets, from outside: put rules in, look at the table, add for today."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.errors import BadInput, PerdureError
from perdure.models.policy import TASK_QUEUE
from perdure.models.treasury import TREASURY, Add, BudgetRule, Rules, Table

WORKFLOW = "Treasury"
TABLE_TIMEOUT = timedelta(seconds=15)
"""A query needs a worker; after this long there is none. The server asks a worker that has just died for 10 s."""


async def put_rules(client: Client, rules: Iterable[BudgetRule]) -> None:
    """Tell the Treasury of this configuration's budgets, and start it where there is none. Without rules: nothing."""
    told = Rules(rules={rule.name: rule.usd_per_day for rule in rules})
    if told.rules:
        await client.start_workflow(
            WORKFLOW,
            id=TREASURY,
            task_queue=TASK_QUEUE,
            start_signal="rules",
            start_signal_args=[told],
            static_summary="budgets that deliveries share",
        )


async def read_table(client: Client) -> Table:
    """Budgets and reservations. BadInput where there is no Treasury, PerdureError where no worker answers."""
    try:
        handle = client.get_workflow_handle(TREASURY)
        table: Table = await handle.query("table", result_type=Table, rpc_timeout=TABLE_TIMEOUT)
        return table
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            fix = "write [[treasury]] into config.toml and restart the worker; see docs/budget.md"
            raise BadInput("no budgets are shared here", where=TREASURY, fix=fix) from None
        raise PerdureError("no worker answers", where=TREASURY, fix="perdure up --detach starts one") from None


async def add(client: Client, rule: str, usd: float) -> None:
    """More for today. It is a signal: counted once, also by a worker that starts later."""
    more = Add(rule=rule, usd=usd, id=uuid.uuid4().hex)
    try:
        await client.get_workflow_handle(TREASURY).signal("add", more)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        raise BadInput("no budgets are shared here", where=TREASURY, fix="see docs/budget.md") from None
