"""The server on a Unix socket that an agent in the sandbox takes for the model: it alone has the key.
`perdure.adapters.worker.turn.process` starts one for each agent process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from aiohttp import web
from aiohttp.typedefs import Handler

from perdure.adapters.agents.builtin.errors import TEMPORARY_STATUS
from perdure.adapters.agents.proxied.base import (
    REQUEST_BYTES,
    Ledger,
    OnBegun,
    ProxiedReply,
    ProxiedRequest,
    ProxiedWire,
    WireError,
)
from perdure.adapters.agents.proxied.upstream import Upstream, UpstreamClient
from perdure.adapters.system.threads import in_thread
from perdure.models.base import Json
from perdure.models.errors import BadInput, ModelUnavailable, PerdureError

log = logging.getLogger(__name__)

SOCKET_PATH_BYTES = 107
"""The longest path of a Unix socket that Linux binds, in bytes."""

CONNECTIONS = 64
"""Connections open at a time: an agent has a few, each costs the worker a descriptor, and bash inside can open any
number."""

SOCKET_BACKLOG = 16
"""Connections that wait to be accepted, and that are accepted at once: so many may be open beyond CONNECTIONS."""

REQUESTS = 8
"""Requests under way at a time: the conversation, and what agents ask beside it. Each may be REQUEST_BYTES large."""

REQUEST_READ_S = 60.0
"""Seconds for the body of a request to come in: it comes from this very machine."""

PING_AFTER_S, PING_EVERY_S = 100.0, 20.0
"""Seconds before the first ping of a stream that has not begun, and between pings: Claude Code gives a request up after
six minutes without a byte, whatever timeout it is set to, and a reply may take longer, or wait for a key that everybody
uses. An answer before the first ping has its own status."""

STOP_S = 2.0
"""Seconds that a proxy which stops waits for its answers to be sent."""


class Proxy:
    """The proxy of one agent, as an async context manager; `socket` exists while it is entered.

    Only the paths of the wire's model are served. The whole reply of the upstream is received, and stored by the
    ledger, before the agent gets its first byte (pings aside). Entering raises BadInput when the socket cannot be made.
    """

    def __init__(self, socket: Path, upstream: Upstream, wire: ProxiedWire, ledger: Ledger) -> None:
        self.socket = socket
        self._upstream, self._wire, self._ledger = upstream, wire, ledger
        self._upstream_client = UpstreamClient(upstream, wire)
        self._pending_requests: dict[str, _PendingRequest] = {}
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Proxy:
        """Start to serve on the socket, which only its owner can use, and return the proxy; a file that is left in its
        place is removed. Raises BadInput when the path is too long or the socket cannot be made."""
        if len(os.fsencode(self.socket)) > SOCKET_PATH_BYTES:
            fix = "set PERDURE_HOME to a shorter path"
            raise BadInput("the path of a socket is too long for this system", where=str(self.socket), fix=fix)
        app = web.Application(client_max_size=REQUEST_BYTES)
        app.middlewares.append(self._handle_request)  # the router would accept more paths than we want
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_S, auto_decompress=False
        )
        await self._runner.setup()
        try:
            self.socket.unlink(missing_ok=True)
            old_umask = os.umask(0o177)
            try:
                self._server = await asyncio.get_running_loop().create_unix_server(
                    self._make_protocol, str(self.socket), backlog=SOCKET_BACKLOG
                )
            finally:
                os.umask(old_umask)
        except OSError as error:
            await self._runner.cleanup()
            raise BadInput(f"a socket for the agent cannot be made: {error.strerror}", where=str(self.socket)) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop to serve: cancel all pending requests and wait for them, close the upstream's connections, remove the
        socket."""
        assert self._runner is not None
        assert self._server is not None
        self._server.close()
        tasks = [pending.task for pending in self._pending_requests.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._runner.cleanup()
        await self._upstream_client.aclose()
        self.socket.unlink(missing_ok=True)

    def _make_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that serves a new connection; one that closes it at once where CONNECTIONS are open
        already."""
        assert self._runner is not None
        assert self._runner.server is not None
        if len(self._runner.server.connections) >= CONNECTIONS:
            return _ClosedConnection()
        protocol: asyncio.BaseProtocol = self._runner.server()
        return protocol

    @web.middleware
    async def _handle_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle every HTTP request to the socket: parse it, get its reply from the ledger, and return that whole, or
        an error in the wire's shape.

        A stream without a reply after PING_AFTER_S is begun with pings, where the wire has them. When the agent closes
        the connection, waiting for the reply ends.
        """
        try:
            proxied_request = await self._parse_http_request(request)
        except WireError as error:
            return self._error_response(error)
        outcome = asyncio.ensure_future(self._reply_or_error(proxied_request, request))
        try:
            uses_pings = proxied_request.stream and self._wire.ping
            if uses_pings and not (await asyncio.wait({outcome}, timeout=PING_AFTER_S))[0]:
                return await self._stream_with_pings(request, outcome)
            result = await outcome
        finally:
            outcome.cancel()  # the agent has gone away
        if isinstance(result, WireError):
            return self._error_response(result)
        return web.Response(status=result.status, body=result.body, headers={"content-type": result.content_type})

    async def _stream_with_pings(
        self, request: web.Request, outcome: asyncio.Future[ProxiedReply | WireError]
    ) -> web.StreamResponse:
        """Begin a stream of events before the outcome is known, send a ping every PING_EVERY_S, then the reply, and
        return the response.

        The status is 200 by then, so an error is sent as an event.
        """
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        while not outcome.done():
            await response.write(self._wire.ping)
            await asyncio.wait({outcome}, timeout=PING_EVERY_S)
        result = outcome.result()
        if isinstance(result, WireError):
            await response.write(b"event: error\ndata: " + json.dumps(self._wire.error_body(result)).encode() + b"\n\n")
        else:
            await response.write(result.body)
        await response.write_eof()
        return response

    async def _reply_or_error(self, proxied_request: ProxiedRequest, request: web.Request) -> ProxiedReply | WireError:
        """Return the ledger's reply, or the error that the agent is answered with in its place.

        An error that the API itself has sent stays as it is. Else it is status 503 for what passes by itself (the model
        is unavailable, the disk failed; the latter is logged), 400 for any other PerdureError, such as a budget.
        """
        try:
            return await self._shared_reply(proxied_request, request)
        except WireError as error:
            return error
        except ModelUnavailable as error:
            cause = error.__cause__
            return cause if isinstance(cause, WireError) and cause.status != 200 else WireError(503, "", error.what)
        except PerdureError as error:
            cause = error.__cause__
            return cause if isinstance(cause, WireError) else WireError(400, "", error.what)
        except OSError as error:  # the disk on which replies are kept
            log.warning("a reply for an agent could not be kept: %s", error)
            return WireError(503, "", "the reply could not be kept")

    async def _parse_http_request(self, http: web.Request) -> ProxiedRequest:
        """Read and parse a request of the agent.

        Raises WireError with the status to answer: 404 for any path but the model's, 405 for anything but POST, 400 for
        another protocol, a compressed body or a shape that the wire does not know, 529 beyond REQUESTS at a time, 413
        for a body above REQUEST_BYTES, 408 for one that does not come in within REQUEST_READ_S.
        """
        path, _, query = http.raw_path.partition("?")
        route = self._wire.find_route(path, query)
        if route is None:
            raise WireError(404, "", "nothing but the model is served here")
        if http.method != "POST":
            raise WireError(405, "", "the model is asked by POST")
        if "upgrade" in http.headers or http.headers.get("content-encoding", "identity").lower() != "identity":
            raise WireError(400, "", "neither another protocol nor a packed request is taken here")
        if len(self._pending_requests) >= REQUESTS:
            raise WireError(529, "", "too many requests of this agent at a time", retry_after=1.0)
        try:
            if (http.content_length or 0) > REQUEST_BYTES:
                raise web.HTTPRequestEntityTooLarge(REQUEST_BYTES, http.content_length or 0)
            async with asyncio.timeout(REQUEST_READ_S):
                data = await http.read()
        except web.HTTPRequestEntityTooLarge:
            raise WireError(413, "", f"a request has at most {REQUEST_BYTES} bytes") from None
        except TimeoutError:
            raise WireError(408, "", "the request did not come to an end") from None
        body = await in_thread(_parse_json_object, data)
        try:
            return await in_thread(self._wire.parse_request, route, body)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
            raise WireError(400, "", "the request has another shape than those of this wire") from None

    async def _shared_reply(self, request: ProxiedRequest, http: web.Request) -> ProxiedReply:
        """Return the ledger's reply to a request, or raise its error; equal requests at one time share one task.

        When nobody waits for it any more, the task is cancelled, unless the request is already with the upstream: it
        may be billed, so its reply is stored.
        """
        pending = self._pending_requests.get(request.key)
        if pending is None:
            headers = {name.lower(): value for name, value in http.headers.items()}
            pending = _PendingRequest.start(self._ledger, self._upstream_client, request, headers)
            self._pending_requests[request.key] = pending
            pending.task.add_done_callback(lambda _: self._pending_requests.pop(request.key, None))
        pending.waiter_count += 1
        try:
            return await asyncio.shield(pending.task)
        finally:
            pending.waiter_count -= 1
            if not pending.waiter_count and not pending.is_sent:
                pending.task.cancel()

    def _error_response(self, error: WireError) -> web.Response:
        """Return the HTTP response for an error, in the wire's shape, with `retry-after` where it passes by itself and
        says when.

        `x-should-retry` is always set: clients of two vendors look at it before the status, and try a 401 eight times
        without it.
        """
        is_temporary = error.status in TEMPORARY_STATUS or error.status >= 500
        headers = {"content-type": "application/json", "x-should-retry": "true" if is_temporary else "false"}
        if is_temporary and error.retry_after is not None:
            headers["retry-after"] = f"{error.retry_after:g}"
        return web.Response(
            status=error.status, body=json.dumps(self._wire.error_body(error)).encode(), headers=headers
        )


@dataclass
class _PendingRequest:
    """A request that the ledger works on.

    task          returns its reply
    is_sent       whether it is with the upstream, so that it may be billed
    waiter_count  connections that wait for its reply
    """

    task: asyncio.Task[ProxiedReply]
    is_sent: bool = False
    waiter_count: int = 0

    @classmethod
    def start(
        cls, ledger: Ledger, upstream_client: UpstreamClient, request: ProxiedRequest, headers: dict[str, str]
    ) -> _PendingRequest:
        """Start a task in which the ledger gets the reply to a request, and return both; `headers` are those of the
        agent's HTTP request.

        `is_sent` becomes true when the ledger sends the request to the upstream, and false again when that raised.
        """

        async def call_upstream(on_begun: OnBegun) -> ProxiedReply:
            """Send the request to the upstream and return its reply; `is_sent` is true meanwhile, and stays so unless
            this raises."""
            pending.is_sent = True
            try:
                return await upstream_client.fetch_reply(request, headers, on_begun)
            except BaseException:
                pending.is_sent = False  # it may wait for its turn again
                raise

        async def ask_ledger() -> ProxiedReply:
            return await ledger.reply(request, call_upstream)

        pending = cls(asyncio.ensure_future(ask_ledger()))
        pending.task.add_done_callback(_retrieve_exception)
        return pending


def _retrieve_exception(task: asyncio.Task[ProxiedReply]) -> None:
    """Mark a task's exception as retrieved, so that asyncio does not log it: nobody may wait for the task any more."""
    if not task.cancelled():
        task.exception()


class _ClosedConnection(asyncio.Protocol):
    """The protocol of a connection beyond CONNECTIONS: it is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def _parse_json_object(data: bytes) -> Json:
    """Parse the body of a request. Raises WireError (400) when it is no JSON object; NaN and Infinity are no JSON
    here."""
    try:
        body = json.loads(data, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise WireError(400, "", "the request is not JSON") from None
    if not isinstance(body, dict):
        raise WireError(400, "", "the request is no JSON object")
    return body


def _reject_constant(name: str) -> object:
    """Raise ValueError for NaN, Infinity and -Infinity, which other parsers of JSON do not accept."""
    raise ValueError(name)
