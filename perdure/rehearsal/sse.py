"""The event stream that builds up a message, event for event as the API sends it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

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
