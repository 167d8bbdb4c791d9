"""A server of the Messages API that says what a strict one never would, byte for byte: what small models, and servers
in front of them, were seen to reply."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Answer = Callable[[dict[str, Any]], "str | bytes | tuple[int, bytes]"]
"""Answers the body of a request: with a stream, or with a status and a body."""

USAGE = {"input_tokens": 40, "output_tokens": 8}


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def call_block(name: str, raw_input: str, id: str = "toolu_1") -> dict[str, Any]:
    """A tool call; its input as it is streamed, JSON or not."""
    return {"type": "tool_use", "id": id, "name": name, "input": raw_input}


def stream(
    *blocks: dict[str, Any],
    stop: str | None = "end_turn",
    usage: dict[str, Any] = USAGE,
    model: str = "claude-sonnet-5-5",
) -> str:
    """A reply as server-sent events: each block whole, in one delta."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message | {"stop_reason": None}}]
    for index, block in enumerate(blocks):
        is_call = block["type"] == "tool_use"
        begun = {**block, "input": {}} if is_call else {**block, "text": ""}
        delta = (
            {"type": "input_json_delta", "partial_json": block["input"]}
            if is_call
            else {"type": "text_delta", "text": block["text"]}
        )
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": usage.get("output_tokens", 0)}})
    events.append({"type": "message_stop"})
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


@dataclass
class WeakServer:
    """Its address, and the bodies it was sent."""

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)


@asynccontextmanager
async def weak_server(answer: Answer) -> AsyncIterator[WeakServer]:
    """A server that answers every request so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
        server.bodies.append(json.loads(await reader.readexactly(length) or b"{}"))
        said = answer(server.bodies[-1])
        status, body = said if isinstance(said, tuple) else (200, said.encode() if isinstance(said, str) else said)
        kind = "text/event-stream" if status == 200 else "application/json"
        top = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(top.encode() + body)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1024**2)
    server = WeakServer(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()


def in_order(*answers: str | bytes | tuple[int, bytes]) -> Answer:
    """Answer by how many replies of the model the conversation holds already, with the last one from then on."""

    def answer(body: dict[str, Any]) -> str | bytes | tuple[int, bytes]:
        replies: Sequence[Any] = [message for message in body["messages"] if message["role"] == "assistant"]
        return answers[min(len(replies), len(answers) - 1)]

    return answer
