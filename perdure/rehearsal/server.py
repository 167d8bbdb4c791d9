"""The HTTP server: the four wires that models are asked on, and GET /rehearsal/report."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import web

from perdure.models.errors import BadInput
from perdure.rehearsal.cache import PromptCache
from perdure.rehearsal.faults import OVERLOADED, PARTIAL, Fault, http_error
from perdure.rehearsal.match import Cues, scene
from perdure.rehearsal.playing import REQUEST_ID, Player, Stopping, reset
from perdure.rehearsal.record import Call, Record, chain
from perdure.rehearsal.reply import compose, message, summed_up
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.strict import count
from perdure.rehearsal.wire import Refused, invalid
from perdure.rehearsal.wires.base import Asked, Came, RehearsalWire
from perdure.rehearsal.wires.chat import Chat
from perdure.rehearsal.wires.gemini import Gemini
from perdure.rehearsal.wires.messages import Messages
from perdure.rehearsal.wires.responses import Responses

REHEARSAL_STOP_S = 2.0
"""A stopping rehearsal's wait for clients to take the end of their streams."""


MAX_BODY = 32 * 1024 * 1024
"""Bytes; the API's own limit on a request."""

WIRES: dict[str, RehearsalWire] = {
    "/v1/messages": Messages(),
    "/v1/responses": Responses(),
    "/v1/chat/completions": Chat(),
    r"/v1beta/models/{asked:[^/]+}": Gemini(),
}
"""The path of each wire."""

KEY = "rehearsal"
"""Any key opens this door; this is the one to show people."""


