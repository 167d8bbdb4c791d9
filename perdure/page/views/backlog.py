"""A backlog: items that wait for a person, dependencies, and actions; live.

Its workflow is asked when its history has grown, and never while it waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from aiohttp import web
from markupsafe import Markup

from perdure.client import Backlog, RunDescription
from perdure.client.namespace import read_pending_decisions
from perdure.models.backlog.state import ItemView
from perdure.models.errors import BadInput
from perdure.models.limits import PRIORITY_MOST
from perdure.models.webui.backlog import SHOWN, count_phases
from perdure.page.render import TITLES, form_text, perdure_of, person_of, redirect_with_message, render, stream_part
from perdure.render.backlog.drawing import draw_graph
from perdure.render.backlog.report import item_state
from perdure.render.backlog.text import PHASE_MARKS
from perdure.text import short_sha, shorten

_MESSAGES = {
    "hold": "nothing further begins until it is resumed",
    "resume": "it goes on",
    "cancel": "it was asked to stop; what has landed stays",
}


def routes() -> list[web.RouteDef]:
    """Return the routes of this view."""
    return [
        web.get("/backlogs/{id}", show_backlog),
        web.get("/live/backlogs/{id}", stream_backlog),
        web.post("/backlogs/{id}/{act:hold|resume|cancel|follow|leave}", act_on_backlog),
        web.post("/backlogs/{id}/items/{item}/{act:retry|skip|cancel|prioritise}", act_on_item),
    ]


async def show_backlog(request: web.Request) -> web.StreamResponse:
    """Render the page of one backlog."""
    backlog = _backlog_of(request)
    return render(request, "backlog.html", **await _template_values(request, backlog, await backlog.describe()))


async def stream_backlog(request: web.Request) -> web.StreamResponse:
    """Stream the page's inner part, again whenever something in it is different."""
    backlog = _backlog_of(request)

    async def look() -> tuple[object, RunDescription]:
        seen = await backlog.describe()
        return (seen.run_id, seen.events, seen.running), seen

    return await stream_part(request, "backlog_inner.html", look, partial(_template_values, request, backlog))


async def act_on_backlog(request: web.Request) -> web.StreamResponse:
    """Apply what a form asks for to the whole backlog: hold, resume, cancel, follow or leave; redirect to its page.

    `follow` and `leave` are about its base branch, and their reply is shown there. Raises BadInput when the backlog has
    ended or refuses, NoWorker when `follow` or `leave` gets no answer.
    """
    backlog, name = _backlog_of(request), request.match_info["act"]
    match name:
        case "hold":
            await backlog.hold(await form_text(request, "text"))
        case "resume":
            await backlog.resume()
        case "cancel":
            await backlog.cancel()
        case _:
            reply = await backlog.follow(leave=name == "leave", by=person_of(request))
            return redirect_with_message(request, request.path.rpartition("/")[0], reply)
    return redirect_with_message(request, request.path.rpartition("/")[0], _MESSAGES[name])


async def act_on_item(request: web.Request) -> web.StreamResponse:
    """Apply what a form asks for to one item: retry, skip, cancel or prioritise; redirect to the backlog's page with
    the reply.

    Raises BadInput for a priority that is no number, and when the backlog refuses; NoWorker when it does not answer.
    """
    backlog, item, by = _backlog_of(request), request.match_info["item"], person_of(request)
    match request.match_info["act"]:
        case "retry":
            reply = await backlog.retry(item, by=by)
        case "skip":
            reply = await backlog.skip(item, await form_text(request, "text"), by=by)
        case "cancel":
            reply = await backlog.cancel_item(item, by=by)
        case _:
            reply = await backlog.prioritise(item, _parse_priority(await form_text(request, "text")), by=by)
    return redirect_with_message(request, request.rel_url.raw_path.partition("/items/")[0], reply)


async def _template_values(request: web.Request, backlog: Backlog, seen: RunDescription) -> dict[str, Any]:
    """Read the backlog's progress and what its items wait for, and return the values of the template by name.

    Raises BadInput when there is no such backlog, and NoWorker when no worker answers for a running one.
    """
    progress = await backlog.progress()
    pending_decisions = await read_pending_decisions(backlog, progress)
    order = {phase: place for place, phase in enumerate(SHOWN)}
    read_titles = await request.app[TITLES].read_titles(view.delivery for view in progress.items if view.delivery)
    titles = {
        view.id: title.removeprefix(f"{view.id}: ")
        for view in progress.items
        if (title := read_titles.get(view.delivery))
    }
    return {
        "id": backlog.id,
        "seen": seen,
        "progress": progress,
        "headline": count_phases(progress.items),
        "asked": [(view, pending_decisions[view.id]) for view in progress.items if view.id in pending_decisions],
        "items": sorted(progress.items, key=lambda view: order.get(view.phase, len(order))),
        "graph": Markup(draw_graph(progress, "svg", titles)),  # noqa: S704  # drawn by us, its words escaped there
        "state": item_state,
        "titles": titles,
        "names": item_names(progress.items, titles),
        "marks": PHASE_MARKS,
        "short": short_sha,
    }


def item_names(views: Sequence[ItemView], titles: Mapping[str, str]) -> dict[str, str]:
    """Return a name of each item for the items that depend on it: its title, with its id where two are alike."""
    names = {view.id: titles.get(view.id) or view.caption or view.id for view in views}
    counts = Counter(names.values())
    return {id: name if counts[name] == 1 else f"{name} ({id})" for id, name in names.items()}


def _parse_priority(text: str) -> int:
    """Parse a priority; raise BadInput for what is no whole number."""
    try:
        return int(text)
    except ValueError:
        what = f"{shorten(text, 20)!r} is no priority"
        raise BadInput(what, fix=f"-{PRIORITY_MOST} to {PRIORITY_MOST}") from None


def _backlog_of(request: web.Request) -> Backlog:
    return perdure_of(request).backlog(request.match_info["id"])
