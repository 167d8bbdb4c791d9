"""`/history`: deliveries and backlogs that have ended, found by what visibility can search."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web
from temporalio.service import RPCError

from perdure.client.listing import list_newest
from perdure.client.notifications import escape_filter_value
from perdure.client.submit import DELIVERY_WORKFLOW
from perdure.models.errors import BadInput
from perdure.models.result import Status
from perdure.page.render import perdure_of, render

SHOWN = 100
"""Entries of one search, the newest."""

_TEXT_CHARS = 255
"""Most characters of one thing that is searched for: longer ones no server has."""


def routes() -> list[web.RouteDef]:
    return [web.get("/history", show_history)]


async def show_history(request: web.Request) -> web.StreamResponse:
    """Render the newest deliveries or backlogs that have ended and fit the query.

    Raises BadInput for a filter Temporal refuses.
    """
    query, client = request.query, perdure_of(request).client
    clause = _list_filter(query)
    kind = "Backlog" if query.get("kind") == "backlog" else DELIVERY_WORKFLOW
    try:
        rows = await list_newest(client, SHOWN, clause, kind)
    except RPCError as error:
        raise BadInput(f"Temporal cannot search for that: {error.message[:300]}", where="query") from None
    return render(
        request, "history.html", rows=rows, asked=query, statuses=list(Status), shown=SHOWN, kind=kind.lower()
    )


def _list_filter(query: Mapping[str, str]) -> str:
    """Build a list filter from the form's fields.

    What people type is a value in it, never more of it, except `query`.
    """
    parts = ["ExecutionStatus != 'Running'"]
    for name, attribute in (("status", "PerdureStatus"), ("repository", "PerdureRepository"), ("id", "WorkflowId")):
        if text := query.get(name, "").strip()[:_TEXT_CHARS]:
            parts.append(f"{attribute} = '{escape_filter_value(text)}'")
    if since := query.get("since", "").strip()[:10]:
        parts.append(f"CloseTime >= '{escape_filter_value(since)}T00:00:00Z'")
    if more := query.get("query", "").strip()[:1000]:
        parts.append(f"({more})")  # the server's own language, for those who speak it; it reads, and nothing else
    return " AND ".join(parts)
