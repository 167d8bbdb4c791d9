"""`/history`: deliveries and backlogs that have ended, found by what visibility can search."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web
from temporalio.service import RPCError

from perdure.client.listing import newest
from perdure.client.notifications import quoted
from perdure.client.submit import WORKFLOW
from perdure.models.errors import BadInput
from perdure.models.result import Status
from perdure.page.render import perdure_of, render

SHOWN = 100
"""Of one search, the newest."""

_WORDS = 255
"""Of one thing that is searched for: longer ones no server has."""


def routes() -> list[web.RouteDef]:
    return [web.get("/history", show)]


async def show(request: web.Request) -> web.StreamResponse:
    """The newest of those that fit."""
    query, client = request.query, perdure_of(request).client
    clause = _clause(query)
    kind = "Backlog" if query.get("kind") == "backlog" else WORKFLOW
    try:
        rows = await newest(client, SHOWN, clause, kind)
    except RPCError as error:
        raise BadInput(f"Temporal cannot search for that: {error.message[:300]}", where="query") from None
    return render(
        request, "history.html", rows=rows, asked=query, statuses=list(Status), shown=SHOWN, kind=kind.lower()
    )


def _clause(query: Mapping[str, str]) -> str:
    """A list filter. What people type into fields are values in it, never more of it."""
    parts = ["ExecutionStatus != 'Running'"]
    for name, attribute in (("status", "PerdureStatus"), ("repository", "PerdureRepository"), ("id", "WorkflowId")):
        if text := query.get(name, "").strip()[:_WORDS]:
            parts.append(f"{attribute} = '{quoted(text)}'")
    if since := query.get("since", "").strip()[:10]:
        parts.append(f"CloseTime >= '{quoted(since)}T00:00:00Z'")
    if more := query.get("query", "").strip()[:1000]:
        parts.append(f"({more})")  # the server's own language, for those who speak it; it reads, and nothing else
    return " AND ".join(parts)
