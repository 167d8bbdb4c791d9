"""The protocol of a wire: how requests are parsed, and what a reply or an error looks like on it; and what both APIs of
OpenAI share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import Field, ValidationError

from perdure.models.base import Json
from perdure.rehearsal.record import INPUT_KINDS
from perdure.rehearsal.wire import ApiMessage, ApiRefusal, CacheControl, Request, StrictModel, invalid_request

PIECE_CHARS = 24
"""Size of a stream's deltas: small enough that a cut falls into the middle of a sentence or of a tool's input."""

AUTOMATIC_CACHE = CacheControl(type="ephemeral")
"""The cache breakpoint of requests on wires without breakpoints: everything up to the last block is cached."""


@dataclass(frozen=True)
class IncomingRequest:
    """An HTTP request as it came. `path` is what the route matched besides, such as a model's name and method."""

    raw: bytes
    headers: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True)
class ParsedRequest:
    """A request in the shape of the Messages API, and what its wire needs for the reply.

    request     what a screenplay sees
    freeform    tools that take a text and no object; their input is `{"input": text}` here
    namespaces  tool → its namespace, where it has one
    framed      a stream is one of server-sent events, not a JSON array
    usage       a stream ends with what it cost
    """

    request: Request
    freeform: frozenset[str] = frozenset()
    namespaces: Mapping[str, str] = field(default_factory=dict)
    framed: bool = True
    usage: bool = True


class RehearsalWire(Protocol):
    """Parses the requests of one API and writes its replies, which are those of the Messages API everywhere else."""

    def parse_request(self, incoming: IncomingRequest, made_up_tools: frozenset[str]) -> ParsedRequest:
        """Parse a request. Raises ApiRefusal as the real API refuses it.

        `made_up_tools` are tools that may stand in a conversation unoffered.
        """

    def reply_body(self, reply: Json, parsed: ParsedRequest) -> Json:
        """Return the body of a reply that is not streamed."""

    def reply_frames(self, reply: Json, parsed: ParsedRequest) -> Iterator[bytes]:
        """Yield a streamed reply, in the pieces in which it is sent."""

    def error(self, refused: ApiRefusal, request_id: str) -> Json:
        """Return the body of an error."""

    def error_frame(self, refused: ApiRefusal, request_id: str) -> bytes:
        """Return an error as a piece in the middle of a stream."""


def split_text(text: str) -> list[str]:
    """Split a text into the deltas of a stream, PIECE_CHARS each."""
    return [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]


def parse_body(raw: bytes) -> Json:
    """Parse the body of a request, a JSON object. Raises ApiRefusal where it is none."""
    try:
        body = json.loads(raw)
    except ValueError:
        raise invalid_request("The request body is not valid JSON") from None
    if not isinstance(body, dict):
        raise invalid_request("The request body must be a JSON object")
    return body


