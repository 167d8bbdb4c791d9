"""Small parts that the wires share: fields of a request that must be there, messages of our transcripts."""

from __future__ import annotations

import json
from typing import Any

from perdure.adapters.agents.proxied.base import REPLY_TOKENS, Json, WireError


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


def in_turns(said: list[tuple[str, list[Json]]]) -> list[Json]:
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


def assistant(blocks: list[Json]) -> Json:
    return {"role": "assistant", "content": blocks}


def said_in(body: bytes) -> tuple[Any, str]:
    """The `error` of an answer and what it says in words; the beginning of its text when it is no JSON."""
    try:
        error = json.loads(body)["error"]
        return error, str(error["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}, body[:300].decode("utf-8", "replace").strip()
