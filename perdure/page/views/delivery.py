"""One delivery: what waits for a person, where it stands, its whole report; live, with what can be done to it.

Read from its history and its host: no workflow is asked, so that looking wakes none.
"""

from __future__ import annotations

import re
import secrets
from functools import partial
from typing import Any

from aiohttp import web

from perdure.cli.look.compare import comparison, rows_of
from perdure.cli.look.report.facts import Report
from perdure.cli.look.report.from_host import PNG
from perdure.cli.look.report.gather import gather
from perdure.cli.look.report.page import values_of
from perdure.client import Delivery, Described
from perdure.client.forking import fork
from perdure.client.rewinding import rewind
from perdure.client.turns import turns
from perdure.models.errors import BadInput
from perdure.page.live import stream
from perdure.page.render import delivery_of, done, part, perdure_of, person_of, render, text_of

_REPORTS_MOST = 16
"""Deliveries whose report is kept until something happens to them: some hundred KiB each."""

REPORTS: web.AppKey[dict[str, tuple[object, Report, list[str]]]] = web.AppKey("reports")

_SAID = {
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
    return [
        web.get("/deliveries/{id}", show),
        web.get("/live/deliveries/{id}", live),
        web.get("/compare", compare),
        web.get("/deliveries/{id}/pictures/{sha256}", picture),
        web.post("/deliveries/{id}/{act:say|hold|resume|cancel|retry|rewind|fork}", act),
    ]


async def show(request: web.Request) -> web.StreamResponse:
    """The whole page."""
    delivery = delivery_of(request)
    return render(request, "delivery.html", **await _values(request, delivery, await delivery.describe()))


async def live(request: web.Request) -> web.StreamResponse:
    """The page's inner part, whenever something of it is different."""
    delivery = delivery_of(request)

    async def look() -> tuple[object, Described]:
        seen = await delivery.describe()
        return (seen.run_id, seen.events, seen.running, seen.asked, seen.pending), seen

    return await stream(request, "delivery_inner.html", look, partial(_values, request, delivery))


async def picture(request: web.Request) -> web.StreamResponse:
    """A screenshot, as its hash names it: a PNG or nothing."""
    if not _SHA256.fullmatch(sha256 := request.match_info["sha256"]):
        raise web.HTTPNotFound(text="no such picture")
    data = await delivery_of(request).artifact(sha256)
    if not data.startswith(PNG):
        raise web.HTTPNotFound(text="no such picture")
    return web.Response(body=data, content_type="image/png")


async def compare(request: web.Request) -> web.StreamResponse:
    """`/compare?one=ID&other=ID`: two deliveries side by side, as `perdure compare` shows them. BadInput without two
    ids, and for one that is not there."""
    one, other = (request.query.get(name, "").strip() for name in ("one", "other"))
    if not one or not other or one == other:
        raise BadInput("name two deliveries to compare", fix="/compare?one=ID&other=ID")
    found = await comparison(perdure_of(request).delivery(one), perdure_of(request).delivery(other))
    return render(request, "compare.html", found=found, rows=rows_of(found)[1:])


async def act(request: web.Request) -> web.StreamResponse:
    """Carry out an act that decides nothing it waits for."""
    delivery, said = delivery_of(request), await text_of(request, "text")
    words = _SAID[name := request.match_info["act"]]
    match name:
        case "say":
            if not said.strip():
                raise BadInput("there are no words to say", fix="write some")
            await delivery.say(said, id=await text_of(request, "once"))
        case "hold":
            await delivery.hold(said, by=person_of(request))
        case "resume":
            await delivery.resume()
        case "cancel":
            await delivery.cancel()
        case "retry":
            await delivery.retry()
        case "rewind":
            to, (model, agent) = await text_of(request, "to"), await _other(request)
            back = await rewind(delivery, to, say=said, model=model, agent=agent, by=person_of(request))
            words = f"it was rewound to {back.place} just so before: nothing was done now"
            words = words if back.before else f"rewound: it takes {back.place} anew"
        case "fork":
            to, (model, agent), key = await text_of(request, "to"), await _other(request), perdure_of(request).key
            made = await fork(delivery, to, say=said, model=model, agent=agent, key=key)
            delivery, words = made.delivery, f"a sibling of {delivery.id}, from before {made.began.at}"
    return done(request, f"/deliveries/{part(delivery.id)}", words)


async def _other(request: web.Request) -> tuple[str, str]:
    """Another model and another agent, where the form names them."""
    return (await text_of(request, "model")).strip(), (await text_of(request, "agent")).strip()


async def _values(request: web.Request, delivery: Delivery, seen: Described) -> dict[str, Any]:
    report, places = await _report(request, delivery, seen)
    shots = report.screenshots.pictures if report.screenshots else ()
    pictures = {
        shot.artifact: f"/deliveries/{part(delivery.id)}/pictures/{shot.artifact}"
        for shot in shots
        if _SHA256.fullmatch(shot.artifact)
    }
    return values_of(report, pictures) | {
        "id": delivery.id,
        "seen": seen,
        "once": secrets.token_hex(16),
        "places": places,
    }


async def _report(request: web.Request, delivery: Delivery, seen: Described) -> tuple[Report, list[str]]:
    """Everything that can be read of it, and the places of its turns; again when its history has grown."""
    kept = request.app[REPORTS]
    key = (seen.run_id, seen.events, seen.running)
    found = kept.pop(delivery.id, None)
    if found is None or found[0] != key:
        found = key, await gather(delivery, seen=True), [one.place for one in await turns(delivery)]
    kept[delivery.id] = found
    while len(kept) > _REPORTS_MOST:
        del kept[next(iter(kept))]
    return found[1:]
