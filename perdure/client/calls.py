"""Queries and updates of a workflow, sent again where the moment was to blame."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.limits import DECISION_ACCEPTED

QUERY_TIMEOUT = timedelta(seconds=5)
"""A query needs a worker, which answers within milliseconds, a busy one in a second or two."""

QUERY_TRIES, QUERY_PAUSE_S = 3, 0.5
"""A server goes on handing queries to a worker that has died, for 10 s at most (measured: 10.0), and a query that was
handed to it is lost: the third begins after 11 s."""

UPDATE_TRIES, UPDATE_PAUSE_S = 5, 0.2
"""One that comes as its workflow continues as new is refused, once in 200 with four clients at a backlog that does so
every few seconds: the next run takes it. A workflow whose every task fails refuses each try, at once."""

_NO_ANSWER = (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)
"""The client has given up, or the server. Where none has run for a while, that says FAILED_PRECONDITION."""

T = TypeVar("T")


async def ask(handle: WorkflowHandle[Any, Any], query: str, answer: type[T], *, once: bool = False) -> T:
    """Query it, again while a worker may just have died and another one be starting; RPCError when none answers.

    once  for whoever asks again anyway, and tells a person meanwhile
    """
    for tries_left in reversed(range(1 if once else QUERY_TRIES)):
        try:
            found: T = await handle.query(query, result_type=answer, rpc_timeout=QUERY_TIMEOUT)
            return found
        except RPCError as error:
            if error.status not in _NO_ANSWER or not tries_left:
                raise
        await asyncio.sleep(QUERY_PAUSE_S)
    raise AssertionError("the last try returns or raises")


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
