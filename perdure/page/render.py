"""Pages made from templates: every word of others is made visible, bounded and escaped on its way into them."""

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
from perdure.cli.look.report.page import report_environment as of_report
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

    A reload of that page sends nothing again.
    """
    messages, session = request.app[LAST_MESSAGES], request[SESSION]
    messages.pop(session, None)
    messages[session] = message
    while len(messages) > LAST_MESSAGES_KEPT:
        del messages[next(iter(messages))]
    return web.Response(status=303, headers={"Location": to})


def pop_last_message(request: web.Request) -> str:
    """Return the message that this session's last form left, and forget it; empty on live parts and fragments."""
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
    combined.filters = combined.filters | {
        "age": age_text,
        "time": time_text,
        "part": path_part,
        "words": lambda text: text.replace("_", " "),
        "web": web_link,
        "whole": editable_text,
    }
    return combined


def editable_text(text: str) -> str:
    """Return all of a text that a person edits, without hidden characters.

    What was cut off would be sent without it.
    """
    return escape(visible(text))


def path_part(text: str) -> str:
    """Return a text as one part of an address's path, with slashes and all else quoted."""
    return quote(text, safe="")


async def form_text(request: web.Request, name: str) -> str:
    """Return the text of a form's field; empty where there is none, or a file."""
    value = (await request.post()).get(name, "")
    return value if isinstance(value, str) else ""


def age_text(since: datetime, until: datetime | None = None) -> str:
    """Return how long ago something was, `just now`, `40 s`, `4 min`, `3 h`, or how long it took `until` then.

    As coarse as a page that is not sent again every second needs it.
    """
    seconds = max(0.0, ((until or datetime.now(UTC)) - since).total_seconds())
    if seconds < 60:
        return f"{seconds // 10 * 10:.0f} s" if seconds >= 10 else "just now"
    return span(seconds // 60 * 60)


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
    report = files("perdure.cli.look.report").joinpath("templates", "page.css")
    contents = {
        file.name: (file.read_bytes(), kind)
        for file in folder.iterdir()
        if (kind := _TYPES.get(file.name[file.name.rfind(".") :]))
    }
    # All scripts in one file: htmx starts by itself, and an extension that is loaded after that would not be connected.
    live = b"\n;".join(contents[name][0] for name in ("htmx.min.js", "hx-sse.min.js", "page.js"))
    return contents | {"report.css": (report.read_bytes(), _TYPES[".css"]), "live.js": (live, _TYPES[".js"])}
