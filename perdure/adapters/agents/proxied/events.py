"""Server-sent events in bytes that have all arrived."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from perdure.adapters.agents.proxied.base import Cut


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


def objects(body: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """(event, JSON object) of each event, up to the `[DONE]` of some wires, which comes as ("[DONE]", {})."""
    for name, data in events(body):
        if data == "[DONE]":
            yield data, {}
            return
        yield name, parsed(data)


def parsed(data: str | bytes) -> dict[str, Any]:
    """The JSON object in these bytes. Raises Cut when it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise Cut("it is not JSON") from None
    if not isinstance(value, dict):
        raise Cut("it is no JSON object")
    return value
