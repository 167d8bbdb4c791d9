"""`/`: all that waits for you, the longest first, and below it the board; live. And `/history`: what has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

from aiohttp import web
from temporalio.service import RPCError

from perdure.client import Perdure
from perdure.client.server.overview import OverviewRow
from perdure.client.server.view import escape_filter_value, list_newest
from perdure.models.delivery.result import Status
from perdure.models.errors import BadInput, PerdureError
from perdure.models.ids import DELIVERY_WORKFLOW
from perdure.models.phases import Phase
from perdure.page.render import TITLES, age_text, overview_of, path_part, perdure_of, render, stream_part
from perdure.text import shorten

_FRESH_S, _PATIENCE_S = 2.0, 0.025
"""The greatest age of rows as the page is opened, and the time it waits for a newer look: one at hundreds of deliveries
takes a tenth of a second and more, and the live part gets it as soon as it is there."""

COUNTS_EVERY_S = 20.0
"""Pause between two questions to one backlog, whose workflow answers them."""

LANE_CARDS = 50
"""Cards of one lane of the board, the first: nobody reads more, and each takes 0.15 ms of a processor."""

QUESTIONS_SHOWN = 300
"""Questions of the inbox, those that wait longest: some screens of them, and 60 ms of a processor."""

_ENDED = "ended"
_LANES = (*(phase.value for phase in Phase), "backlogs", "beginning", _ENDED)


def routes() -> list[web.RouteDef]:
    return [web.get("/", show_inbox), web.get("/live/inbox", stream_inbox), web.get("/history", show_history)]


class UnblockCounts:
    """The number of items that each waiting delivery of a backlog holds up, read from the backlogs in the background.

    A backlog is asked at most once in COUNTS_EVERY_S, and only while somebody looks.
    """

    def __init__(self, perdure: Perdure) -> None:
        self._perdure = perdure
        self._counts: dict[str, tuple[float, dict[str, int]]] = {}
        self._read_task: asyncio.Task[None] | None = None

    def known_counts(self, rows: Sequence[OverviewRow]) -> dict[str, int]:
        """Return the known numbers by delivery, without zeros, and begin to read what is old or not known."""
        parents = {row.parent for row in rows if row.waits and row.parent}
        self._counts = {parent: self._counts[parent] for parent in parents if parent in self._counts}
        is_old = time.monotonic() - COUNTS_EVERY_S
        due = [parent for parent in parents if parent not in self._counts or self._counts[parent][0] < is_old]
        if due and (self._read_task is None or self._read_task.done()):
            self._read_task = asyncio.create_task(self._read_counts(due))
        return {id: count for _, counts in self._counts.values() for id, count in counts.items() if count}

    async def _read_counts(self, parents: Sequence[str]) -> None:
        """Read the counts of these backlogs; what does not answer, or is no backlog, has none until the next time."""
        for parent in parents:
            counts = dict[str, int]()
            with suppress(PerdureError, RPCError, TimeoutError):
                progress = await self._perdure.backlog(parent).progress(once=True)
                counts = {view.delivery: view.unblocks for view in progress.items if view.delivery}
            self._counts[parent] = time.monotonic(), counts


UNBLOCK_COUNTS: web.AppKey[UnblockCounts] = web.AppKey("unblock_counts")


async def show_inbox(request: web.Request) -> web.StreamResponse:
    """Render the inbox and the board; after a decision (`?after=ID`) with a link to the next question."""
    overview = overview_of(request)
    rows = await overview.rows(_FRESH_S, _PATIENCE_S)
    decided = request.query.get("after", "")
    next_row = next((row for row in rows if row.waits and row.id != decided), None) if decided else None
    return render(request, "inbox.html", next=next_row, **_template_values(request, rows))


async def stream_inbox(request: web.Request) -> web.StreamResponse:
    """Stream both parts of the page, again whenever something in them is different; ages too."""
    overview = overview_of(request)

    async def look() -> tuple[object, Sequence[OverviewRow]]:
        rows = await overview.rows()
        counts = request.app[UNBLOCK_COUNTS].known_counts(rows)
        return (rows, overview.trouble, _changing_texts(rows), counts), rows

    async def values(rows: Sequence[OverviewRow]) -> dict[str, Any]:
        return _template_values(request, rows)

    return await stream_part(request, "inbox_live.html", look, values)


def _template_values(request: web.Request, rows: Sequence[OverviewRow]) -> dict[str, Any]:
    """Return the values of the template: what waits, the lanes of the board, and the functions that a row calls."""
    return {
        "waiting": [row for row in rows if row.waits],
        "lanes": group_by_lane(rows),
        "cards_most": LANE_CARDS,
        "questions_most": QUESTIONS_SHOWN,
        "trouble": overview_of(request).trouble,
        "is_cut": overview_of(request).is_cut,
        "unblocks": request.app[UNBLOCK_COUNTS].known_counts(rows),
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
    if row.closed is not None:
        return "failed" if row.failed else ""
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
    titles = await request.app[TITLES].read_titles(row.delivery_id for row in rows if not row.title)
    values: dict[str, Any] = {"rows": rows, "titles": titles, "asked": query, "shown": SHOWN}
    return render(request, "history.html", statuses=list(Status), kind=kind.lower(), **values)


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
