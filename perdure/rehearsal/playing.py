"""Puts an answer on the connection: framed as HTTP should be, or broken the way networks break it."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Sequence

from aiohttp import web

from perdure.rehearsal.faults import OVERLOADED, PAGE, PARTIAL, Fault
from perdure.rehearsal.wires.base import Asked, Json, RehearsalWire

REQUEST_ID = web.RequestKey("request_id", str)


class Unframed(web.StreamResponse):
    """A body that ends when the connection does: what is missing at its end, the client cannot notice."""

    _length_check = False


class Stopping(Exception):
    """The server stops: whatever is on stage is cut."""


class Player:
    """Plays answers until `stopping` is set."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping

    async def message(
        self, http: web.Request, wire: RehearsalWire, message: Json, asked: Asked, fault: Fault | None, seconds: float
    ) -> web.StreamResponse:
        """Send a message, whole or cut by a fault of the connection, spread over `seconds`."""
        stream = asked.request.stream
        frames = (
            list(wire.frames(message, asked)) if stream else _halves(json.dumps(wire.whole(message, asked)).encode())
        )
        response: web.StreamResponse = Unframed() if fault is Fault.CLOSE else web.StreamResponse()
        if fault in PARTIAL:
            frames = frames[: len(frames) // 2]
        if fault is Fault.STREAM_ERROR:
            frames.append(wire.broken(OVERLOADED, http[REQUEST_ID]))
        if fault is Fault.CLOSE:
            response.force_close()
        response.content_type = "text/event-stream" if stream and asked.framed else "application/json"
        response.headers["request-id"] = http[REQUEST_ID]
        response.headers["cache-control"] = "no-cache"
        await self._write(http, response, frames, seconds)
        if fault is Fault.CUT:
            reset(http)
        return response

    async def garbage(self, http: web.Request, fault: Fault, stream: bool) -> web.StreamResponse:
        """200, but not the JSON that 200 promises."""
        response = web.StreamResponse(headers={"request-id": http[REQUEST_ID]})
        if fault is Fault.PAGE:
            response.content_type, frame = "text/html", PAGE.encode()
        elif stream:
            response.content_type, frame = "text/event-stream", b'event: message_start\ndata: {"type": "message_st\n\n'
        else:
            response.content_type, frame = "application/json", b'{"id": "msg_'
        await self._write(http, response, [frame], 0)
        return response

    async def hang(self) -> None:
        """Until the client goes away, which cancels this, or the server stops."""
        await self._stopping.wait()
        raise Stopping

    async def _write(
        self, http: web.Request, response: web.StreamResponse, frames: Sequence[bytes], seconds: float
    ) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await response.prepare(http)
        for number, frame in enumerate(frames, start=1):
            await response.write(frame)
            if seconds:
                await self._until(started + seconds * number / len(frames))

    async def _until(self, moment: float) -> None:
        try:
            async with asyncio.timeout_at(moment):
                await self._stopping.wait()
        except TimeoutError:
            return
        raise Stopping


def reset(http: web.Request) -> None:
    """End the connection as a crashed peer does: RST, not FIN."""
    if http.transport is None:
        return
    peer = http.transport.get_extra_info("socket")
    if peer is not None:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    http.transport.abort()


def _halves(body: bytes) -> list[bytes]:
    return [body[: len(body) // 2], body[len(body) // 2 :]]
