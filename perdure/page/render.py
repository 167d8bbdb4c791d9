"""Pages made from templates: every word of others is made visible, bounded and escaped on its way into them; and their
live parts, sent again whenever they are different, in the form that htmx's extension for streams reads. Also what the
views share: redirects with a message, fields of forms, static files. Used by the page's server and its views."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TypeVar
from urllib.parse import quote, urlsplit

from aiohttp import web
from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import escape
from temporalio.service import RPCError

from perdure import __version__
from perdure.client import Delivery, Perdure
from perdure.client.server.overview import Overview
from perdure.client.server.titles import TitleCache
from perdure.models import limits
from perdure.models.errors import BadInput, PerdureError
from perdure.page.guard import PERSON, SESSION, Guard
from perdure.render.formatting import action_text, repository_label
from perdure.render.report.page import report_environment as of_report
from perdure.text import name_hidden_characters, span, visible

PERDURE: web.AppKey[Perdure] = web.AppKey("perdure")
OVERVIEW: web.AppKey[Overview] = web.AppKey("overview")
GUARD = web.AppKey("guard", Guard)
TITLES = web.AppKey("titles", TitleCache)
WEB_UI = web.AppKey("web_ui", str)

_LOG = logging.getLogger(__name__)

UNEXPECTED = "this should not have happened: an error of the page itself"
UNEXPECTED_FIX = "try again; what perdure up, or perdure page, has printed names the cause"

_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}


def perdure_of(request: web.Request) -> Perdure:
    return request.app[PERDURE]


def delivery_of(request: web.Request) -> Delivery:
    """Return the delivery that the request's path names."""
    return perdure_of(request).delivery(request.match_info["id"])


def overview_of(request: web.Request) -> Overview:
    """Return the rows of all that runs, read once for all who look."""
    return request.app[OVERVIEW]


def person_of(request: web.Request) -> str:
    """Return the name of the person who decides, for the record."""
    return request[PERSON]


def render(request: web.Request, template: str, *, status: int = 200, **values: object) -> web.Response:
    """Render a template as an HTML answer, one page or a fragment.

    The template has `values` and those of `render_text`: `person`, `csrf`, `path`, `said`, `version`, `web_ui`.
    """
    return web.Response(status=status, text=render_text(request, template, **values), content_type="text/html")


def render_text(request: web.Request, template: str, **values: object) -> str:
    """Render a template as text, with `values` and what every page has: person, csrf, path, the last message, version.

    On a whole page the last form's message is taken out and shown in it, once.
    """
    common = {
        "person": person_of(request),
        "csrf": request.app[GUARD].csrf_value(request[SESSION]),
        "path": request.path,
        "said": pop_last_message(request),
        "version": __version__,
        "web_ui": request.app[WEB_UI],
    }
    return template_environment().get_template(template).render({**common, **values})


LAST_MESSAGES: web.AppKey[dict[str, str]] = web.AppKey("said")
LAST_MESSAGES_KEPT = 200
"""Messages that nobody has read yet, the oldest forgotten first."""


def redirect_with_message(request: web.Request, to: str, message: str) -> web.Response:
    """Return the redirect that ends a form, to a page of ours, and keep `message` for that page to show once.

    It replaces an earlier message of this session; beyond LAST_MESSAGES_KEPT of them the oldest is forgotten. A reload
    of that page sends nothing again.
    """
    messages, session = request.app[LAST_MESSAGES], request[SESSION]
    messages.pop(session, None)
    messages[session] = message
    while len(messages) > LAST_MESSAGES_KEPT:
        del messages[next(iter(messages))]
    return web.Response(status=303, headers={"Location": to})


def pop_last_message(request: web.Request) -> str:
    """Return the message that this session's last form left, and forget it; empty when it left none.

    Empty, and nothing forgotten, for live parts, fragments and forms: only a whole page shows it.
    """
    if request.path.startswith("/live/") or request.method != "GET" or "HX-Request" in request.headers:
        return ""
    return request.app[LAST_MESSAGES].pop(request[SESSION], "")


@cache
def template_environment() -> Environment:
    """Create the Jinja environment, once: the report's, with our templates before its own and our filters.

    So parts of the report are parts of our pages.
    """
    report = of_report()
    assert report.loader is not None
    combined = report.overlay(loader=ChoiceLoader([PackageLoader("perdure.page", "templates"), report.loader]))
    combined.globals = combined.globals | {"limits": limits}
    combined.filters = combined.filters | {
        "age": age_text,
        "time": time_text,
        "part": path_part,
        "words": lambda text: text.replace("_", " "),
        "web": web_link,
        "whole": editable_text,
        "named": name_hidden_characters,
        "repository": repository_label,
        "doing": action_text,
        "pull": pull_request_label,
        "host": lambda identity: identity.partition("/")[0],
    }
    return combined


def editable_text(text: str) -> str:
    """Return all of a text that a person edits, without hidden characters.

    What was cut off would be sent without it.
    """
    return escape(visible(text))


def pull_request_label(address: str) -> str:
    """Return the number of a pull request's address as `#12`; the address itself where it ends with none."""
    number = address.rpartition("/")[2]
    return f"#{number}" if number.isdecimal() else address


def path_part(text: str) -> str:
    """Return a text as one part of an address's path, with slashes and all else quoted."""
    return quote(text, safe="")


async def form_text(request: web.Request, name: str) -> str:
    """Return the text of a form's field; empty where there is none, or a file."""
    value = (await request.post()).get(name, "")
    return value if isinstance(value, str) else ""


