"""Access control of the page: who may look, who decides, and which requests come from a page of somebody else's. The
page's server calls it before each view; templates get its field against forged forms."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from html import escape

from aiohttp import web

from perdure.models.limits import PERSON_CHARS
from perdure.text import one_line

LEAVE = "/leave"
"""The path of the form that ends a session in this browser."""

CSRF = "csrf"
"""The name of the field that every form carries against forgery."""

PERSON = web.RequestKey("person", str)
"""The name of the person who decides."""

SESSION = web.RequestKey("session", str)
"""The value of the session cookie, from which a form's field is made."""

_COOKIE_S = 30 * 24 * 3600
"""A month: after that, the address with the token has to be opened again."""

_FORM_TYPE = "application/x-www-form-urlencoded"

_WRITTEN_FIELDS = ("text", "note", "answer", "plan", "request")
"""The fields of our forms in which a person writes more than a word."""

_SAME = ("same-origin", "none")
"""Sec-Fetch-Site of a request that our own page has sent, or the person at the address line."""

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
    """Decides which requests are let in.

    names        hosts that the page is called by, in the header Host
    port         the port in Host; None: any, where a proxy has its own
    user_header  the header in which a proxy names the person, which then stands for the token too; empty: no proxy
    person       who decides where no header says it
    """

    token: str
    names: frozenset[str]
    port: int | None
    person: str = ""
    user_header: str = ""
    tls: bool = False

    @property
    def cookie(self) -> str:
        """Return the session cookie's name, another one for every home, since a cookie is not bound to a port."""
        return f"perdure-{sha256(self.token.encode()).hexdigest()[:8]}"

    def csrf_value(self, session: str) -> str:
        return self._mac("form", session)

    async def check_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request in and return the handler's answer, or refuse it and return that answer: 401, 403 or 405.

        Checks the host's name, the person or the token, the session and, for a form, that our own page sent it. Sets
        the request's PERSON and SESSION, and the cookie of a new session. Answers the address with the token, and the
        form that ends the session, itself; a visit from another site's link gets a page that asks again from here.
        """
        if not self._is_our_host(request.headers.getall("Host", [])):
            return plain_answer(request, 403, "this page is not called by that name; perdure page prints its address")
        if self.user_header:
            header_values = request.headers.getall(self.user_header, [])
            if len(header_values) != 1 or not (person := one_line(header_values[0], PERSON_CHARS)):
                return plain_answer(
                    request, 401, f"the proxy before this page has not said who you are ({self.user_header})"
                )
        elif "token" in request.query and request.method == "GET":
            return self._log_in_by_token(request)
        else:
            person = self.person
        session = self._session(request)
        if not session and not self.user_header:
            if request.headers.get("Sec-Fetch-Site") == "cross-site" and request.method == "GET":
                return _same_path_refresh(request)
            reason = "open the page by the address that perdure page prints: it has the token in it"
            return await self._refuse_with_words(request, 401, reason)
        valid_session = session or self._new_session()
        request[PERSON], request[SESSION] = person, valid_session
        if request.method not in ("GET", "HEAD"):
            if request.method != "POST":
                return plain_answer(request, 405, "the page is read, and its forms are sent")
            if not self._is_from_our_page(request) or not session or not await self._has_csrf_field(request, session):
                reason = "this was not sent by this page; open it again (perdure page) and decide there"
                return await self._refuse_with_words(request, 403, reason)
            if request.path == LEAVE:
                answer = plain_answer(request, 200, "you have left; perdure page prints the address that leads back")
                answer.del_cookie(self.cookie, path="/")
                return answer
        response = await handler(request)
        if not session and not response.prepared:
            self._set_cookie(request, response, valid_session)
        return response

    def _is_our_host(self, hosts: list[str]) -> bool:
        """Return True where there is one Host header and it names this page, with the port it is asked at."""
        if len(hosts) != 1:
            return False
        name, _, port = hosts[0].lower().rpartition(":") if not hosts[0].endswith("]") else (hosts[0], "", "")
        if not name:
            name, port = port, ""
        if name not in self.names:
            return False
        return self.port is None or (port or ("443" if self.tls else "80")) == str(self.port)

    def _is_from_our_page(self, request: web.Request) -> bool:
        """Return True where Sec-Fetch-Site and Origin, as far as they are sent, say that a form is our own page's.

        Browsers say where a form comes from; what is no browser has no cookie that somebody could misuse.
        """
        if request.headers.get("Sec-Fetch-Site", "same-origin") not in _SAME:
            return False
        schemes = ("https", "http") if self.user_header else ("https",) if self.tls else ("http",)
        our_origins = {f"{scheme}://{request.headers['Host'].lower()}" for scheme in schemes}
        return all(origin.lower() in our_origins for origin in request.headers.getall("Origin", []))

    async def _has_csrf_field(self, request: web.Request, session: str) -> bool:
        """Return True where the form carries the field that belongs to this session."""
        value = (await _read_form(request)).get(CSRF)
        return isinstance(value, str) and hmac.compare_digest(value.encode(), self.csrf_value(session).encode())

    async def _refuse_with_words(self, request: web.Request, status: int, reason: str) -> web.Response:
        """Refuse a request; below the reason stands what a person had written into a form of our page, which is lost
        otherwise: the session may have ended meanwhile. What comes from elsewhere is not read."""
        is_ours = request.method == "POST" and self._is_from_our_page(request)
        form = await _read_form(request) if is_ours and request.content_type == _FORM_TYPE else {}
        written = [str(form[name]).strip() for name in _WRITTEN_FIELDS if isinstance(form.get(name), str)]
        typed = "\n\n".join(filter(None, written))
        return plain_answer(request, status, reason, typed)

    def _log_in_by_token(self, request: web.Request) -> web.StreamResponse:
        """Answer a request with the token in its address: set the session cookie and lead to the address without it.

        A wrong token is refused with 401.
        """
        if not hmac.compare_digest(request.query["token"].encode(), self.token.encode()):
            return plain_answer(
                request, 401, "that is not this page's token; perdure page prints the address with the right one"
            )
        answer = _same_path_refresh(request)
        self._set_cookie(request, answer, self._session(request) or self._new_session())
        return answer

    def _new_session(self) -> str:
        """Create the value of a new session cookie: a random name, signed with the token."""
        name = secrets.token_hex(16)
        return f"{name}.{self._mac('session', name)}"

    def _session(self, request: web.Request) -> str:
        """Return the session cookie's value where this page made it, else empty."""
        value = request.cookies.get(self.cookie, "")
        name, _, mac = value.partition(".")
        return value if name and hmac.compare_digest(mac.encode(), self._mac("session", name).encode()) else ""

    def _set_cookie(self, request: web.Request, answer: web.StreamResponse, session: str) -> None:
        """Set the session cookie, which lasts a month, in the answer; only for HTTPS where the request came by it."""
        secure = self.tls or request.headers.get("X-Forwarded-Proto") == "https"
        answer.set_cookie(
            self.cookie, session, max_age=_COOKIE_S, path="/", httponly=True, samesite="Strict", secure=secure
        )

    def _mac(self, purpose: str, text: str) -> str:
        return hmac.new(self.token.encode(), f"{purpose}:{text}".encode(), sha256).hexdigest()