def bearer_token(headers: Mapping[str, str]) -> str:
    """Return the token of `Authorization: Bearer …`, or an empty string."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def first_problem(error: ValidationError) -> tuple[str, str, str]:
    """Return one validation problem as place, message and kind: an unknown parameter before its consequences."""
    problems: list[Any] = list(error.errors())
    problem = min(problems, key=lambda entry: entry["type"] != "extra_forbidden")
    where = ".".join(map(str, problem["loc"]))
    return where, str(problem["msg"]).removeprefix("Value error, "), str(problem["type"])


def merge_turns(parts: list[tuple[str, list[Json]]]) -> list[ApiMessage]:
    """Merge blocks by role into messages that alternate; in a user's message tool results come before all else.

    A part without blocks makes no message. Raises ValidationError for a role or block that the Messages API has not.
    """
    grouped: list[tuple[str, list[Json]]] = []
    for role, blocks in parts:
        if grouped and grouped[-1][0] == role:
            grouped[-1][1].extend(blocks)
        elif blocks:
            grouped.append((role, list(blocks)))
    return [
        ApiMessage.model_validate(
            {"role": role, "content": sorted(blocks, key=lambda block: block["type"] != "tool_result")}
            if role == "user"
            else {"role": role, "content": blocks}
        )
        for role, blocks in grouped
    ]


def to_messages_request(
    system: Iterable[str], parts: list[tuple[str, list[Json]]], schema: Json | None, **fields: Any
) -> Request:
    """Return the request of another wire as one of the Messages API, with the cache breakpoint at its end.

    `parts` are (role, blocks), `schema` is that of a structured answer or None, `fields` are further fields of the
    request. Without any block, one user message of "…" stands in. Raises ValidationError when the result is no valid
    request.
    """
    return Request.model_validate(
        {
            **fields,
            "system": [block for text in system for block in text_blocks(text)],
            "messages": merge_turns(parts) or [{"role": "user", "content": "…"}],
            "cache_control": AUTOMATIC_CACHE,
            "output_config": {"format": {"type": "json_schema", "schema": schema}} if schema is not None else None,
        }
    )


def text_blocks(text: str) -> list[Json]:
    """Return a list of one block of text; an empty list for blank text."""
    return [{"type": "text", "text": text}] if text.strip() else []


def parse_arguments(text: str) -> Json:
    """Parse the arguments of a call, a JSON text, as an object; empty text gives {}.

    Anything else that a model wrote, JSON or not, becomes `{"input": …}`.
    """
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"input": value}


def tool_use_block(call_id: str, name: str, arguments: Json) -> Json:
    """Return a `tool_use` block of the Messages API."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def tool_result_block(call_id: str, content: str) -> Json:
    """Return a `tool_result` block of the Messages API."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def event_frame(event: Json) -> bytes:
    """Return a server-sent event with its name."""
    return f"event: {event['type']}\n".encode() + data_frame(event)


def data_frame(data: Json) -> bytes:
    """Return a server-sent event without a name."""
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def total_input_tokens(usage: Json) -> int:
    """Return all tokens of a prompt, cached or not."""
    return sum(int(usage[name]) for name in INPUT_KINDS)


_KINDS = {401: "invalid_request_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded", 529: "server_is_overloaded"}


class OpenAiRequest(StrictModel):
    """Fields that a request to either API may have."""

    model: str = Field(min_length=1)
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    stream: bool = False
    store: bool | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    temperature: float | None = None
    top_p: float | None = None


def check_bearer_token(headers: Mapping[str, str]) -> None:
    """Raise ApiRefusal where no key was sent; any will do."""
    if not bearer_token(headers):
        raise ApiRefusal(
            401, "invalid_request_error", "Missing bearer or basic authentication in header", details={"code": None}
        )


def validation_refusal(error: ValidationError) -> ApiRefusal:
    """Return the refusal of a body that is not in the API's shape, by its first problem."""
    where, message, kind = first_problem(error)
    if kind == "extra_forbidden":
        return bad_request(f"Unknown parameter: '{where}'.", where, "unknown_parameter")
    if kind == "missing":
        return bad_request(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    return bad_request(f"Invalid value for '{where}': {message}", where, "invalid_value")


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiRefusal:
    """Return the refusal of an invalid request: status 400, with the parameter and a code."""
    return ApiRefusal(400, "invalid_request_error", message, details={"param": param, "code": code})


def openai_error(refused: ApiRefusal) -> Json:
    """Return a refusal as OpenAI's error: `{"error": {"message", "type", "param", "code"}}`.

    The code is `insufficient_quota` at a spend limit, else that of the refusal's details, else that of its status; None
    when neither has one.
    """
    details = refused.details or {}
    code = details.get("code", details.get("error_code", _CODES.get(refused.status)))
    if refused.details and refused.details.get("error_code"):
        code = "insufficient_quota"
    return {
        "error": {
            "message": refused.message,
            "type": _KINDS.get(refused.status, "server_error" if refused.status >= 500 else "invalid_request_error"),
            "param": details.get("param"),
            "code": code,
        }
    }
