"""`/`: all that waits for you, the longest first, and below it the board; live. And `/history`: what has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from aiohttp import web
from temporalio.service import RPCError

from perdure.client.server.overview import OverviewRow
from perdure.client.server.view import escape_filter_value, list_newest
from perdure.models.delivery.result import Status
from perdure.models.errors import BadInput
from perdure.models.ids import DELIVERY_WORKFLOW
from perdure.models.phases import Phase
from perdure.page.render import age_text, overview_of, path_part, perdure_of, render, stream_part
from perdure.text import shorten

_FRESH_S, _PATIENCE_S = 2.0, 0.025
"""The greatest age of rows as the page is opened, and the time it waits for a newer look: one at hundreds of deliveries
takes a tenth of a second and more, and the live part gets it as soon as it is there."""

_ENDED = "ended"
_LANES = (*(phase.value for phase in Phase), "backlogs", "beginning", _ENDED)


def routes() -> list[web.RouteDef]:
    return [web.get("/", show_inbox), web.get("/live/inbox", stream_inbox), web.get("/history", show_history)]


async def show_inbox(request: web.Request) -> web.StreamResponse:
    overview = overview_of(request)
    rows = await overview.rows(_FRESH_S, _PATIENCE_S)
    return render(request, "inbox.html", **_template_values(rows, overview.trouble))


async def stream_inbox(request: web.Request) -> web.StreamResponse:
    """Stream both parts of the page, again whenever something in them is different; ages too."""
    overview = overview_of(request)

    async def look() -> tuple[object, Sequence[OverviewRow]]:
        rows = await overview.rows()
        return (rows, overview.trouble, _changing_texts(rows)), rows

    async def values(rows: Sequence[OverviewRow]) -> dict[str, Any]:
        return _template_values(rows, overview.trouble)

    return await stream_part(request, "inbox_live.html", look, values)


def _template_values(rows: Sequence[OverviewRow], trouble: str) -> dict[str, Any]:
    """Return the values of the template: what waits, the lanes of the board, and the functions that a card calls."""
    return {
        "waiting": [row for row in rows if row.waits],
        "lanes": group_by_lane(rows),
        "trouble": trouble,
        "anchor": anchor_of,
        "link": path_of,
        "worker": worker_text,
        "state": card_class,
    }


def _changing_texts(rows: Sequence[OverviewRow]) -> list[str]:
    """Return the texts of running rows that change with time alone: their ages, and whether a worker is at them."""
    return [age_text(row.since or row.started, row.closed) + worker_text(row) for row in rows if row.closed is None]


def group_by_lane(rows: Sequence[OverviewRow]) -> list[tuple[str, list[OverviewRow]]]:
    """Return the rows of the board by lane, without empty lanes: the phases in order, then the others.

    The others are `backlogs`, `beginning`, for deliveries that are in no phase yet, and `ended`, for both kinds.
    """
    by_lane: dict[str, list[OverviewRow]] = {name: [] for name in _LANES}
    for row in rows:
        if row.closed is not None:
            name = _ENDED
        elif row.kind == "backlog":
            name = "backlogs"
        else:
            name = row.phase if row.phase in by_lane else "beginning"
        by_lane[name].append(row)
    return [(name, lane_rows) for name, lane_rows in by_lane.items() if lane_rows]


def anchor_of(row: OverviewRow) -> str:
    """Return a name for a row's place on the page, another one once it asks for something else.

    So no word that was typed for one plan can be sent for the next.
    """
    decision_key = row.pending_decision.key if row.pending_decision and row.closed is None else ""
    return f"r{sha256(f'{row.id} {decision_key}'.encode()).hexdigest()[:16]}"


def path_of(row: OverviewRow) -> str:
    return f"/{'backlogs' if row.kind == 'backlog' else 'deliveries'}/{path_part(row.id)}"


def worker_text(row: OverviewRow) -> str:
    """Return in words whether a worker is at a running row; empty for one that waits for a person and for a backlog.

    The worker is silent or alive, nobody has taken the work, or the row is between two turns.
    """
    if row.waits or row.kind == "backlog":
        return ""
    if row.silent_since is not None:
        return f"worker silent for {age_text(row.silent_since)}"
    if row.attempt and not row.worker:
        return "no worker has taken it"
    return "worker alive" if row.worker else "between two turns"


def card_class(row: OverviewRow) -> str:
    """Return the CSS class of a row's card."""
    return "silent" if row.silent_since is not None else "waiting" if row.waits else ""


SHOWN = 100
"""Entries of one search, the newest."""

_TEXT_CHARS = 255
"""Most characters of one thing that is searched for: longer ones no server has."""


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
        raise BadInput(f"Temporal cannot search for that: {shorten(error.message, 300)}", where="query") from None
    return render(
        request, "history.html", rows=rows, asked=query, statuses=list(Status), shown=SHOWN, kind=kind.lower()
    )


def _list_filter(query: Mapping[str, str]) -> str:
    """Build a list filter for what has ended from the form's fields: status, repository, id, since (a day) and query.

    What people type is a value in it, never more of it; only `query` is added as it is.
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
