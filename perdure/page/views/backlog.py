"""One backlog: which of its items wait for a person, what depends on what, and what can be done to it; live.

Its workflow is asked when its history has grown, and never while it waits.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from aiohttp import web
from markupsafe import Markup

from perdure.cli.backlog.drawing import draw
from perdure.cli.backlog.report import MARKS, state
from perdure.cli.backlog.text import ORDER
from perdure.cli.backlog.watch import asked_of
from perdure.cli.words import short
from perdure.client import Backlog, Described
from perdure.models.errors import BadInput
from perdure.models.webui.backlog import counted
from perdure.page.live import stream
from perdure.page.render import done, perdure_of, person_of, render, text_of

_SAID = {
    "hold": "nothing further begins until it is resumed",
    "resume": "it goes on",
    "cancel": "it was asked to stop; what has landed stays",
}


def routes() -> list[web.RouteDef]:
    return [
        web.get("/backlogs/{id}", show),
        web.get("/live/backlogs/{id}", live),
        web.post("/backlogs/{id}/{act:hold|resume|cancel|follow|leave}", act),
        web.post("/backlogs/{id}/items/{item}/{act:retry|skip|cancel|prioritise}", act_on_item),
    ]


async def show(request: web.Request) -> web.StreamResponse:
    """The whole page."""
    backlog = _backlog(request)
    return render(request, "backlog.html", **await _values(backlog, await backlog.describe()))


async def live(request: web.Request) -> web.StreamResponse:
    """The page's inner part, whenever something of it is different."""
    backlog = _backlog(request)

    async def look() -> tuple[object, Described]:
        seen = await backlog.describe()
        return (seen.run_id, seen.events, seen.running), seen

    return await stream(request, "backlog_inner.html", look, partial(_values, backlog))


async def act(request: web.Request) -> web.StreamResponse:
    """Carry out an act on all of it."""
    backlog, name = _backlog(request), request.match_info["act"]
    match name:
        case "hold":
            await backlog.hold(await text_of(request, "text"))
        case "resume":
            await backlog.resume()
        case "cancel":
            await backlog.cancel()
        case _:
            said = await backlog.follow(leave=name == "leave", by=person_of(request))
            return done(request, request.path.rpartition("/")[0], said)
    return done(request, request.path.rpartition("/")[0], _SAID[name])


async def act_on_item(request: web.Request) -> web.StreamResponse:
    """Carry out an act on one item; the backlog says what came of it."""
    backlog, item, by = _backlog(request), request.match_info["item"], person_of(request)
    match request.match_info["act"]:
        case "retry":
            said = await backlog.retry(item, by=by)
        case "skip":
            said = await backlog.skip(item, await text_of(request, "text"), by=by)
        case "cancel":
            said = await backlog.cancel_item(item, by=by)
        case _:
            said = await backlog.prioritise(item, _number(await text_of(request, "text")), by=by)
    return done(request, request.rel_url.raw_path.partition("/items/")[0], said)


async def _values(backlog: Backlog, seen: Described) -> dict[str, Any]:
    progress = await backlog.progress()
    asked = await asked_of(backlog, progress)
    order = {phase: place for place, phase in enumerate(ORDER)}
    return {
        "id": backlog.id,
        "seen": seen,
        "progress": progress,
        "headline": counted(progress.items),
        "asked": [(view, asked[view.id]) for view in progress.items if view.id in asked],
        "items": sorted(progress.items, key=lambda view: order.get(view.phase, len(order))),
        "graph": Markup(draw(progress, "svg")),  # noqa: S704  # drawn by us, its words escaped there
        "state": state,
        "marks": MARKS,
        "short": short,
    }


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{text[:20]!r} is no priority", fix="-100 to 100") from None


def _backlog(request: web.Request) -> Backlog:
    return perdure_of(request).backlog(request.match_info["id"])
