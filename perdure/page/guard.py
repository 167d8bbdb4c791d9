"""The one door of the page: who may look, who decides, and which requests no page of somebody else's can send."""

from __future__ import annotations

import getpass
import hmac
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from html import escape

from aiohttp import web

from perdure.text import one_line

LEAVE = "/leave"
"""The address of the form that ends a session in this browser."""

CSRF = "csrf"
"""The field that every form carries."""

PERSON = web.RequestKey("person", str)
"""The name of who decides."""

SESSION = web.RequestKey("session", str)
"""The cookie's value, from which a form's field is made."""

PERSON_CHARS = 200
"""Of a name, as a decision records it."""

_COOKIE_S = 30 * 24 * 3600
"""A month: after that the address with the token is asked for again."""

_SAME = ("same-origin", "none")
"""Sec-Fetch-Site of what our own page, or the person at the address line, has sent."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with that a browser sends `Origin: null` with our own forms too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Guard:
    """`names`: hosts the page is asked as. `port`: in Host, None for any (a proxy's). `user_header`: names the person,
    as a proxy says it, which then stands for the token too. `person`: who decides where nobody says it."""

    token: str
    names: frozenset[str]
    port: int | None
    person: str = ""
    user_header: str = ""
    tls: bool = False

    @property
    def cookie(self) -> str:
        """Its name: another for every home, since a cookie is not bound to a port."""
        return f"perdure-{sha256(self.token.encode()).hexdigest()[:8]}"

    def csrf(self, session: str) -> str:
        return self._mac("form", session)

    async def door(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request in, or answer it here."""
        if not self._ours(request.headers.getall("Host", [])):
            return refused(403, "this page is not called by that name; perdure page prints its address")
        if self.user_header:
            told = request.headers.getall(self.user_header, [])
            if len(told) != 1 or not (person := one_line(told[0], PERSON_CHARS)):
                return refused(401, f"the proxy before this page has not said who you are ({self.user_header})")
        elif "token" in request.query and request.method == "GET":
            return self._by_token(request)
        else:
            person = self.person
        session = self._session(request)
        if not session and not self.user_header:
            if request.headers.get("Sec-Fetch-Site") == "cross-site" and request.method == "GET":
                return _once_more(request)
            return refused(401, "open the page by the address that perdure page prints: it has the token in it")
        fresh = session or self._new_session()
        request[PERSON], request[SESSION] = person, fresh
        if request.method not in ("GET", "HEAD"):
            if request.method != "POST":
                return refused(405, "the page is read, and its forms are sent")
            if not self._of_our_page(request) or not session or not await self._has_field(request, session):
                return refused(403, "this was not sent by this page; open it again (perdure page) and decide there")
            if request.path == LEAVE:
                answer = refused(200, "you have left; perdure page prints the address that leads back")
                answer.del_cookie(self.cookie, path="/")
                return answer
        shown = await handler(request)
        if not session and not shown.prepared:
            self._remember(request, shown, fresh)
        return shown

    def _ours(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        name, _, port = hosts[0].lower().rpartition(":") if not hosts[0].endswith("]") else (hosts[0], "", "")
        if not name:
            name, port = port, ""
        if name not in self.names:
            return False
        return self.port is None or (port or ("443" if self.tls else "80")) == str(self.port)

    def _of_our_page(self, request: web.Request) -> bool:
        """Browsers say where a form comes from; what is no browser has no cookie that somebody could misuse."""
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in _SAME:
            return False
        schemes = ("https", "http") if self.user_header else ("https",) if self.tls else ("http",)
        ours = {f"{scheme}://{request.headers['Host'].lower()}" for scheme in schemes}
        return all(origin.lower() in ours for origin in request.headers.getall("Origin", []))

    async def _has_field(self, request: web.Request, session: str) -> bool:
        form = await request.post()
        said = form.get(CSRF)
        return isinstance(said, str) and hmac.compare_digest(said.encode(), self.csrf(session).encode())

    def _by_token(self, request: web.Request) -> web.StreamResponse:
        if not hmac.compare_digest(request.query["token"].encode(), self.token.encode()):
            return refused(401, "that is not this page's token; perdure page prints the address with the right one")
        answer = _once_more(request)
        self._remember(request, answer, self._session(request) or self._new_session())
        return answer

    def _new_session(self) -> str:
        name = secrets.token_hex(16)
        return f"{name}.{self._mac('session', name)}"

    def _session(self, request: web.Request) -> str:
        """The cookie's value where we made it, else empty."""
        value = request.cookies.get(self.cookie, "")
        name, _, mac = value.partition(".")
        return value if name and hmac.compare_digest(mac.encode(), self._mac("session", name).encode()) else ""

    def _remember(self, request: web.Request, answer: web.StreamResponse, session: str) -> None:
        secure = self.tls or request.headers.get("X-Forwarded-Proto") == "https"
        answer.set_cookie(
            self.cookie, session, max_age=_COOKIE_S, path="/", httponly=True, samesite="Strict", secure=secure
        )

    def _mac(self, purpose: str, text: str) -> str:
        return hmac.new(self.token.encode(), f"{purpose}:{text}".encode(), sha256).hexdigest()


def refused(status: int, words: str) -> web.Response:
    """One line, and nothing of the page."""
    return web.Response(status=status, text=f"{words}\n")


async def with_headers(request: web.Request, answer: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        answer.headers.setdefault(name, value)
    answer.headers.pop("Server", None)


def _once_more(request: web.Request) -> web.Response:
    """The same address, without a token, asked for by a page of ours: a browser that comes from another site shows the
    cookie (SameSite=Strict) only then."""
    path = escape("/" + request.path.lstrip("/"), quote=True)
    page = f'<!doctype html><meta http-equiv="refresh" content="0; url={path}"><title>Perdure</title>'
    return web.Response(text=f'{page}<p><a href="{path}">Go on</a>', content_type="text/html")


def login_name() -> str:
    """The login name of this process, for the record of what they decide."""
    try:
        return getpass.getuser()[:PERSON_CHARS]
    except (OSError, KeyError):
        return str(os.getuid())
