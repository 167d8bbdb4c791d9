"""The sending of an answer: framed as HTTP should be, or broken the way networks break it."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Sequence

from aiohttp import web

from perdure.rehearsal.faults import OVERLOADED, PAGE, PARTIAL, Fault
from perdure.rehearsal.wires.base import Json, ParsedRequest, RehearsalWire

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
        """Send a response of status 200 that is not the JSON it should be: an HTML page or broken JSON."""
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
        """Send the frames, evenly spread over `seconds`. Raises ServerStopping when the server stops meanwhile."""
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
    """End the connection as a crashed peer does: RST, not FIN."""
    if http.transport is None:
        return
    peer = http.transport.get_extra_info("socket")
    if peer is not None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    http.transport.abort()


def _split_in_half(body: bytes) -> list[bytes]:
    """Split a body into two halves."""
    return [body[: len(body) // 2], body[len(body) // 2 :]]
