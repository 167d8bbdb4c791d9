"""The HTTP server of a rehearsal: the four wires on which models are asked, counting of tokens, and GET
/rehearsal/report. Answers are sent as HTTP should be, or broken the way networks break it. Started by the demo, by
tests and by `python -m perdure.rehearsal`."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import web

from perdure.models.base import Json
from perdure.models.errors import BadInput
from perdure.rehearsal.record import PerformanceRecord, PromptCache, RecordedCall, digest_chain
from perdure.rehearsal.reply import build_message, compose_reply, summary_blocks
from perdure.rehearsal.screenplay import (
    OVERLOADED,
    PAGE,
    PARTIAL,
    Fault,
    LineChooser,
    Screenplay,
    find_position,
    http_error,
)
from perdure.rehearsal.wire import ApiRefusal, invalid_request
from perdure.rehearsal.wires.base import IncomingRequest, ParsedRequest, RehearsalWire
from perdure.rehearsal.wires.chat import ChatWire
from perdure.rehearsal.wires.gemini import GeminiWire
from perdure.rehearsal.wires.messages import MessagesWire, count_tokens
from perdure.rehearsal.wires.responses import ResponsesWire
from perdure.text import shell_word

REQUEST_ID = web.RequestKey("request_id", str)


class UnframedResponse(web.StreamResponse):
    """A body that ends when the connection does: the client cannot notice what is missing at its end."""

    _length_check = False


class ServerStopping(Exception):
    """The server stops: answers that are being sent are cut."""


class Player:
    """Sends answers until `stopping` is set."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping

    async def send_message(
        self,
        http: web.Request,
        wire: RehearsalWire,
        message: Json,
        parsed: ParsedRequest,
        fault: Fault | None,
        seconds: float,
    ) -> web.StreamResponse:
        """Send a reply in the wire's format, as a stream or whole, spread over `seconds`, and return the response.

        Of PARTIAL faults only half is sent, followed by an error event, an ordinary end, or a reset of the connection.
        Raises ServerStopping when the server stops meanwhile, and ConnectionError when the client has gone.
        """
        stream = parsed.request.stream
        frames = (
            list(wire.reply_frames(message, parsed))
            if stream
            else _split_in_half(json.dumps(wire.reply_body(message, parsed)).encode())
        )
        response: web.StreamResponse = UnframedResponse() if fault is Fault.CLOSE else web.StreamResponse()
        if fault in PARTIAL:
            frames = frames[: len(frames) // 2]
        if fault is Fault.STREAM_ERROR:
            frames.append(wire.error_frame(OVERLOADED, http[REQUEST_ID]))
        if fault is Fault.CLOSE:
            response.force_close()
        response.content_type = "text/event-stream" if stream and parsed.framed else "application/json"
        response.headers["request-id"] = http[REQUEST_ID]
        response.headers["cache-control"] = "no-cache"
        await self._send_frames(http, response, frames, seconds)
        if fault is Fault.CUT:
            reset_connection(http)
        return response

    async def send_garbage(self, http: web.Request, fault: Fault, stream: bool) -> web.StreamResponse:
        """Send a response of status 200 that is not the JSON it should be: an HTML page or broken JSON, as `fault`
        says.

        Raises ConnectionError when the client has gone.
        """
        response = web.StreamResponse(headers={"request-id": http[REQUEST_ID]})
        if fault is Fault.PAGE:
            response.content_type, frame = "text/html", PAGE.encode()
        elif stream:
            response.content_type, frame = "text/event-stream", b'event: message_start\ndata: {"type": "message_st\n\n'
        else:
            response.content_type, frame = "application/json", b'{"id": "msg_'
        await self._send_frames(http, response, [frame], 0)
        return response

    async def hang(self) -> None:
        """Wait until the server stops and raise ServerStopping; a client that goes away cancels this."""
        await self._stopping.wait()
        raise ServerStopping

    async def _send_frames(
        self, http: web.Request, response: web.StreamResponse, frames: Sequence[bytes], seconds: float
    ) -> None:
        """Send the frames, evenly spread over `seconds`.

        Raises ServerStopping when the server stops meanwhile, and ConnectionError when the client has gone.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        await response.prepare(http)
        for number, frame in enumerate(frames, start=1):
            await response.write(frame)
            if seconds:
                await self._wait_until(started + seconds * number / len(frames))

    async def _wait_until(self, moment: float) -> None:
        """Wait until the loop's clock shows `moment`; raise ServerStopping when the server stops before."""
        try:
            async with asyncio.timeout_at(moment):
                await self._stopping.wait()
        except TimeoutError:
            return
        raise ServerStopping


def reset_connection(http: web.Request) -> None:
    """End the connection as a crashed peer does: RST, not FIN. Does nothing when it has ended already."""
    if http.transport is None:
        return
    peer = http.transport.get_extra_info("socket")
    if peer is not None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    http.transport.abort()


def _split_in_half(body: bytes) -> list[bytes]:
    """Split a body into two halves."""
    return [body[: len(body) // 2], body[len(body) // 2 :]]


REHEARSAL_STOP_S = 2.0
"""Limit for clients to receive the end of their streams when a rehearsal stops."""


MAX_BODY_BYTES = 32 * 1024 * 1024
"""The API's own limit on a request."""

WIRES: dict[str, RehearsalWire] = {
    "/v1/messages": MessagesWire(),
    "/v1/responses": ResponsesWire(),
    "/v1/chat/completions": ChatWire(),
    r"/v1beta/models/{asked:[^/]+}": GeminiWire(),
}
"""The path of each wire."""

SHOWN_API_KEY = "rehearsal"
"""The API key to show people; the server takes any."""


class Rehearsal:
    """A running twin, as an async context manager.

    `url` is what ANTHROPIC_BASE_URL points at, `calls` the latest requests, `report()` the JSON of /rehearsal/report.
    Port 0 takes a free one. Entering raises BadInput when the port is taken.
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
        self._record = PerformanceRecord()
        self._cues = LineChooser(screenplay)
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
    def calls(self) -> list[RecordedCall]:
        return self._record.calls

    @property
    def prefix_breaks(self) -> int:
        return self._record.prefix_breaks

    def report(self) -> dict[str, Any]:
        return self._record.report(self.screenplay.script.title)

    async def __aenter__(self) -> Rehearsal:
        """Start listening. Raises BadInput when the address cannot be used."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        for path, wire in WIRES.items():
            app.router.add_post(path, partial(self._handle_model_request, wire))
        app.router.add_post("/v1/messages/count_tokens", self._handle_count)
        app.router.add_get("/", _handle_root)  # Claude Code looks whether anybody is there
        app.router.add_get("/rehearsal/report", self._handle_report)
        app.router.add_route("*", "/{path:.*}", _handle_unknown_path)
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

    async def _handle_report(self, http: web.Request) -> web.Response:
        return web.json_response(self.report())

    async def _handle_count(self, http: web.Request) -> web.Response:
        """Answer a request to count tokens: it is free, not recorded, and no line of the screenplay is used up."""
        try:
            return web.json_response({"input_tokens": count_tokens(await _read_body(http), http.headers)})
        except ApiRefusal as refused:
            return _error_response(MessagesWire(), refused, "req_count")

    async def _handle_model_request(self, wire: RehearsalWire, http: web.Request) -> web.StreamResponse:
        """Answer a request to a model and record the call, also when it was refused or dropped.

        A refusal is answered in the wire's format. When the client or the server goes away, the connection is reset.
        """
        call = self._record.new_call()
        http[REQUEST_ID] = f"req_{call.number:08d}"
        try:
            return await self._answer_request(wire, http, call)
        except ApiRefusal as refused:
            call.status, call.message = refused.status, refused.message
            call.outcome = "refused" if call.outcome == "reply" else call.outcome
            return _error_response(wire, refused, http[REQUEST_ID])
        except (ConnectionError, ServerStopping):
            call.dropped = True
            reset_connection(http)
            return web.Response()  # goes nowhere: the connection is gone
        except asyncio.CancelledError:
            call.dropped = True
            raise
        finally:
            self._record.note_end(call)

    async def _answer_request(self, wire: RehearsalWire, http: web.Request, call: RecordedCall) -> web.StreamResponse:
        """Parse a request, choose the line that answers it, and send its reply or fault; fill in `call`.

        A request for a summary of its conversation is answered without a line. Charges the prompt cache and records
        prefix, usage and whole replies. Raises ApiRefusal for a request that the API would not take, one that no line
        answers, and a fault that is an HTTP error; ServerStopping when the server stops meanwhile; ConnectionError when
        the client has gone.
        """
        raw = await _read_body(http)
        incoming = IncomingRequest(raw, http.headers, http.query, http.match_info.get("asked", ""))
        parsed = wire.parse_request(incoming, self.screenplay.made_up_tools)
        request = parsed.request
        call.body = json.loads(raw)
        position = find_position(request)
        call.step, call.turn = position.step, position.turn
        links = digest_chain(request)
        self._record.note_prefix(request, links)
        if request.compaction is not None:
            return await self._answer_compaction(wire, http, call, parsed, f"{links[-1]} summed up")
        index, fault = self._cues.choose_line(position)
        call.line = index + 1
        line = self.screenplay.lines[index]
        blocks, stop_reason = compose_reply(line, request, links[-1], partial(self.screenplay.line_place, index), fault)
        if fault is not None:
            call.outcome = fault
            if refused := http_error(fault, request.model, line.retry_after):
                raise refused
            if fault is Fault.STREAM_ERROR and not request.stream:
                raise OVERLOADED
            if fault is Fault.HANG:
                await self._player.hang()
            if fault in (Fault.NOT_JSON, Fault.PAGE):
                return await self._player.send_garbage(http, fault, request.stream)
        reply = build_message(request, links[-1], blocks, stop_reason, self._cache.charge_request(request))
        reply["diagnostics"] = self._record.diagnose_cache_miss(request, links)
        call.usage = reply["usage"]
        self._record.note_reply_begun(links[-1], reply["usage"])
        response = await self._player.send_message(http, wire, reply, parsed, fault, line.seconds)
        if fault not in PARTIAL:
            self._record.note_reply_sent(links[-1])
        return response

    async def _answer_compaction(
        self, wire: RehearsalWire, http: web.Request, call: RecordedCall, parsed: ParsedRequest, digest: str
    ) -> web.StreamResponse:
        """Send the reply to a request for a summary of its conversation, and record its usage.

        Raises ApiRefusal when the screenplay has `sums_up` off, ServerStopping or ConnectionError when server or client
        goes away.
        """
        if not self.screenplay.script.sums_up:
            raise invalid_request("compaction: Extra inputs are not permitted")
        request = parsed.request
        reply = build_message(
            request, digest, summary_blocks(request), "compaction", self._cache.charge_request(request)
        )
        call.usage = reply["usage"]
        self._record.note_reply_begun(digest, reply["usage"])
        response = await self._player.send_message(http, wire, reply, parsed, None, 0)
        self._record.note_reply_sent(digest)
        return response


async def _read_body(http: web.Request) -> bytes:
    """Read the body of a request. Raises ApiRefusal (413) when it is larger than MAX_BODY_BYTES."""
    try:
        return await http.read()
    except web.HTTPRequestEntityTooLarge:
        raise ApiRefusal(
            413, "request_too_large", f"Request exceeds the maximum size of {MAX_BODY_BYTES} bytes"
        ) from None


async def _handle_root(http: web.Request) -> web.Response:
    """Answer GET / with the service's name: Claude Code looks whether anybody is there."""
    return web.json_response({"service": "rehearsal"})


async def _handle_unknown_path(http: web.Request) -> web.Response:
    """Answer 404 to every unknown path, in the format of the Messages API."""
    return _error_response(
        MessagesWire(), ApiRefusal(404, "not_found_error", f"{http.method} {http.path}: not found"), "req_none"
    )


def _error_response(wire: RehearsalWire, refused: ApiRefusal, request_id: str) -> web.Response:
    """Return a refusal as an HTTP response in the wire's format, with request id and retry-after headers."""
    headers = {"request-id": request_id}
    if refused.retry_after is not None:
        headers["retry-after"] = f"{refused.retry_after:g}"
    return web.json_response(wire.error(refused, request_id), status=refused.status, headers=headers)


async def play_until_signal(
    screenplay: Screenplay, host: str, port: int, announce: Callable[[str], None] = print
) -> None:
    """Run the screenplay's server until SIGINT or SIGTERM; `announce` gets its URL and the variables to export.

    Raises BadInput when the port is taken.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        async with Rehearsal(screenplay, host=host, port=port) as rehearsal:
            announce(
                f"{screenplay.script.title!r} plays on {rehearsal.url} until Ctrl-C; in another terminal:\n"
                f"  export ANTHROPIC_BASE_URL={shell_word(rehearsal.url)} ANTHROPIC_API_KEY={SHOWN_API_KEY}"
            )
            await stop.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def play_file(file: Path, port: int) -> None:
    """Run the server of a screenplay's file until SIGINT or SIGTERM. Raises BadInput for a bad file or taken port."""
    screenplay = Screenplay.load(file)
    asyncio.run(play_until_signal(screenplay, "127.0.0.1", port, lambda line: print(line, flush=True)))
