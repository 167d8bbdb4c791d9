"""Pages made of templates: every word of others is made visible, bounded and escaped on its way into them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from aiohttp import web

from perdure import __version__
from perdure.cli.words import count, money, shown, shown_line, span, tokens
from perdure.page.guard import PERSON, SESSION, Guard

if TYPE_CHECKING:
    from jinja2 import Environment

    from perdure.client import Perdure

PERDURE: web.AppKey[Perdure] = web.AppKey("perdure")
GUARD = web.AppKey("guard", Guard)

_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}


def perdure_of(request: web.Request) -> Perdure:
    return request.app[PERDURE]


def person_of(request: web.Request) -> str:
    """The name of who decides, for the record."""
    return request[PERSON]


def render(request: web.Request, template: str, *, status: int = 200, **values: object) -> web.Response:
    """One page or fragment. A template has what is given, and `person`, `csrf`, `path`, `said`, `version`."""
    return web.Response(status=status, text=rendered(request, template, **values), content_type="text/html")


def rendered(request: web.Request, template: str, **values: object) -> str:
    known = {
        "person": person_of(request),
        "csrf": request.app[GUARD].csrf(request[SESSION]),
        "path": request.path,
        "said": told(request),
        "version": __version__,
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


def told(request: web.Request) -> str:
    """The answer to the form that this session sent last, once, on a whole page."""
    if request.path.startswith("/live/") or request.method != "GET":
        return ""
    return request.app[SAID].pop(request[SESSION], "")


@cache
def environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: object) -> object:
        """The last thing that happens to whatever stands in {{ }}: nobody has to remember it."""
        if isinstance(value, str) and not isinstance(value, Markup):
            return shown(value)
        return "" if value is None else value

    made = Environment(
        loader=PackageLoader("perdure.page", "templates"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "line": shown_line,
        "text": shown,
        "money": money,
        "tokens": tokens,
        "span": span,
        "age": age,
        "time": time,
        "part": lambda text: quote(text, safe=""),
        "words": lambda text: text.replace("_", " "),
        "web": web_link,
    }
    made.globals |= {"count": count}
    return made


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
    return {
        one.name: (one.read_bytes(), kind)
        for one in kept.iterdir()
        if (kind := _TYPES.get(one.name[one.name.rfind(".") :]))
    }
