"""Gemini's API as a wire of the proxy, that of the Gemini command line: requests and replies are parsed, errors
written, nothing is sent."""

from __future__ import annotations

import json
import re
from typing import Any

from perdure.adapters.agents.message_builder import token_count
from perdure.adapters.agents.prices import usage_cost
from perdure.adapters.agents.proxied.base import (
    IncompleteReply,
    ProxiedReply,
    ProxiedRequest,
    RequestBounds,
    Route,
    WireError,
)
from perdure.adapters.agents.proxied.wires.common import (
    has_tool_call,
    list_objects,
    make_count_reply,
    make_reply,
    make_request,
    parse_error_answer,
    parse_events,
    parse_object,
    reply_token_limit,
    request_error,
    text_block,
    tool_result_block,
    tool_use_block,
    without_fields,
)
from perdure.adapters.agents.proxied.wires.request_fields import GEMINI, copy_allowed
from perdure.models.base import Json
from perdure.models.budget.ledger import Usage

_PATH = re.compile(
    r"/v1(?:beta)?/models/([A-Za-z0-9][A-Za-z0-9._-]{0,99}):(generateContent|streamGenerateContent|countTokens)"
)
_STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_STOP_REASONS = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens"}


class ProxiedGeminiWire:
    """The wire of POST …/models/MODEL:generateContent, :streamGenerateContent and :countTokens."""

    name = "gemini"
    forwarded_headers: frozenset[str] = frozenset()
    ping = b""

    def find_route(self, path: str, query: str) -> Route | None:
        """Return the route for a path of the model, with the model that it names; counting tokens is free. None for any
        other path or query: a stream has to be asked for as `alt=sse`."""
        match = _PATH.fullmatch(path)
        if match is None:
            return None
        stream = match[2] == "streamGenerateContent"
        if query != ("alt=sse" if stream else ""):
            return None
        return Route(path, query, model=match[1], stream=stream, free=match[2] == "countTokens")

    def parse_request(self, route: Route, body: Json) -> ProxiedRequest:
        """Parse a request to generate content, or to count its tokens. Only the fields of GEMINI are sent on: of the
        tools those that the agent runs itself, where the API's servers run all others.

        Raises WireError without contents (where tokens are not only counted), for a field of a wrong shape or with its
        name in snake case, content cached at the API, more than one candidate, and a file that is named by its address.
        """
        if body.get("cachedContent"):
            raise request_error("cachedContent: the whole conversation has to be sent")
        forwarded = copy_allowed(body, GEMINI, _snake_case_reason)
        contents = list_objects(forwarded, "contents")
        if not contents and not route.free:
            raise request_error("contents: at least one is required")
        tools = [tool for tool in list_objects(forwarded, "tools") if tool]
        if "tools" in forwarded:
            forwarded["tools"] = tools
        settings = forwarded.get("generationConfig")
        settings = settings if isinstance(settings, dict) else {}
        if settings.get("candidateCount") not in (None, 1):
            raise request_error("candidateCount: one reply at a time")
        max_tokens = reply_token_limit(settings.get("maxOutputTokens"))
        bounds, role_blocks = (
            RequestBounds.for_request(route, route.model, forwarded, max_tokens),
            map(_to_role_and_blocks, contents),
        )
        body_without_ids, model = _without_ids(forwarded), route.model
        return make_request(
            self.name,
            route,
            forwarded,
            body_without_ids,
            bounds,
            role_blocks,
            model=model,
            turn=bool(tools),
            stream=route.stream,
        )

    def parse_reply(self, request: ProxiedRequest, is_stream: bool, body: bytes) -> ProxiedReply:
        """Parse a reply, JSON or a stream, with its usage and price. An answer that only counts tokens is checked to be
        a JSON object, and not read.

        The stop reason is tool_use wherever a tool is called, and refusal for any reason but STOP and MAX_TOKENS.
        Raises IncompleteReply for what is no JSON or has no finish reason, and WireError for an error inside it.
        """
        if not request.upper_tokens:
            return make_count_reply(is_stream, body)
        pieces = [piece for _, piece in parse_events(body)] if is_stream else [parse_object(body)]
        parts: list[Any] = []
        finish_reason, usage_fields, model = None, None, request.model
        for piece in pieces:
            if piece.get("error"):
                raise self.parse_error(token_count(piece["error"].get("code")) or 500, json.dumps(piece).encode())
            candidate: Json = next(iter(piece.get("candidates") or ()), {})
            parts += (candidate.get("content") or {}).get("parts") or ()
            finish_reason = candidate.get("finishReason") or finish_reason
            if (piece.get("promptFeedback") or {}).get("blockReason"):
                finish_reason = finish_reason or "SAFETY"
            usage_fields, model = piece.get("usageMetadata") or usage_fields, piece.get("modelVersion") or model
        if not isinstance(finish_reason, str):
            raise IncompleteReply("it was cut off before its end")
        blocks = _to_blocks(parts)
        stop_reason = "tool_use" if has_tool_call(blocks) else _STOP_REASONS.get(finish_reason, "refusal")
        return make_reply(is_stream, body, _parse_usage(str(model), usage_fields), blocks, stop_reason)

    def parse_error(self, status: int, body: bytes) -> WireError:
        """Parse an error's body; the kind is its field `status`, such as RESOURCE_EXHAUSTED."""
        error, message = parse_error_answer(body)
        status_name = error.get("status") if isinstance(error, dict) else None
        return WireError(status, status_name if isinstance(status_name, str) else "", message)

    def error_body(self, error: WireError) -> Json:
        """Return the error as the Gemini API writes it."""
        status_name = error.kind or _STATUS_NAMES.get(
            error.status, "UNAVAILABLE" if error.status >= 500 else "INVALID_ARGUMENT"
        )
        return {"error": {"code": error.status, "message": error.message, "status": status_name}}


