"""A delivery: what waits for a person, where it stands, its whole report; live, with what can be done to it.

Read from its history and its host: no workflow is asked, so that looking wakes none.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from perdure.client import RunDescription
from perdure.client.delivery.rewinding import fork, rewind
from perdure.models.errors import BadInput
from perdure.page.render import (
    TITLES,
    StreamedParts,
    delivery_of,
    form_text,
    path_part,
    perdure_of,
    person_of,
    redirect_with_message,
    render,
    render_text,
    stream_parts,
)
from perdure.page.views.conversation import (
    ROWS_SHOWN,
    STORY_PARTS,
    has_row,
    newest_turn,
    parse_offset,
    plan_tasks,
    row_values,
    rows_before,
    sent_messages,
)
from perdure.page.views.delivery_cache import WatchedDelivery, watched_delivery
from perdure.page.views.review import REVIEW_PARTS, color_change
from perdure.render.comparison import comparison_rows, load_comparison
from perdure.render.event_text import worker_death_sentence
from perdure.render.report.gather import PNG
from perdure.render.report.page import template_values

_MESSAGES = {
    "say": "its next turn reads it",
    "hold": "no further turn begins until it is resumed",
    "resume": "it goes on",
    "cancel": "it was asked to stop; its branch and its checkpoints stay",
    "retry": "it goes on from its last checkpoint",
    "rewind": "",
    "fork": "",
}

_SHA256 = re.compile("[0-9a-f]{64}")


def routes() -> list[web.RouteDef]:
    """Return the routes of this view."""
    return [
        web.get("/deliveries/{id}", show_delivery),
        web.get(f"/deliveries/{{id}}/{{tab:{'|'.join(TABS)}}}", show_delivery),
        web.get("/live/deliveries/{id}", stream_delivery),
        web.get("/compare", show_comparison),
        web.get("/deliveries/{id}/pictures/{sha256}", serve_screenshot),
        web.post("/deliveries/{id}/{act:say|hold|resume|cancel|retry|rewind|fork}", act_on_delivery),
    ]


async def show_delivery(request: web.Request) -> web.StreamResponse:
    """Render the page of one delivery: its conversation, or the part of its report that the path names.

    `at` in the query is the turn that the forms of rewind and fork are about, `before` the place in the conversation
    that its rows end at.
    """
    watched = watched_delivery(request)
    seen = await watched.read_description(fresh=True)
    values = await _template_values(request, watched, seen, secrets.token_hex(16))
    events = await watched.read_events(seen)
    end = parse_offset(request.query.get("before", ""), len(events))
    rows, older = rows_before(events, end) if not values["tab"] else ([], 0)
    return render(
        request,
        "delivery.html",
        **values | await row_values(watched, values["report"], rows),
        older=older,
        reached=len(events),
        newer=end < len(events),
    )


async def stream_delivery(request: web.Request) -> web.StreamResponse:
    """Stream what is new on the page: rows of the conversation once each, and all else whenever it is different.

    With `rows` in the query there are none: the page shows older ones, which new ones do not follow.
    """
    watched, once = watched_delivery(request), secrets.token_hex(16)
    reached = parse_offset(request.headers.get("Last-Event-ID") or request.query.get("from", ""), _NO_END)

    async def look() -> tuple[object, RunDescription]:
        seen = await watched.read_description()
        return (seen.run_id, seen.events, seen.running, seen.pending_decision, seen.pending), seen

    async def compose_parts(seen: RunDescription) -> StreamedParts:
        nonlocal reached
        values, events = await _template_values(request, watched, seen, once), await watched.read_events(seen)
        rows = [event for event in events[reached:] if has_row(event)]
        shown = rows[-ROWS_SHOWN:] if not values["tab"] and "rows" not in request.query else []
        added = ""
        if rows:
            values |= await row_values(watched, values["report"], shown)
            added = render_text(
                request, "conversation_added.html", **values, older=0, newest=rows[-1], earlier=len(rows) - 1
            )
        reached = len(events)
        values["shows_running"] = not values["tab"] and "rows" not in request.query
        return StreamedParts(render_text(request, "delivery_live.html", **values), added, str(reached))

    return await stream_parts(request, look, compose_parts)


async def serve_screenshot(request: web.Request) -> web.StreamResponse:
    """Answer with a screenshot of the delivery, as its hash in the path names it, read from its host.

    404 when the path has no hash or the artifact is no PNG. Raises PerdureError when the host does not answer or does
    not have it.
    """
    if not _SHA256.fullmatch(sha256 := request.match_info["sha256"]):
        raise web.HTTPNotFound(text="no such picture")
    data = await delivery_of(request).artifact(sha256)
    if not data.startswith(PNG):
        raise web.HTTPNotFound(text="no such picture")
    return web.Response(body=data, content_type="image/png")


async def show_comparison(request: web.Request) -> web.StreamResponse:
    """Render two deliveries side by side, `/compare?one=ID&other=ID`, as `perdure compare` shows them.

    Raises BadInput without two different ids, and for one that there is not.
    """
    first, other = (request.query.get(name, "").strip() for name in ("one", "other"))
    if not first or not other or first == other:
        raise BadInput("name two deliveries to compare", fix="/compare?one=ID&other=ID")
    compared = await load_comparison(perdure_of(request).delivery(first), perdure_of(request).delivery(other))
    titles = await request.app[TITLES].read_titles([first, other])
    return render(request, "compare.html", found=compared, titles=titles, rows=comparison_rows(compared)[1:])


async def act_on_delivery(request: web.Request) -> web.StreamResponse:
    """Apply what a form asks for: say, hold, resume, cancel, retry, rewind or fork; redirect to the delivery's page.

    None of these decides what it waits for. A fork leads to the new delivery's page. Raises BadInput for an empty
    message to say, and the errors of the act itself.
    """
    delivery, text = delivery_of(request), await form_text(request, "text")
    message = _MESSAGES[name := request.match_info["act"]]
    match name:
        case "say":
            if not text.strip():
                raise BadInput("there are no words to say", fix="write some")
            await delivery.say(text, id=await form_text(request, "once"))
        case "hold":
            await delivery.hold(text, by=person_of(request))
        case "resume":
            await delivery.resume()
        case "cancel":
            await delivery.cancel()
        case "retry":
            await delivery.retry()
        case "rewind":
            to, (model, agent) = await form_text(request, "to"), await _form_overrides(request)
            rewound = await rewind(delivery, to, say=text, model=model, agent=agent, by=person_of(request))
            message = f"it was rewound to {rewound.place} just so before: nothing was done now"
            message = message if rewound.already_done else f"rewound: it takes {rewound.place} anew"
        case "fork":
            to, (model, agent), key = (
                await form_text(request, "to"),
                await _form_overrides(request),
                perdure_of(request).key,
            )
            forked = await fork(delivery, to, say=text, model=model, agent=agent, key=key)
            delivery, message = forked.delivery, f"a sibling of {delivery.id}, from before {forked.origin.at}"
    return redirect_with_message(request, f"/deliveries/{path_part(delivery.id)}", message)


async def _form_overrides(request: web.Request) -> tuple[str, str]:
    """Return the model and the agent that the form names, each empty where it names none."""
    return (await form_text(request, "model")).strip(), (await form_text(request, "agent")).strip()


@dataclass(frozen=True)
class ReportTab:
    """A part of the report that the page shows in place of the conversation: its sections, and what it has from the
    delivery's host besides the plan, names of HOST_PARTS."""

    sections: tuple[str, ...]
    parts: frozenset[str] = frozenset()


