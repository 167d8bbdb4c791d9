"""The check that there is anything for a worker to do."""

from __future__ import annotations

from temporalio.service import RPCError

from perdure.adapters.system.home import Home
from perdure.client.submit import WORKFLOW
from perdure.local.connect import configured, connect
from perdure.models.errors import PerdureError, TemporalUnreachable

_RUNNING = f"WorkflowType IN ('{WORKFLOW}', 'Notification') AND ExecutionStatus = 'Running'"
"""Runs that count: what is told of a delivery may outlive it."""


async def running_deliveries(home: Home) -> bool:
    """True where a delivery runs, or somebody is still to be told of one. A server that cannot be asked counts as
    busy, an embedded one that is down as idle."""
    try:
        client = await connect(home, start=False, say=lambda _: None)
        return (await client.count_workflows(_RUNNING)).count > 0
    except TemporalUnreachable:
        return configured() is not None
    except (RPCError, PerdureError):
        return True
