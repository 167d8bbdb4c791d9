"""The server on a Unix socket that an agent in the sandbox takes for the model: it alone has the key."""

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
from perdure.adapters.agents.proxied.asking import Asking
from perdure.adapters.agents.proxied.base import (
    REQUEST_BYTES,
    Json,
    Ledger,
    OnBegun,
    ProxiedReply,
    ProxiedRequest,
    Wire,
    WireError,
)
from perdure.adapters.agents.proxied.upstream import Upstream
from perdure.adapters.system.threads import in_thread
from perdure.models.errors import BadInput, ModelUnavailable, PerdureError

log = logging.getLogger(__name__)

SOCKET_PATH_BYTES = 107
"""The longest path of a Unix socket that Linux binds."""

CONNECTIONS = 64
"""Open at a time: an agent has a few, each costs the worker a descriptor, and bash inside can open any number."""

BACKLOG = 16
"""Connections that wait to be taken, and that are taken at once: so many may be open beyond CONNECTIONS."""

REQUESTS = 8
"""Under way at a time: the conversation, and what agents ask beside it. Each may be REQUEST_BYTES large."""

REQUEST_READ_S = 60.0
"""For the body of a request to come in: it comes from this very machine."""

PING_AFTER_S, PING_EVERY_S = 100.0, 20.0
"""Of a stream that has not begun: Claude Code gives a request up after six minutes without a byte, whatever it is told,
and a reply may take longer, or wait for a key that everybody uses. An answer before that has its own status."""

STOP_S = 2.0
"""A proxy that ends waits this long for answers to be taken."""