TABS = {
    "timeline": ReportTab(("timeline",)),
    "plan": ReportTab(("request", "plan", "decisions", "attempts")),
    "change": ReportTab((), REVIEW_PARTS),
    "tests": ReportTab(("tests",), frozenset({"tests"})),
    "review": ReportTab(("review", "screenshots"), frozenset({"review"})),
    "cost": ReportTab(("cost",)),
}

_NO_END = 10**9
"""More than any delivery has events."""


async def _template_values(
    request: web.Request, watched: WatchedDelivery, seen: RunDescription, once: str
) -> dict[str, Any]:
    """Read what the page shows but the rows of the conversation, and return the values of its templates."""
    id, tab = watched.delivery.id, request.match_info.get("tab") or request.query.get("tab", "")
    report = await watched.read_report(seen, STORY_PARTS | TABS[tab].parts if tab in TABS else STORY_PARTS)
    shots = report.screenshots.pictures if report.screenshots else ()
    pictures = {
        shot.artifact: f"/deliveries/{path_part(id)}/pictures/{shot.artifact}"
        for shot in shots
        if _SHA256.fullmatch(shot.artifact)
    }
    values = template_values(report, pictures)
    present = {**dict(values["sections"]), **({"change": "Change"} if report.has_change else {})}
    if tab == "change" and report.diff:
        values["change"] = await color_change(request, report)
    return values | {
        "id": id,
        "seen": seen,
        "once": once,
        "death_sentence": worker_death_sentence,
        "at": request.query.get("at", ""),
        "tab": tab if tab in TABS else "",
        "tabs": [name for name, shown in TABS.items() if not {name, *shown.sections}.isdisjoint(present)],
        "cards": [name for name in TABS[tab].sections if name in present] if tab in TABS else [],
        "messages": sent_messages(await watched.read_events(seen)),
        "tasks": plan_tasks(report, await newest_turn(watched, seen, report.queue)),
    }
