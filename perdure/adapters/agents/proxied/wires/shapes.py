"""Small parts that the wires share: requests and replies as data, their fields, our transcripts, streams of events."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from perdure.adapters.agents.proxied.base import (
    REPLY_TOKENS,
    Bounds,
    Cut,
    Json,
    ProxiedReply,
    ProxiedRequest,
    Route,
    WireError,
)
from perdure.models.ledger import Usage


def asked(
    wire: str,
    route: Route,
    body: Json,
    nameless: Json,
    bounds: Bounds,
    said: Iterable[tuple[str, list[Json]]],
    *,
    model: str,
    turn: bool,
    stream: bool,
) -> ProxiedRequest:
    """The request that a wire has understood. `nameless`: its body without ids; `said`: role and blocks of messages."""
    return ProxiedRequest(
        wire=wire,
        path=route.target,
        model=model,
        body=body,
        key=key(wire, route, nameless),
        upper_usd=bounds.usd,
        upper_tokens=bounds.tokens,
        messages=in_turns(said),
        turn=turn and not route.free,
        stream=stream and not route.free,
        price_known=bounds.known,
    )


def answered(events: bool, body: bytes, usage: Usage, blocks: list[Json], stop: str | None) -> ProxiedReply:
    """The reply that a wire has understood."""
    kind = "text/event-stream; charset=utf-8" if events else "application/json"
    return ProxiedReply(200, kind, body, usage, {"role": "assistant", "content": blocks}, stop)


def counted(events: bool, body: bytes) -> ProxiedReply:
    """The reply to a request that counts tokens and asks nothing. Raises Cut."""
    parsed(body)
    return answered(events, body, Usage(), [], None)


def key(wire: str, route: Route, body: Json) -> str:
    """The name of a request, equal for one that comes again: SHA-256 over path and body, in hex; the order of keys does
    not matter, everything else does."""
    said = json.dumps([wire, route.target, body], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(said.encode()).hexdigest()


def without(body: Json, *names: str) -> Json:
    """A copy without these fields."""
    return {name: value for name, value in body.items() if name not in names}


def refused(said: str) -> WireError:
    """The error of a request that is wrong, or asks for what is not let through."""
    return WireError(400, "", said)


def text_of(body: Json, name: str) -> str:
    """A field that has to be there, with text in it. Raises WireError."""
    value = body.get(name)
    if not isinstance(value, str) or not value or len(value) > 200:
        raise refused(f"{name}: a text is required")
    return value


def items_of(body: Json, name: str) -> list[Json]:
    """A field that is a list of objects, or not there. Raises WireError."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise refused(f"{name}: a list of objects is required")
    return value


def limit_of(value: object) -> int:
    """The longest reply a request allows, in tokens; REPLY_TOKENS where it says nothing. Raises WireError."""
    if value is None:
        return REPLY_TOKENS
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise refused("the limit of the reply's tokens: a number is required")
    return value


def count(value: object) -> int:
    """Tokens as an API counts them; 0 for everything that is no count."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def text(value: str) -> Json:
    return {"type": "text", "text": value}


def tool_use(name: str, id: str, arguments: object) -> Json:
    """`arguments`: an object, or the JSON of one; what is neither is kept as the text it is."""
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            value = None
        arguments = value if isinstance(value, dict) else {"input": arguments}
    return {"type": "tool_use", "id": id, "name": name, "input": arguments if isinstance(arguments, dict) else {}}


def tool_result(id: str, said: object) -> Json:
    shown = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return {"type": "tool_result", "tool_use_id": id, "content": [text(shown)]}


def in_turns(said: Iterable[tuple[str, list[Json]]]) -> list[Json]:
    """Messages of (role, blocks): those of one role that follow each other are one."""
    messages: list[Json] = []
    for role, blocks in said:
        if not blocks:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(blocks)
        else:
            messages.append({"role": role, "content": list(blocks)})
    return messages


def calls(blocks: list[Json]) -> bool:
    """True where a tool is called in them."""
    return any(block["type"] == "tool_use" for block in blocks)


def refuse_addresses(value: Any, wrong: Callable[[Json], str], *inside: str) -> None:
    """Raises WireError for what the API's servers would fetch: an object of which `wrong` says so, in words, here or in
    the fields `inside`."""
    if isinstance(value, list):
        for item in value:
            refuse_addresses(item, wrong, *inside)
    elif isinstance(value, dict):
        if said := wrong(value):
            raise refused(f"this agent has no network: {said}")
        for name in inside:
            refuse_addresses(value.get(name), wrong, *inside)


def said_in(body: bytes) -> tuple[Any, str]:
    """The `error` of an answer and what it says in words; the beginning of its text when it is no JSON."""
    try:
        error = json.loads(body)["error"]
        return error, str(error["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}, body[:300].decode("utf-8", "replace").strip()


def events(body: bytes) -> Iterator[tuple[str, str]]:
    """(event, data) of each event that came whole; an event without its empty line did not. `event` may be empty."""
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


def objects(body: bytes) -> Iterator[tuple[str, Json]]:
    """(event, JSON object) of each event, up to the `[DONE]` of some wires, which comes as ("[DONE]", {})."""
    for name, data in events(body):
        if data == "[DONE]":
            yield data, {}
            return
        yield name, parsed(data)


def parsed(data: str | bytes) -> Json:
    """The JSON object in these bytes. Raises Cut when it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise Cut("it is not JSON") from None
    if not isinstance(value, dict):
        raise Cut("it is no JSON object")
    return value
