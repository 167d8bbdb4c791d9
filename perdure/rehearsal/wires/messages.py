"""The wire of Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator

from perdure.rehearsal.strict import parse_request
from perdure.rehearsal.wire import ApiRefusal
from perdure.rehearsal.wires.base import IncomingRequest, Json, ParsedRequest, event_frame, split_text


class MessagesWire:
    """The wire that the built-in agent and Claude Code speak."""

    def parse_request(self, incoming: IncomingRequest, made_up_tools: frozenset[str]) -> ParsedRequest:
        return ParsedRequest(parse_request(incoming.raw, incoming.headers, made_up_tools))

    def reply_body(self, reply: Json, parsed: ParsedRequest) -> Json:
        return reply

    def reply_frames(self, reply: Json, parsed: ParsedRequest) -> Iterator[bytes]:
        return map(event_frame, message_events(reply))

    def error(self, refused: ApiRefusal, request_id: str) -> Json:
        return refused.error_body(request_id)

    def error_frame(self, refused: ApiRefusal, request_id: str) -> bytes:
        return event_frame(refused.error_body(request_id))


def message_events(message: Json) -> Iterator[Json]:
    """Yield all events of one streamed message, `message_start` to `message_stop`.

    At max_tokens the input of a tool call in last place ends halfway and is not whole JSON.
    """
    usage = message["usage"]
    opening: Json = {"content": [], "stop_reason": None, "stop_details": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": {**message, **opening}}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        is_cut = message["stop_reason"] == "max_tokens" and index == len(message["content"]) - 1
        opened, deltas = _split_block(block, is_cut)
        yield {"type": "content_block_start", "index": index, "content_block": opened}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    counts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    delta = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    yield {"type": "message_delta", "delta": delta, "usage": {name: usage[name] for name in counts}}
    yield {"type": "message_stop"}


def _split_block(block: Json, is_cut: bool) -> tuple[Json, list[Json]]:
    """Split a block into the empty block that opens it and its deltas; `is_cut`: with half of a tool's input."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in split_text(block["text"])]
        case "tool_use":
            input_json = json.dumps(block["input"], ensure_ascii=False)
            fragments = ["", *split_text(input_json[: len(input_json) // 2] if is_cut else input_json)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in fragments]
        case "compaction":
            return {**block, "content": None}, [{"type": "compaction_delta", "content": block["content"]}]
        case _:
            thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in split_text(block["thinking"])]
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*thoughts, signature]