async def _read_form(request: web.Request) -> Mapping[str, object]:
    """Return the fields of a form; none where its bytes are no form, or its encoding is unknown. Raises HTTPException
    where it is too large."""
    try:
        return await request.post()
    except (ValueError, LookupError):
        return {}


def plain_answer(request: web.Request, status: int, reason: str, typed: str = "") -> web.Response:
    """Return an answer of one line, and nothing of the page; below it stands what a person had `typed`, if anything.

    A browser gets HTML, which it can zoom and read aloud; anything else gets text.
    """
    label = "Your words, which were not sent"
    if "text/html" not in request.headers.get("Accept", ""):
        return web.Response(status=status, text=f"{reason}\n\n{label}:\n\n{typed}\n" if typed else f"{reason}\n")
    box = f'<p><label>{label}<br><textarea rows="8" readonly>\n{escape(typed)}</textarea></label></p>' if typed else ""
    page = f"{_PLAIN_HEAD}<main><h1>Perdure</h1><p>{escape(reason)}</p>{box}</main>"
    return web.Response(status=status, text=page, content_type="text/html")


_PLAIN_HEAD = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<meta name="color-scheme" content="light dark"><title>Perdure</title>'
)


async def add_security_headers(request: web.Request, answer: web.StreamResponse) -> None:
    """Add the security headers to an answer that is about to be sent, and remove `Server`."""
    for name, value in HEADERS.items():
        answer.headers.setdefault(name, value)
    answer.headers.pop("Server", None)


def _same_path_refresh(request: web.Request) -> web.Response:
    """Return a page that opens the same path, without the query, once more by itself.

    A browser that comes from another site sends the cookie (SameSite=Strict) only with a request that a page of ours
    makes.
    """
    path = escape("/" + request.path.lstrip("/"), quote=True)
    page = f'{_PLAIN_HEAD}<meta http-equiv="refresh" content="0; url={path}">'
    return web.Response(text=f'{page}<p><a href="{path}">Go on</a>', content_type="text/html")