def age_text(since: datetime, until: datetime | None = None) -> str:
    """Return how long something took `until` then, such as `1m 49s`; without it how long ago it was: `just now`,
    `40 s`, `4 min`, `3h 05m`, `12 d`, as coarse as a page that is not sent again every second needs it."""
    if until is not None:
        return span((until - since).total_seconds())
    seconds = max(0.0, (datetime.now(UTC) - since).total_seconds())
    if seconds < 60:
        return f"{seconds // 10 * 10:.0f} s" if seconds >= 10 else "just now"
    if seconds >= 48 * 3600:
        return f"{seconds // 86400:.0f} d"
    return f"{seconds // 60:.0f} min" if seconds < 3600 else span(seconds // 60 * 60)


def time_text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def web_link(address: str) -> str:
    """Return the address where a browser may follow it, else empty: nobody's `javascript:` becomes a link."""
    try:
        return address if urlsplit(address).scheme in ("http", "https") else ""
    except ValueError:
        return ""


@cache
def static_contents() -> Mapping[str, tuple[bytes, str]]:
    """Read the bytes and type of all static files, once, by name: nothing else is ever served."""
    folder = files("perdure.page").joinpath("static")
    report = files("perdure.render.report").joinpath("templates", "page.css")
    contents = {
        file.name: (file.read_bytes(), kind)
        for file in folder.iterdir()
        if (kind := _TYPES.get(file.name[file.name.rfind(".") :]))
    }
    # All scripts in one file: htmx starts by itself, and an extension that is loaded after that would not be connected.
    live = b"\n;".join(contents[name][0] for name in ("htmx.min.js", "hx-sse.min.js", "page.js"))
    return contents | {"report.css": (report.read_bytes(), _TYPES[".css"]), "live.js": (live, _TYPES[".js"])}


T = TypeVar("T")

LOOK_EVERY_S = 1.0
"""Pause between two looks at one delivery or backlog: people see it at once, and the server is asked for one
description."""

REST = 5
"""Times as long as making a part took, nothing is made after it: a page of hundreds of turns keeps at most a sixth of
one processor busy."""

_REST_MOST_S = 5.0
"""The longest such rest: a look that waited for a server that was gone was long, and took no processor."""

STILL_HERE = b": still here\n\n"
ALIVE_S = 15.0
"""Seconds of silence after which a line without meaning is sent, which shows whether somebody still reads."""


@dataclass(frozen=True)
class StreamedParts:
    """One message of an event stream, as HTML.

    state  sent whenever it differs from the state that was sent before
    added  sent once
    id     place in the stream after this message, which a browser that reconnects sends back
    """

    state: str
    added: str = ""
    id: str = ""


async def stream_part(
    request: web.Request,
    template: str,
    look: Callable[[], Awaitable[tuple[object, T]]],
    values: Callable[[T], Awaitable[dict[str, object]]],
) -> web.StreamResponse:
    """Answer with an event stream of `template` with `values(seen)`, as `stream_parts` sends it."""

    async def compose_parts(seen: T) -> StreamedParts:
        return StreamedParts(render_text(request, template, **await values(seen)))

    return await stream_parts(request, look, compose_parts)


async def stream_parts(
    request: web.Request,
    look: Callable[[], Awaitable[tuple[object, T]]],
    compose_parts: Callable[[T], Awaitable[StreamedParts]],
) -> web.StreamResponse:
    """Answer with an event stream of `compose_parts(seen)`, at first and whenever it is different.

    `look()` returns a key and what was seen; only when the key has changed is it composed again. What cannot be read
    just now is read later: the browser keeps what it has. What is gone is said above it, and so is a defect of the
    page. Ends when nobody reads any more.
    """
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    with suppress(ConnectionResetError):
        await answer.prepare(request)
        await _send_changes(request, answer, look, compose_parts)
    return answer


async def _send_changes(
    request: web.Request,
    answer: web.StreamResponse,
    look: Callable[[], Awaitable[tuple[object, T]]],
    compose_parts: Callable[[T], Awaitable[StreamedParts]],
) -> None:
    """Look, compose when the key has changed and send what is different, until nobody reads any more.

    Rests LOOK_EVERY_S seconds between looks, longer after slow ones. Sends a line without meaning after ALIVE_S of
    silence. What cannot be read just now is tried again at the next look. Raises ConnectionResetError when nobody reads
    any more.
    """
    loop = asyncio.get_running_loop()
    last_key: object = None
    sent, sent_gone, last_sent_at = StreamedParts(""), "", loop.time()
    while True:
        began, parts, gone = loop.time(), StreamedParts(sent.state), sent_gone
        try:
            key, seen = await look()
            if key != last_key:
                parts = await compose_parts(seen)
            last_key, gone = key, ""
        except BadInput as error:
            gone = f"It is not there any more: {error.what}. Below is what was seen of it last."
        except (PerdureError, RPCError, TimeoutError):
            pass
        except Exception as error:  # noqa: BLE001  # a defect must not end the stream without a word
            if gone != (gone := f"{UNEXPECTED}; {UNEXPECTED_FIX}. Below is what was seen last."):
                _LOG.error("%s: unexpected error", request.path[:200], exc_info=error)
        text = (parts.state if parts.state != sent.state else "") + parts.added
        if gone != sent_gone:
            text += render_text(request, "gone.html", what=gone)
        if text:
            lines = "".join(f"data: {line}\n" for line in text.splitlines())
            place = f"id: {parts.id}\n" if parts.id else ""
            await answer.write(f"{place}{lines}\n".encode())
            sent, sent_gone, last_sent_at = parts, gone, loop.time()
        elif loop.time() - last_sent_at > ALIVE_S:
            await answer.write(STILL_HERE)
            last_sent_at = loop.time()
        await asyncio.sleep(max(LOOK_EVERY_S, min(_REST_MOST_S, REST * (loop.time() - began))))
