"""Updates of a workflow, sent again where the moment was to blame."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.limits import DECISION_ACCEPTED

UPDATE_TRIES, UPDATE_PAUSE_S = 5, 0.2
"""One that comes as its workflow continues as new is refused, once in 200 with four clients at a backlog that does so
every few seconds: the next run takes it. A workflow whose every task fails refuses each try, at once."""


async def send_update(handle: WorkflowHandle[Any, Any], name: str, said: dict[str, Any], id: str) -> Any:
    """Send an update and return its answer. One id counts once: it is the same in every try.

    Raises what `execute_update` raises, and TimeoutError after twice DECISION_ACCEPTED.
    """
    # The limit of one try is not one of all: the client tries again what a server has not answered.
    async with asyncio.timeout(2 * DECISION_ACCEPTED.total_seconds()):
        for tries_left in reversed(range(UPDATE_TRIES)):
            try:
                return await handle.execute_update(name, said, id=id, rpc_timeout=DECISION_ACCEPTED)
            except RPCError as error:
                if error.status is not RPCStatusCode.FAILED_PRECONDITION or not tries_left:
                    raise
            await asyncio.sleep(UPDATE_PAUSE_S)
    raise AssertionError("the last try returns or raises")
