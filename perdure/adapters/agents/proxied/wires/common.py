"""Small parts that the wires share: requests and replies as data, their fields, blocks of our transcripts, streams of
events."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from perdure.adapters.agents.proxied.base import (
    REPLY_TOKENS,
    IncompleteReply,
    ProxiedReply,
    ProxiedRequest,
    RequestBounds,
    Route,
    WireError,
)
from perdure.models.base import Json
from perdure.models.budget.ledger import Usage
from perdure.text import redact_known


def make_request(
    wire: str,
    route: Route,
    body: Json,
    body_without_ids: Json,
    bounds: RequestBounds,
    role_blocks: Iterable[tuple[str, list[Json]]],
    *,
    model: str,
    turn: bool,
    stream: bool,
) -> ProxiedRequest:
    """Make the ProxiedRequest of what a wire has parsed.

    body             what is sent on; body_without_ids: from which the request's key is made
    role_blocks      role and blocks of each message
    turn, stream     as in ProxiedRequest; neither on a free route
    """
    return ProxiedRequest(
        wire=wire,
        path=route.target,
        model=model,
        body=body,
        key=request_key(wire, route, body_without_ids),
        upper_usd=bounds.usd,
        upper_tokens=bounds.tokens,
        messages=merge_turns(role_blocks),
        turn=turn and not route.free,
        stream=stream and not route.free,
        price_known=bounds.price_known,
    )


def make_reply(is_stream: bool, body: bytes, usage: Usage, blocks: list[Json], stop_reason: str | None) -> ProxiedReply:
    """Make the ProxiedReply of what a wire has parsed."""
    content_type = "text/event-stream; charset=utf-8" if is_stream else "application/json"
    return ProxiedReply(200, content_type, body, usage, {"role": "assistant", "content": blocks}, stop_reason)


def make_count_reply(is_stream: bool, body: bytes) -> ProxiedReply:
    """Make the reply to a request that only counts tokens, and uses none. Raises IncompleteReply when it is no JSON
    object."""
    parse_object(body)
    return make_reply(is_stream, body, Usage(), [], None)


def request_key(wire: str, route: Route, body: Json) -> str:
    """Return the key of a request, equal for one that is sent again: SHA-256 over wire, path and body, in hex.

    The order of keys in the body does not matter, everything else does.
    """
    canonical = json.dumps([wire, route.target, body], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def without_fields(body: Json, *names: str) -> Json:
    """Return a copy of an object without these fields."""
    return {name: value for name, value in body.items() if name not in names}


def request_error(message: str) -> WireError:
    """Return the WireError (400) of a request that is wrong, or asks for what is not let through."""
    return WireError(400, "", message)


def require_text(body: Json, name: str) -> str:
    """Return a field that must hold a text of 1 to 200 characters. Raises WireError where it does not."""
    value = body.get(name)
    if not isinstance(value, str) or not value or len(value) > 200:
        raise request_error(f"{name}: a text is required")
    return value


def list_objects(body: Json, name: str) -> list[Json]:
    """Return a field that is a list of objects; empty where the field is missing. Raises WireError for anything
    else."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise request_error(f"{name}: a list of objects is required")
    return value


def reply_token_limit(value: object) -> int:
    """Return the longest reply that a request allows, in tokens, from the value of its field; REPLY_TOKENS without one.

    Raises WireError for anything but a positive integer.
    """
    if value is None:
        return REPLY_TOKENS
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise request_error("the limit of the reply's tokens: a number is required")
    return value


def text_block(value: str) -> Json:
    """Return a text block, in the shape of our transcripts."""
    return {"type": "text", "text": value}


def tool_use_block(name: str, id: str, arguments: object) -> Json:
    """Return a `tool_use` block, in the shape of our transcripts.

    arguments  an object, or the JSON of one; a string that is neither is kept, as {"input": …}
    """
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            value = None
        arguments = value if isinstance(value, dict) else {"input": arguments}
    return {"type": "tool_use", "id": id, "name": name, "input": arguments if isinstance(arguments, dict) else {}}


def tool_result_block(id: str, output: object) -> Json:
    """Return a `tool_result` block, in the shape of our transcripts; an output that is no text is written as JSON."""
    output_text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    return {"type": "tool_result", "tool_use_id": id, "content": [text_block(output_text)]}


def merge_turns(role_blocks: Iterable[tuple[str, list[Json]]]) -> list[Json]:
    """Merge (role, blocks) into messages: those of one role that follow each other become one; without blocks there is
    none."""
    messages: list[Json] = []
    for role, blocks in role_blocks:
        if not blocks:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(blocks)
        else:
            messages.append({"role": role, "content": list(blocks)})
    return messages


def has_tool_call(blocks: list[Json]) -> bool:
    """Return whether a tool is called in these blocks."""
    return any(block["type"] == "tool_use" for block in blocks)


def parse_error_answer(body: bytes) -> tuple[Any, str]:
    """Parse an error's body: return its field `error`, and the message in it. Where it has another shape: an empty
    object, and the first 300 bytes as text."""
    try:
        error = json.loads(body)["error"]
        return error, str(error["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}, redact_known(body.decode("utf-8", "replace"))[:300].strip()


def split_events(body: bytes) -> Iterator[tuple[str, str]]:
    """Yield (event, data) of each server-sent event that came whole: one without its empty line did not. `event` may be
    empty; events without data are left out."""
    text = body.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    for block in text.split("\n\n")[:-1]:
        name, data = "", []
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                data.append(value)
        if data:
            yield name, "\n".join(data)


def parse_events(body: bytes) -> Iterator[tuple[str, Json]]:
    """Parse a stream and yield (event, JSON object) of each event, up to the `[DONE]` of some wires, which comes as
    ("[DONE]", {}).

    Raises IncompleteReply for data that is no JSON object.
    """
    for name, data in split_events(body):
        if data == "[DONE]":
            yield data, {}
            return
        yield name, parse_object(data)


def parse_object(data: str | bytes) -> Json:
    """Parse bytes or a text as a JSON object. Raises IncompleteReply when it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise IncompleteReply("it is not JSON") from None
    if not isinstance(value, dict):
        raise IncompleteReply("it is no JSON object")
    return value
