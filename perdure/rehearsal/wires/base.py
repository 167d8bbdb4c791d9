"""The protocol of a wire: how requests are read, and what a reply or an error looks like on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import ValidationError

from perdure.rehearsal.record import INPUT_KINDS
from perdure.rehearsal.wire import CacheControl, Message, Refused, Request, invalid

Json = dict[str, Any]

PIECE = 24
"""Characters a delta: small enough that a cut falls into the middle of a sentence or of a tool's input."""

AUTOMATIC = CacheControl(type="ephemeral")
"""On the wires that know no marks everything up to the last block is cached."""


@dataclass(frozen=True)
class Came:
    """A request as it came. `path` is what the route caught besides, such as a model's name and method."""

    raw: bytes
    headers: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True)
class Asked:
    """A request, understood.

    request   in the shape of the Messages API: what a screenplay sees
    freeform  tools that take a text and no object; their input is `{"input": text}` here
    spaces    tool → its namespace, where it has one
    framed    a stream is one of server-sent events, not a JSON array
    usage     a stream ends with what it cost
    """

    request: Request
    freeform: frozenset[str] = frozenset()
    spaces: Mapping[str, str] = field(default_factory=dict)
    framed: bool = True
    usage: bool = True


class RehearsalWire(Protocol):
    """Reads what came, and writes replies, which are messages of the Messages API everywhere else."""

    def read(self, came: Came, made_up: frozenset[str]) -> Asked:
        """Raises Refused as the real one refuses; `made_up` are tools that may stand in a conversation unoffered."""

    def whole(self, reply: Json, asked: Asked) -> Json:
        """The body of a reply without a stream."""

    def frames(self, reply: Json, asked: Asked) -> Iterator[bytes]:
        """A stream, in the pieces in which it is sent."""

    def error(self, refused: Refused, request_id: str) -> Json:
        """The body of an error."""

    def broken(self, refused: Refused, request_id: str) -> bytes:
        """An error in the middle of a stream."""


def pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def body_of(raw: bytes) -> Json:
    """The JSON object of a request. Refused where it is none."""
    try:
        body = json.loads(raw)
    except ValueError:
        raise invalid("The request body is not valid JSON") from None
    if not isinstance(body, dict):
        raise invalid("The request body must be a JSON object")
    return body


def bearer(headers: Mapping[str, str]) -> str:
    """The token of `Authorization: Bearer …`, or nothing."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def first_problem(error: ValidationError) -> tuple[str, str, str]:
    """Return one problem as its place, its words and its kind: an unknown parameter before its consequences."""
    problems: list[Any] = list(error.errors())
    problem = min(problems, key=lambda p: p["type"] != "extra_forbidden")
    where = ".".join(map(str, problem["loc"]))
    return where, str(problem["msg"]).removeprefix("Value error, "), str(problem["type"])


def joined(parts: list[tuple[str, list[Json]]]) -> list[Message]:
    """Blocks by role as messages that take turns; a user's results of tools stand before its words."""
    grouped: list[tuple[str, list[Json]]] = []
    for role, blocks in parts:
        if grouped and grouped[-1][0] == role:
            grouped[-1][1].extend(blocks)
        elif blocks:
            grouped.append((role, list(blocks)))
    return [
        Message.model_validate(
            {"role": role, "content": sorted(blocks, key=lambda block: block["type"] != "tool_result")}
            if role == "user"
            else {"role": role, "content": blocks}
        )
        for role, blocks in grouped
    ]


def as_messages(
    system: Iterable[str], parts: list[tuple[str, list[Json]]], schema: Json | None, **said: Any
) -> Request:
    """A request of another wire as one of the Messages API. `schema`: of its answer; `said`: fields as there."""
    return Request.model_validate(
        {
            **said,
            "system": [block for text in system for block in text_block(text)],
            "messages": joined(parts) or [{"role": "user", "content": "…"}],
            "cache_control": AUTOMATIC,
            "output_config": {"format": {"type": "json_schema", "schema": schema}} if schema is not None else None,
        }
    )


def text_block(text: str) -> list[Json]:
    """One block of text; none for an empty one."""
    return [{"type": "text", "text": text}] if text.strip() else []


def arguments_of(text: str) -> Json:
    """The arguments of a call as an object, even where a model wrote something else."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"input": value}


def use_block(call_id: str, name: str, given: Json) -> Json:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result_block(call_id: str, content: str) -> Json:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def event_frame(event: Json) -> bytes:
    """A server-sent event with its name."""
    return f"event: {event['type']}\n".encode() + data_frame(event)


def data_frame(data: Json) -> bytes:
    """A server-sent event without a name."""
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def total_input(usage: Json) -> int:
    """All tokens of a prompt, cached or not."""
    return sum(int(usage[name]) for name in INPUT_KINDS)
