"""The page's server: the application with its routes behind the guard, and the port it listens on. Used by the page's
process alone (`__main__` beside this); the answers themselves are made in `perdure.page.views`."""

from __future__ import annotations

import errno
import gc
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from temporalio.service import RPCError

from perdure.adapters.system.home import login_name
from perdure.client import Perdure
from perdure.client.server.overview import Overview
from perdure.client.server.titles import TitleCache
from perdure.local.connect import adapt_no_worker_error, external_server_config
from perdure.local.page import ListenAddress, ServedPage
from perdure.models.errors import BadInput, PerdureError
from perdure.page.guard import SESSION, Guard, Handler, add_security_headers, plain_answer
from perdure.page.render import (
    GUARD,
    LAST_MESSAGES,
    OVERVIEW,
    PERDURE,
    TITLES,
    UNEXPECTED,
    UNEXPECTED_FIX,
    WEB_UI,
    render,
    static_contents,
    template_environment,
)
from perdure.page.views import all_routes, inbox, review
from perdure.page.views.activity import FEED, SharedFeed
from perdure.page.views.delivery_cache import WATCHED
from perdure.text import is_text, shorten

_LOG = logging.getLogger(__name__)

PORTS_TRIED = 50
"""Ports that are tried, from the wanted one on, where one is taken."""

FORM_BYTES = 256 * 1024
"""Most bytes of one form: a plan of 64 KiB, every character of it escaped, fits."""

ENDING_S = 1.0
"""The time the server waits for open streams as it ends: browsers keep a stream open for ever."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


@asynccontextmanager
async def serve_page(perdure: Perdure, token: str, place: ListenAddress, web_ui: str = "") -> AsyncIterator[ServedPage]:
    """Serve the page until the end of the context, on the first port from the wanted one on that is free and allowed;
    yield where it is.

    `web_ui` is the address of Temporal's own page of a workflow, without its id. Raises BadInput as
    ListenAddress.make_ssl_context does, and when it cannot listen or none of PORTS_TRIED ports is free.
    """
    context = place.make_ssl_context()
    for port in range(place.port, min(place.port + PORTS_TRIED, 65536)):
        names = _LOOPBACK | {place.host.lower()} if place.loopback else {place.host.lower()}
        guard = Guard(
            token=token,
            names=frozenset(names | {name.lower() for name in place.names}),
            port=None if place.names or place.user_header else port,
            person=login_name(),
            user_header=place.user_header,
            tls=place.tls,
        )
        app = build_application(perdure, guard, web_ui)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=ENDING_S, logger=_http_log())
        await runner.setup()
        try:
            await web.TCPSite(runner, place.host, port, ssl_context=context).start()
        except OSError as error:
            await runner.cleanup()
            if port == 0 or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise BadInput(f"cannot listen there: {error.strerror}", where=f"{place.host}:{port}") from None
            continue
        try:
            occupied = place.port if port != place.port else None
            yield ServedPage(_url(place, port), "" if place.user_header else token, occupied)
        finally:
            await runner.cleanup()
        return
    raise BadInput(f"no port from {place.port} on is free", where=place.host, fix="--port N names another beginning")


def build_application(perdure: Perdure, guard: Guard, web_ui: str = "") -> web.Application:
    """Build the web application: all routes, behind the guard, with what the views share.

    An error of a view becomes a page that says it, and every answer gets the security headers.
    """

    @web.middleware
    async def check_and_handle(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not all(map(is_text, (request.raw_path, *request.headers.values()))):
            return plain_answer(
                request, 400, "the address, or a header, is no UTF-8 text; perdure page prints the page's address"
            )

        async def handle_admitted(admitted: web.Request) -> web.StreamResponse:
            return await _handle_errors(admitted, handler)

        return await _handle_errors(request, lambda unchecked: guard.check_request(unchecked, handle_admitted))

    app = web.Application(middlewares=[check_and_handle], client_max_size=FORM_BYTES)
    app[PERDURE], app[GUARD], app[LAST_MESSAGES], app[WATCHED] = perdure, guard, {}, OrderedDict()
    app[review.CHANGES], app[inbox.UNBLOCK_COUNTS] = {}, inbox.UnblockCounts(perdure)
    app[WEB_UI] = web_ui
    app[OVERVIEW], app[FEED] = Overview(perdure.client), SharedFeed(perdure.client)
    app[TITLES] = TitleCache(perdure.client)
    app.on_response_prepare.append(add_security_headers)
    app.add_routes([web.get("/static/{name}", _serve_static), *all_routes()])
    return app


def freeze_loaded_objects() -> None:
    """Leave what is loaded for good out of all later garbage collections, in a process that serves nothing but a page.

    Each collection took 80 ms of a processor, in which nobody was answered. Loads the templates' environment first.
    """
    template_environment()
    gc.collect()
    gc.freeze()


async def _handle_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Call the handler, and show an error of it as one line of ours, with what to do.

    An HTTP error keeps its status; BadInput is 400, another PerdureError and a Temporal server that does not answer are
    502, and any other exception is a defect: 500, with the traceback in the log. Redirects pass. An answer that has
    begun is cut off.
    """
    try:
        return await handler(request)
    except Exception as error:
        if isinstance(error, web.HTTPException) and error.status < HTTPStatus.BAD_REQUEST:
            raise
        if request.writer.output_size > 0:
            raise  # a second answer would stand in the middle of the first
        return _render_error(request, error)


