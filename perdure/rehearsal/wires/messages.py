"""Anthropic's Messages API on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator

from perdure.rehearsal.strict import parse
from perdure.rehearsal.wire import Refused
from perdure.rehearsal.wires.base import Asked, Came, Json, event_frame, pieces


class Messages:
    """The wire that the built-in agent and Claude Code speak."""

    def read(self, came: Came, made_up: frozenset[str]) -> Asked:
        return Asked(parse(came.raw, came.headers, made_up))

    def whole(self, reply: Json, asked: Asked) -> Json:
        return reply

    def frames(self, reply: Json, asked: Asked) -> Iterator[bytes]:
        return map(event_frame, events(reply))

    def error(self, refused: Refused, request_id: str) -> Json:
        return refused.body(request_id)

    def broken(self, refused: Refused, request_id: str) -> bytes:
        return event_frame(refused.body(request_id))


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
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        case "tool_use":
            whole = json.dumps(block["input"], ensure_ascii=False)
            parts = ["", *pieces(whole[: len(whole) // 2] if cut else whole)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in parts]
        case "compaction":
            return {**block, "content": None}, [{"type": "compaction_delta", "content": block["content"]}]
        case _:
            thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*thoughts, signature]