class Proxy:
    """Serves one agent, as an async context manager; `socket` is there from entering to leaving.

    Only the paths of the wire's model are served. The whole reply of the upstream is taken, and given to the ledger,
    before the agent gets its first byte. BadInput when the socket cannot be made.
    """

    def __init__(self, socket: Path, upstream: Upstream, wire: Wire, ledger: Ledger) -> None:
        self.socket = socket
        self._upstream, self._wire, self._ledger = upstream, wire, ledger
        self._asking = Asking(upstream, wire)
        self._under_way: dict[str, _UnderWay] = {}
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Proxy:
        if len(os.fsencode(self.socket)) > SOCKET_PATH_BYTES:
            fix = "set PERDURE_HOME to a shorter path"
            raise BadInput("the path of a socket is too long for this system", where=str(self.socket), fix=fix)
        app = web.Application(client_max_size=REQUEST_BYTES)
        app.middlewares.append(self._everything)  # the router would read addresses more kindly than we want
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_S, auto_decompress=False
        )
        await self._runner.setup()
        try:
            self.socket.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                self._server = await asyncio.get_running_loop().create_unix_server(
                    self._connected, str(self.socket), backlog=BACKLOG
                )
            finally:
                os.umask(before)
        except OSError as error:
            await self._runner.cleanup()
            raise BadInput(f"a socket for the agent cannot be made: {error.strerror}", where=str(self.socket)) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        assert self._server is not None
        self._server.close()
        tasks = [one.task for one in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._runner.cleanup()
        await self._asking.aclose()
        self.socket.unlink(missing_ok=True)

    def _connected(self) -> asyncio.BaseProtocol:
        assert self._runner is not None
        assert self._runner.server is not None
        if len(self._runner.server.connections) >= CONNECTIONS:
            return _Closed()
        protocol: asyncio.BaseProtocol = self._runner.server()
        return protocol

    @web.middleware
    async def _everything(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            understood = await self._understood(request)
        except WireError as error:
            return self._refuse(error)
        outcome = asyncio.ensure_future(self._outcome(understood, request))
        try:
            pings = understood.stream and self._wire.ping
            if pings and not (await asyncio.wait({outcome}, timeout=PING_AFTER_S))[0]:
                return await self._pinged(request, outcome)
            answer = await outcome
        finally:
            outcome.cancel()  # the agent has gone away
        if isinstance(answer, WireError):
            return self._refuse(answer)
        return web.Response(status=answer.status, body=answer.body, headers={"content-type": answer.content_type})

    async def _pinged(
        self, request: web.Request, outcome: asyncio.Future[ProxiedReply | WireError]
    ) -> web.StreamResponse:
        """A stream that begins before anything is known of its end; an error is then an event."""
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        while not outcome.done():
            await response.write(self._wire.ping)
            await asyncio.wait({outcome}, timeout=PING_EVERY_S)
        answer = outcome.result()
        if isinstance(answer, WireError):
            await response.write(b"event: error\ndata: " + json.dumps(self._wire.error(answer)).encode() + b"\n\n")
        else:
            await response.write(answer.body)
        await response.write_eof()
        return response

    async def _outcome(self, understood: ProxiedRequest, request: web.Request) -> ProxiedReply | WireError:
        """The reply, or the error that the agent is answered with."""
        try:
            return await self._reply(understood, request)
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

    async def _understood(self, http: web.Request) -> ProxiedRequest:
        path, _, query = http.raw_path.partition("?")
        route = self._wire.route(path, query)
        if route is None:
            raise WireError(404, "", "nothing but the model is served here")
        if http.method != "POST":
            raise WireError(405, "", "the model is asked by POST")
        if "upgrade" in http.headers or http.headers.get("content-encoding", "identity").lower() != "identity":
            raise WireError(400, "", "neither another protocol nor a packed request is taken here")
        if len(self._under_way) >= REQUESTS:
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
        body = await in_thread(_object, data)
        try:
            return await in_thread(self._wire.understand, route, body)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
            raise WireError(400, "", "the request has another shape than those of this wire") from None

    async def _reply(self, request: ProxiedRequest, http: web.Request) -> ProxiedReply:
        """That of the ledger; equal requests at a time share one, and one that is asked outlives who waits for it."""
        one = self._under_way.get(request.key)
        if one is None:
            headers = {name.lower(): value for name, value in http.headers.items()}
            one = _UnderWay.of(self._ledger, self._asking, request, headers)
            self._under_way[request.key] = one
            one.task.add_done_callback(lambda _: self._under_way.pop(request.key, None))
        one.waiting += 1
        try:
            return await asyncio.shield(one.task)
        finally:
            one.waiting -= 1
            if not one.waiting and not one.asked:
                one.task.cancel()

    def _refuse(self, error: WireError) -> web.Response:
        """Clients of two vendors look at `x-should-retry` before the status: without it 401 is tried eight times."""
        passes = error.status in TEMPORARY_STATUS or error.status >= 500
        headers = {"content-type": "application/json", "x-should-retry": "true" if passes else "false"}
        if passes and error.retry_after is not None:
            headers["retry-after"] = f"{error.retry_after:g}"
        return web.Response(status=error.status, body=json.dumps(self._wire.error(error)).encode(), headers=headers)


@dataclass
class _UnderWay:
    """A request that the ledger has. `asked`: it may be billed by now; `waiting`: connections that want its reply."""

    task: asyncio.Task[ProxiedReply]
    asked: bool = False
    waiting: int = 0

    @classmethod
    def of(cls, ledger: Ledger, asking: Asking, request: ProxiedRequest, headers: dict[str, str]) -> _UnderWay:
        async def ask(on_begun: OnBegun) -> ProxiedReply:
            one.asked = True
            try:
                return await asking.ask(request, headers, on_begun)
            except BaseException:
                one.asked = False  # it may wait for its turn again
                raise

        async def reply() -> ProxiedReply:
            return await ledger.reply(request, ask)

        one = cls(asyncio.ensure_future(reply()))
        one.task.add_done_callback(_seen)
        return one


def _seen(task: asyncio.Task[ProxiedReply]) -> None:
    """Nobody may be there any more to be told of its error."""
    if not task.cancelled():
        task.exception()


class _Closed(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def _object(data: bytes) -> Json:
    """The body of a request. Raises WireError when it is no JSON object, as others would read it."""
    try:
        body = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise WireError(400, "", "the request is not JSON") from None
    if not isinstance(body, dict):
        raise WireError(400, "", "the request is no JSON object")
    return body


def _no_number(name: str) -> object:
    raise ValueError(name)