def _http_log() -> logging.Logger:
    """Return the log of the HTTP server, where what is no HTTP is one line without a traceback: anybody can send it."""

    def leave_out_traceback(record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(error := record.exc_info[1], HttpProcessingError):
            record.msg, record.args, record.exc_info = "refused what is no HTTP request: %s", (error.code,), None
        return True

    log = _LOG.getChild("http")
    if not log.filters:
        log.addFilter(leave_out_traceback)
    return log


_HTTP_REASONS = {
    HTTPStatus.NOT_FOUND: ("there is no such page", ""),
    HTTPStatus.METHOD_NOT_ALLOWED: ("this address only takes a form of the page", "open the page that has the form"),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: (
        f"the form is too large: at most {FORM_BYTES // 1024} KiB",
        "shorten it, or use the command, which reads files (perdure --help)",
    ),
}
"""The reason and what to do for errors of the HTTP server itself; for others its own word."""


def _render_error(request: web.Request, error: Exception) -> web.Response:
    """Render an error: a whole page, one line where a part of a page was asked for, or text for a stranger."""
    what, where, fix = UNEXPECTED, "", UNEXPECTED_FIX
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    if isinstance(error, web.HTTPException):
        status, where = HTTPStatus(error.status), request.path
        what, fix = _HTTP_REASONS.get(status, (error.reason, ""))
    elif isinstance(error, PerdureError):
        status = HTTPStatus.BAD_REQUEST if isinstance(error, BadInput) else HTTPStatus.BAD_GATEWAY
        what, where, fix = error.what, error.where, adapt_no_worker_error(error).fix
    elif isinstance(error, (RPCError, TimeoutError)):
        reason = error.message if isinstance(error, RPCError) else "it did not answer in time"
        status, what = HTTPStatus.BAD_GATEWAY, f"Temporal: {shorten(reason, 200)}"
        own = external_server_config() is None
        fix = f"{'perdure up starts it; ' if own else ''}the page goes on by itself{'' if own else ' once it is back'}"
    else:
        _LOG.error("%s %s: unexpected error", request.method, shorten(request.path, 200), exc_info=error)
    if SESSION not in request:
        return plain_answer(request, status, f"{what}; {fix}" if fix else what)
    template = "error_line.html" if "HX-Request" in request.headers else "error.html"
    return render(request, template, status=status, what=what, where=where, fix=fix)


async def _serve_static(request: web.Request) -> web.Response:
    """Answer with the static file that the path names, for a browser to keep a day; 404 where there is none."""
    content = static_contents().get(request.match_info["name"])
    if content is None:
        raise web.HTTPNotFound
    body, kind = content
    return web.Response(body=body, content_type=kind, headers={"Cache-Control": "private, max-age=86400"})


def _url(place: ListenAddress, port: int) -> str:
    host = place.names[0] if place.names else f"[{place.host}]" if ":" in place.host else place.host
    scheme = "https" if place.tls or place.names else "http"
    return f"{scheme}://{host}" + ("" if place.names else f":{port}")
