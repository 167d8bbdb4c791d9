"""Puts an answer on the connection: framed as HTTP should be, or broken the way networks break it."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from aiohttp import web

from perdure.rehearsal.faults import OVERLOADED, PAGE, PARTIAL, Fault

Json = dict[str, Any]


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
        self, http: web.Request, message: Json, stream: bool, fault: Fault | None, seconds: float
    ) -> web.StreamResponse:
        """Send a message, whole or cut by a fault of the connection, spread over `seconds`."""
        frames = list(map(encode, events(message))) if stream else _halves(json.dumps(message).encode())
        response: web.StreamResponse = Unframed() if fault is Fault.CLOSE else web.StreamResponse()
        if fault in PARTIAL:
            frames = frames[: len(frames) // 2]
        if fault is Fault.STREAM_ERROR:
            frames.append(encode(OVERLOADED.body(http[REQUEST_ID])))
        if fault is Fault.CLOSE:
            response.force_close()
        response.content_type = "text/event-stream" if stream else "application/json"
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


_PIECE = 24
"""Characters a delta: small enough that a cut falls into the middle of a sentence or of a tool's input."""


def encode(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def events(message: Json) -> Iterator[Json]:
    """All events of one message, `message_start` to `message_stop`.

    At max_tokens the input of a tool call in last place ends halfway and is not whole JSON.
    """
    usage = message["usage"]
    opening: Json = {"content": [], "stop_reason": None, "stop_details": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": {**message, **opening}}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        cut = message["stop_reason"] == "max_tokens" and index == len(message["content"]) - 1
        empty, deltas = _unfold(block, cut)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    counts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    delta = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    yield {"type": "message_delta", "delta": delta, "usage": {name: usage[name] for name in counts}}
    yield {"type": "message_stop"}


def _unfold(block: Json, cut: bool) -> tuple[Json, list[Json]]:
    """A block as it is opened, and the deltas that fill it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        case "tool_use":
            whole = json.dumps(block["input"], ensure_ascii=False)
            pieces = ["", *_pieces(whole[: len(whole) // 2] if cut else whole)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        case _:
            thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*thoughts, signature]


def _pieces(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
