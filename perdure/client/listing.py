"""Deliveries as visibility lists them, in the order in which they were started."""

from __future__ import annotations

from temporalio.client import Client

from perdure.client.submit import WORKFLOW
from perdure.client.view import Listed, asked_of, listed

_PAGE = 1000
"""The most that a server gives in one answer."""


async def newest(client: Client, limit: int, query: str = "") -> list[Listed]:
    """The newest by start, each delivery once; `query` is added with AND (a list filter).

    A server lists what runs before what has ended, and that by its end; where its lists are in an SQL database it takes
    no other order. So first `limit` deliveries are found, of those that run and of those that have ended: as many are
    no older than the oldest of the newest of them, and then everything that began since.
    """
    clause = f"WorkflowType = '{WORKFLOW}'" + (f" AND ({query})" if query else "")
    running = await _first(client, f"{clause} AND ExecutionStatus = 'Running'", limit)
    ended = await _first(client, f"{clause} AND ExecutionStatus != 'Running'", limit)
    found = _by_start(ended | running)
    if len(ended) == limit:  # there may be more of them, older by their end and newer by their start
        since = found[limit - 1].started.isoformat()
        found = _by_start(await _first(client, f"{clause} AND StartTime >= '{since}'", None))
    return found[:limit]


async def _first(client: Client, clause: str, limit: int | None) -> dict[str, Listed]:
    """The first deliveries of a list; None: all of it."""
    found: dict[str, Listed] = {}
    async for execution in client.list_workflows(clause, page_size=min(2 * limit, _PAGE) if limit else _PAGE):
        if execution.id not in found or found[execution.id].started < execution.start_time:
            found[execution.id] = listed(execution, await asked_of(execution))  # a retried one has several runs
        if len(found) == limit:
            break
    return found


def _by_start(found: dict[str, Listed]) -> list[Listed]:
    return sorted(found.values(), key=lambda one: one.started, reverse=True)