class Rehearsal:
    """A running twin, as an async context manager.

    `url` is what ANTHROPIC_BASE_URL points at, `calls` the latest requests, `report()` the JSON of /rehearsal/report.
    Port 0 takes a free one. BadInput when the port is taken.
    """

    def __init__(
        self,
        screenplay: Screenplay,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.screenplay = screenplay
        self._record = Record()
        self._cues = Cues(screenplay)
        self._cache = PromptCache(screenplay.script.cache_minimum, clock)
        self._address = (host, port)
        self._stopping = asyncio.Event()
        self._player = Player(self._stopping)
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        assert self._runner is not None, "not started"
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    @property
    def calls(self) -> list[Call]:
        return self._record.calls

    @property
    def prefix_breaks(self) -> int:
        return self._record.prefix_breaks

    def report(self) -> dict[str, Any]:
        return self._record.report(self.screenplay.script.title)

    async def __aenter__(self) -> Rehearsal:
        app = web.Application(client_max_size=MAX_BODY)
        for path, wire in WIRES.items():
            app.router.add_post(path, partial(self._asked, wire))
        app.router.add_post("/v1/messages/count_tokens", self._counted)
        app.router.add_get("/", _here)  # Claude Code looks whether anybody is there
        app.router.add_get("/rehearsal/report", self._report)
        app.router.add_route("*", "/{path:.*}", _nowhere)
        # With cancellation a hang ends as soon as its client goes away.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=REHEARSAL_STOP_S)
        await self._runner.setup()
        host, port = self._address
        try:
            await web.TCPSite(self._runner, host, port).start()
        except (OSError, OverflowError) as error:
            await self._runner.cleanup()
            reason = error.strerror if isinstance(error, OSError) else "a port is 0 to 65535"
            raise BadInput(
                f"the rehearsal cannot listen: {reason}",
                where=f"{host}:{port}",
                fix="choose another --port, or 0 for any free one",
            ) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _report(self, http: web.Request) -> web.Response:
        return web.json_response(self.report())

    async def _counted(self, http: web.Request) -> web.Response:
        """Counting is free and no call: nothing of the screenplay answers it."""
        try:
            return web.json_response({"input_tokens": count(await _body(http), http.headers)})
        except Refused as refused:
            return _error(Messages(), refused, "req_count")

    async def _asked(self, wire: RehearsalWire, http: web.Request) -> web.StreamResponse:
        call = self._record.new_call()
        http[REQUEST_ID] = f"req_{call.number:08d}"
        try:
            return await self._answer(wire, http, call)
        except Refused as refused:
            call.status, call.message = refused.status, refused.message
            call.outcome = "refused" if call.outcome == "reply" else call.outcome
            return _error(wire, refused, http[REQUEST_ID])
        except (ConnectionError, Stopping):
            call.dropped = True
            reset(http)
            return web.Response()  # goes nowhere: the connection is gone
        except asyncio.CancelledError:
            call.dropped = True
            raise
        finally:
            self._record.note_end(call)

    async def _answer(self, wire: RehearsalWire, http: web.Request, call: Call) -> web.StreamResponse:
        raw = await _body(http)
        came = Came(raw, http.headers, http.query, http.match_info.get("asked", ""))
        asked = wire.read(came, self.screenplay.made_up_tools)
        request = asked.request
        call.body = json.loads(raw)
        now = scene(request)
        call.step, call.turn = now.step, now.turn
        links = chain(request)
        self._record.note_prefix(request, links)
        if request.compaction is not None:
            return await self._sum_up(wire, http, call, asked, f"{links[-1]} summed up")
        index, fault = self._cues.next(now)
        call.line = index + 1
        line = self.screenplay.lines[index]
        blocks, stop_reason = compose(line, request, links[-1], partial(self.screenplay.place, index), fault)
        if fault is not None:
            call.outcome = fault
            if refused := http_error(fault, request.model, line.retry_after):
                raise refused
            if fault is Fault.STREAM_ERROR and not request.stream:
                raise OVERLOADED
            if fault is Fault.HANG:
                await self._player.hang()
            if fault in (Fault.NOT_JSON, Fault.PAGE):
                return await self._player.garbage(http, fault, request.stream)
        reply = message(request, links[-1], blocks, stop_reason, self._cache.charge(request))
        reply["diagnostics"] = self._record.diagnosis(request, links)
        call.usage = reply["usage"]
        self._record.note_reply(links[-1], reply["usage"])
        response = await self._player.message(http, wire, reply, asked, fault, line.seconds)
        if fault not in PARTIAL:
            self._record.note_sent(links[-1])
        return response

    async def _sum_up(
        self, wire: RehearsalWire, http: web.Request, call: Call, asked: Asked, digest: str
    ) -> web.StreamResponse:
        if not self.screenplay.script.sums_up:
            raise invalid("compaction: Extra inputs are not permitted")
        request = asked.request
        reply = message(request, digest, summed_up(request), "compaction", self._cache.charge(request))
        call.usage = reply["usage"]
        self._record.note_reply(digest, reply["usage"])
        response = await self._player.message(http, wire, reply, asked, None, 0)
        self._record.note_sent(digest)
        return response


async def _body(http: web.Request) -> bytes:
    try:
        return await http.read()
    except web.HTTPRequestEntityTooLarge:
        raise Refused(413, "request_too_large", f"Request exceeds the maximum size of {MAX_BODY} bytes") from None


async def _here(http: web.Request) -> web.Response:
    return web.json_response({"service": "rehearsal"})


async def _nowhere(http: web.Request) -> web.Response:
    return _error(Messages(), Refused(404, "not_found_error", f"{http.method} {http.path}: not found"), "req_none")


def _error(wire: RehearsalWire, refused: Refused, request_id: str) -> web.Response:
    headers = {"request-id": request_id}
    if refused.retry_after is not None:
        headers["retry-after"] = f"{refused.retry_after:g}"
    return web.json_response(wire.error(refused, request_id), status=refused.status, headers=headers)


async def serve(screenplay: Screenplay, host: str, port: int, announce: Callable[[str], None] = print) -> None:
    """Play until SIGINT or SIGTERM; `announce` gets the URL, and on a second line what to export."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        async with Rehearsal(screenplay, host=host, port=port) as rehearsal:
            announce(
                f"{screenplay.script.title!r} plays on {rehearsal.url} until Ctrl-C; in another terminal:\n"
                f"  export ANTHROPIC_BASE_URL={rehearsal.url} ANTHROPIC_API_KEY={KEY}"
            )
            await stop.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def run(file: Path, port: int) -> None:
    """`perdure rehearse FILE`: play until SIGINT or SIGTERM. BadInput when the file is wrong or the port taken."""
    screenplay = Screenplay.load(file)
    asyncio.run(serve(screenplay, "127.0.0.1", port, lambda line: print(line, flush=True)))
