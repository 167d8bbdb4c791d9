"""`/`: all that waits for you, the longest first, and below it the board; live."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from aiohttp import web

from perdure.client.overview import Row
from perdure.models.phases import Phase
from perdure.page.live import stream
from perdure.page.render import age, overview_of, part, render

_FRESH_S, _PATIENCE_S = 2.0, 0.025
"""As old as the page may be at first, and as long as it waits for a newer look: one at hundreds of deliveries takes a
tenth of a second and more, and what is live gets it as soon as it is there."""

_ENDED = "ended"
_LANES = (*(phase.value for phase in Phase), "backlogs", "beginning", _ENDED)


def routes() -> list[web.RouteDef]:
    return [web.get("/", inbox), web.get("/live/inbox", live)]


async def inbox(request: web.Request) -> web.StreamResponse:
    overview = overview_of(request)
    rows = await overview.rows(_FRESH_S, _PATIENCE_S)
    return render(request, "inbox.html", **_values(rows, overview.trouble))


async def live(request: web.Request) -> web.StreamResponse:
    """Both parts, whenever something in them is different; ages too."""
    overview = overview_of(request)

    async def look() -> tuple[object, Sequence[Row]]:
        rows = await overview.rows()
        return (rows, overview.trouble, _ages(rows)), rows

    async def values(rows: Sequence[Row]) -> dict[str, Any]:
        return _values(rows, overview.trouble)

    return await stream(request, "inbox_live.html", look, values)


def _values(rows: Sequence[Row], trouble: str) -> dict[str, Any]:
    return {
        "waiting": [row for row in rows if row.waits],
        "lanes": lanes(rows),
        "trouble": trouble,
        "anchor": anchor,
        "link": link,
        "worker": worker,
        "state": state,
    }


def _ages(rows: Sequence[Row]) -> list[str]:
    """The words that change by themselves."""
    return [age(row.since or row.started, row.closed) + worker(row) for row in rows if row.closed is None]


def lanes(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Deliveries by phase, in the order of the phases; those that have ended last. Empty lanes are left out."""
    found: dict[str, list[Row]] = {name: [] for name in _LANES}
    for row in rows:
        if row.closed is not None:
            name = _ENDED
        elif row.kind == "backlog":
            name = "backlogs"
        else:
            name = row.phase if row.phase in found else "beginning"
        found[name].append(row)
    return [(name, there) for name, there in found.items() if there]


def anchor(row: Row) -> str:
    """A name for its place on the page: another one once it asks for something else, so that no word that was typed
    for one plan can be sent for the next."""
    of = row.asked.key if row.asked and row.closed is None else ""
    return f"r{sha256(f'{row.id} {of}'.encode()).hexdigest()[:16]}"


def link(row: Row) -> str:
    return f"/{'backlogs' if row.kind == 'backlog' else 'deliveries'}/{part(row.id)}"


def worker(row: Row) -> str:
    """Say of what runs if a worker is at it."""
    if row.waits or row.kind == "backlog":
        return ""
    if row.silent_since is not None:
        return f"worker silent for {age(row.silent_since)}"
    if row.attempt and not row.worker:
        return "no worker has taken it"
    return "worker alive" if row.worker else "between two turns"


def state(row: Row) -> str:
    """The class of its card."""
    return "silent" if row.silent_since is not None else "waiting" if row.waits else ""