def _snake_case_reason(value: Json) -> str:
    """Return the reason why an object may not be sent: the API also accepts a field in snake case, which is not looked
    at here. Empty: it may."""
    return next((f"{name}: fields are written in camel case here" for name in value if "_" in name), "")


def _without_ids(body: Json) -> Json:
    """Return the request without the ids of calls, which the command line makes anew each time."""

    def clean_part(value: Any) -> Any:
        """Return a part without the id of its call or of the call's result."""
        if not isinstance(value, dict):
            return value
        call_fields = ("functionCall", "functionResponse")
        return {n: without_fields(v, "id") if n in call_fields and isinstance(v, dict) else v for n, v in value.items()}

    def clean_content(value: Json) -> Json:
        """Return a message without the ids in its parts."""
        parts = value.get("parts")
        return {**value, "parts": [clean_part(part) for part in parts]} if isinstance(parts, list) else value

    return {**body, "contents": [clean_content(content) for content in list_objects(body, "contents")]}


def _to_role_and_blocks(content: Json) -> tuple[str, list[Json]]:
    """Return role and blocks of a message, in the shape of our transcripts."""
    parts = content.get("parts")
    return "assistant" if content.get("role") == "model" else "user", _to_blocks(
        parts if isinstance(parts, list) else []
    )


def _to_blocks(parts: list[Any]) -> list[Json]:
    """Convert parts to blocks in the shape of our transcripts: calls, results, thoughts and texts; texts that follow
    each other become one, as a stream sends them in pieces. Any other part is left out."""
    blocks: list[Json] = []
    for part in parts:
        if not isinstance(part, dict):
            continue
        call, result, part_text = part.get("functionCall"), part.get("functionResponse"), part.get("text")
        if isinstance(call, dict):
            blocks.append(tool_use_block(str(call.get("name", "")), str(call.get("id") or ""), call.get("args")))
        elif isinstance(result, dict):
            blocks.append(
                tool_result_block(str(result.get("id") or result.get("name") or ""), result.get("response", ""))
            )
        elif isinstance(part_text, str) and part_text:
            block = (
                {"type": "thinking", "thinking": part_text, "signature": ""}
                if part.get("thought")
                else text_block(part_text)
            )
            if blocks and blocks[-1]["type"] == block["type"]:
                blocks[-1][block["type"]] += part_text
            else:
                blocks.append(block)
    return blocks


def _parse_usage(model: str, usage_fields: Any) -> Usage:
    """Parse the tokens of a reply from its field `usageMetadata`, with their price; the price is unknown where there
    are none."""
    fields = usage_fields if isinstance(usage_fields, dict) else {}
    cached = token_count(fields.get("cachedContentTokenCount"))
    usage = Usage(
        input_tokens=max(0, token_count(fields.get("promptTokenCount")) - cached)
        + token_count(fields.get("toolUsePromptTokenCount")),
        cache_read_tokens=cached,
        output_tokens=token_count(fields.get("candidatesTokenCount")) + token_count(fields.get("thoughtsTokenCount")),
    )
    return usage.model_copy(update={"cost_usd": usage_cost(model, usage) if usage.tokens else None})
