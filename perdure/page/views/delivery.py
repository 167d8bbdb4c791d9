"""A delivery: what waits for a person, where it stands, its whole report; live, with what can be done to it.

Read from its history and its host: no workflow is asked, so that looking wakes none.
"""

from __future__ import annotations

import re
import secrets
from functools import partial
from typing import Any

from aiohttp import web

from perdure.client import Delivery, RunDescription
from perdure.client.delivery.rewinding import fork, rewind
from perdure.client.delivery.turns import turns
from perdure.models.errors import BadInput
from perdure.page.render import (
    TITLES,
    delivery_of,
    form_text,
    path_part,
    perdure_of,
    person_of,
    redirect_with_message,
    render,
    stream_part,
)
from perdure.render.comparison import comparison_rows, load_comparison
from perdure.render.report.facts import DeliveryReport
from perdure.render.report.gather import PNG, gather_report
from perdure.render.report.page import template_values

_REPORTS_MOST = 16
"""Deliveries whose report is kept until something happens to them: some hundred KiB each."""

REPORTS: web.AppKey[dict[str, tuple[object, DeliveryReport, list[str]]]] = web.AppKey("reports")

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
        web.get("/live/deliveries/{id}", stream_delivery),
        web.get("/compare", show_comparison),
        web.get("/deliveries/{id}/pictures/{sha256}", serve_screenshot),
        web.post("/deliveries/{id}/{act:say|hold|resume|cancel|retry|rewind|fork}", act_on_delivery),
    ]


async def show_delivery(request: web.Request) -> web.StreamResponse:
    """Render the page of one delivery."""
    delivery = delivery_of(request)
    return render(request, "delivery.html", **await _template_values(request, delivery, await delivery.describe()))


async def stream_delivery(request: web.Request) -> web.StreamResponse:
    """Stream the page's inner part, again whenever something in it is different."""
    delivery = delivery_of(request)

    async def look() -> tuple[object, RunDescription]:
        seen = await delivery.describe()
        return (seen.run_id, seen.events, seen.running, seen.pending_decision, seen.pending), seen

    return await stream_part(request, "delivery_inner.html", look, partial(_template_values, request, delivery))


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


async def _template_values(request: web.Request, delivery: Delivery, seen: RunDescription) -> dict[str, Any]:
    """Read the delivery's report and return the values of the template, with links to its screenshots."""
    report, places = await read_report(request, delivery, seen)
    shots = report.screenshots.pictures if report.screenshots else ()
    pictures = {
        shot.artifact: f"/deliveries/{path_part(delivery.id)}/pictures/{shot.artifact}"
        for shot in shots
        if _SHA256.fullmatch(shot.artifact)
    }
    return template_values(report, pictures) | {
        "id": delivery.id,
        "seen": seen,
        "once": secrets.token_hex(16),
        "places": places,
    }


async def read_report(
    request: web.Request, delivery: Delivery, seen: RunDescription
) -> tuple[DeliveryReport, list[str]]:
    """Read all that can be read of the delivery; return (its report, the places of its turns such as `implement:4`).

    Taken from a cache while its history has not grown. The cache keeps the reports of the _REPORTS_MOST deliveries that
    were looked at last. Raises BadInput when there is no such delivery, and RPCError when the server does not give its
    history.
    """
    cache = request.app[REPORTS]
    key = (seen.run_id, seen.events, seen.running)
    cached = cache.pop(delivery.id, None)
    if cached is None or cached[0] != key:
        cached = key, await gather_report(delivery, passive=True), [turn.place for turn in await turns(delivery)]
    cache[delivery.id] = cached
    while len(cache) > _REPORTS_MOST:
        del cache[next(iter(cache))]
    return cached[1:]
