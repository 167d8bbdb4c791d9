"""Pages made of templates: every word of others is made visible, bounded and escaped on its way into them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from urllib.parse import quote, urlsplit

from aiohttp import web
from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import escape

from perdure import __version__
from perdure.cli.look.report.page import environment as of_report
from perdure.client import Delivery, Perdure
from perdure.client.overview import Overview
from perdure.page.guard import PERSON, SESSION, Guard
from perdure.text import span, visible

PERDURE: web.AppKey[Perdure] = web.AppKey("perdure")
OVERVIEW: web.AppKey[Overview] = web.AppKey("overview")
GUARD = web.AppKey("guard", Guard)
WEB_UI = web.AppKey("web_ui", str)

_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}


def perdure_of(request: web.Request) -> Perdure:
    return request.app[PERDURE]


def delivery_of(request: web.Request) -> Delivery:
    """The one that the path names."""
    return perdure_of(request).delivery(request.match_info["id"])


def overview_of(request: web.Request) -> Overview:
    """Rows of all that runs, read once for all who look."""
    return request.app[OVERVIEW]


def person_of(request: web.Request) -> str:
    """The name of who decides, for the record."""
    return request[PERSON]


def render(request: web.Request, template: str, *, status: int = 200, **values: object) -> web.Response:
    """One page or fragment. A template has what is given, and `person`, `csrf`, `path`, `said`, `version`, `web_ui`."""
    return web.Response(status=status, text=rendered(request, template, **values), content_type="text/html")


def rendered(request: web.Request, template: str, **values: object) -> str:
    known = {
        "person": person_of(request),
        "csrf": request.app[GUARD].csrf(request[SESSION]),
        "path": request.path,
        "said": last_answer(request),
        "version": __version__,
        "web_ui": request.app[WEB_UI],
    }
    return environment().get_template(template).render({**known, **values})


SAID: web.AppKey[dict[str, str]] = web.AppKey("said")
SAID_KEPT = 200
"""Answers to forms that nobody has read yet, the oldest forgotten."""


def done(request: web.Request, to: str, words: str) -> web.Response:
    """The end of a form: back to a page of ours, which says `words` once. A reload sends nothing again."""
    said, session = request.app[SAID], request[SESSION]
    said.pop(session, None)
    said[session] = words
    while len(said) > SAID_KEPT:
        del said[next(iter(said))]
    return web.Response(status=303, headers={"Location": to})


def last_answer(request: web.Request) -> str:
    """The answer to the form that this session sent last, once, on a whole page."""
    if request.path.startswith("/live/") or request.method != "GET" or "HX-Request" in request.headers:
        return ""
    return request.app[SAID].pop(request[SESSION], "")


@cache
def environment() -> Environment:
    """The report's, with our templates before its own: its parts are parts of our pages."""
    report = of_report()
    assert report.loader is not None
    made = report.overlay(loader=ChoiceLoader([PackageLoader("perdure.page", "templates"), report.loader]))
    made.filters = made.filters | {
        "age": age,
        "time": time,
        "part": part,
        "words": lambda text: text.replace("_", " "),
        "web": web_link,
        "whole": whole,
    }
    return made


def whole(text: str) -> str:
    """All of a text that a person edits, its hidden characters left out: what is cut off would be sent without it."""
    return escape(visible(text))


def part(text: str) -> str:
    """Text as one part of an address's path."""
    return quote(text, safe="")


async def text_of(request: web.Request, name: str) -> str:
    """The text of a form's field; empty where there is none, or a file."""
    said = (await request.post()).get(name, "")
    return said if isinstance(said, str) else ""


def age(since: datetime, until: datetime | None = None) -> str:
    """`40 s`, `4 min`, `3 h`: since then, as coarse as a page that is not sent again every second needs it."""
    seconds = max(0.0, ((until or datetime.now(UTC)) - since).total_seconds())
    if seconds < 60:
        return f"{seconds // 10 * 10:.0f} s" if seconds >= 10 else "just now"
    return span(seconds // 60 * 60)


def time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def web_link(address: str) -> str:
    """The address where a browser may follow it, else empty: nobody's `javascript:` becomes a link."""
    try:
        return address if urlsplit(address).scheme in ("http", "https") else ""
    except ValueError:
        return ""


@cache
def static() -> Mapping[str, tuple[bytes, str]]:
    """Bytes and type of what pages are made with, by name: nothing else is ever read, whatever is asked for."""
    kept = files("perdure.page").joinpath("static")
    report = files("perdure.cli.look.report").joinpath("templates", "page.css")
    found = {
        one.name: (one.read_bytes(), kind)
        for one in kept.iterdir()
        if (kind := _TYPES.get(one.name[one.name.rfind(".") :]))
    }
    # In one file: htmx begins by itself, and an extension that was loaded after that would connect nothing.
    live = b"\n;".join(found[name][0] for name in ("htmx.min.js", "hx-sse.min.js", "page.js"))
    return found | {"report.css": (report.read_bytes(), _TYPES[".css"]), "live.js": (live, _TYPES[".js"])}
