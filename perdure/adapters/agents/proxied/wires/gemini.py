"""Gemini: the wire of the Gemini command line."""

from __future__ import annotations

import json
import re
from typing import Any

from perdure.adapters.agents.prices import usage_cost
from perdure.adapters.agents.proxied.base import Bounds, Cut, Json, ProxiedReply, ProxiedRequest, Route, WireError
from perdure.adapters.agents.proxied.wires.shapes import (
    answered,
    asked,
    calls,
    count,
    counted,
    items_of,
    limit_of,
    objects,
    parsed,
    refuse_addresses,
    refused,
    said_in,
    text,
    tool_result,
    tool_use,
    without,
)
from perdure.models.ledger import Usage

_PATH = re.compile(
    r"/v1(?:beta)?/models/([A-Za-z0-9][A-Za-z0-9._-]{0,99}):(generateContent|streamGenerateContent|countTokens)"
)
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_STOPS = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens"}
_HERE = "functionDeclarations"
"""The tools that the agent runs itself; searching, fetching and running code are those of the API's servers."""


class Gemini:
    """POST …/models/MODEL:generateContent, :streamGenerateContent and :countTokens."""

    name = "gemini"
    headers: frozenset[str] = frozenset()
    ping = b""

    def route(self, path: str, query: str) -> Route | None:
        found = _PATH.fullmatch(path)
        if found is None:
            return None
        stream = found[2] == "streamGenerateContent"
        if query != ("alt=sse" if stream else ""):
            return None
        return Route(path, query, model=found[1], stream=stream, free=found[2] == "countTokens")

    def understand(self, route: Route, body: Json) -> ProxiedRequest:
        contents = items_of(body, "contents")
        if not contents and not route.free:
            raise refused("contents: at least one is required")
        if other := [name for name in body if "_" in name]:  # a second name of a field would be read there, not here
            raise refused(f"{other[0]}: fields are written in camel case here")
        if body.get("cachedContent"):
            raise refused("cachedContent: the whole conversation has to be sent")
        refuse_addresses(contents, _fetched, "parts")
        sent = without(body, "labels")
        tools = [{_HERE: tool[_HERE]} for tool in items_of(body, "tools") if tool.get(_HERE)]
        if "tools" in sent:
            sent["tools"] = tools
        settings = sent.get("generationConfig")
        settings = settings if isinstance(settings, dict) else {}
        if settings.get("candidateCount") not in (None, 1):
            raise refused("candidateCount: one reply at a time")
        most = limit_of(settings.get("maxOutputTokens"))
        bounds, told = Bounds.of(route, route.model, sent, most), map(_message, contents)
        nameless, model = _nameless(sent), route.model
        return asked(self.name, route, sent, nameless, bounds, told, model=model, turn=bool(tools), stream=route.stream)

    def read(self, request: ProxiedRequest, events: bool, body: bytes) -> ProxiedReply:
        if not request.upper_tokens:
            return counted(events, body)
        pieces = [piece for _, piece in objects(body)] if events else [parsed(body)]
        parts: list[Any] = []
        why, tokens, named = None, None, request.model
        for piece in pieces:
            if piece.get("error"):
                raise self.refusal(count(piece["error"].get("code")) or 500, json.dumps(piece).encode())
            candidate: Json = next(iter(piece.get("candidates") or ()), {})
            parts += (candidate.get("content") or {}).get("parts") or ()
            why = candidate.get("finishReason") or why
            if (piece.get("promptFeedback") or {}).get("blockReason"):
                why = why or "SAFETY"
            tokens, named = piece.get("usageMetadata") or tokens, piece.get("modelVersion") or named
        if not isinstance(why, str):
            raise Cut("it was cut off before its end")
        blocks = _blocks(parts)
        stop = "tool_use" if calls(blocks) else _STOPS.get(why, "refusal")
        return answered(events, body, _usage(str(named), tokens), blocks, stop)

    def refusal(self, status: int, body: bytes) -> WireError:
        told, said = said_in(body)
        name = told.get("status") if isinstance(told, dict) else None
        return WireError(status, name if isinstance(name, str) else "", said)

    def error(self, error: WireError) -> Json:
        name = error.kind or _STATUS.get(error.status, "UNAVAILABLE" if error.status >= 500 else "INVALID_ARGUMENT")
        return {"error": {"code": error.status, "message": error.said, "status": name}}


def _fetched(value: Json) -> str:
    """Words about a file that the API's servers would fetch, or that is the account's."""
    return "a file cannot be named by its address" if value.get("fileData") or value.get("file_data") else ""


def _nameless(body: Json) -> Json:
    """The request without the ids of calls, which the command line makes anew."""

    def part(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        calls = ("functionCall", "functionResponse")
        return {n: without(v, "id") if n in calls and isinstance(v, dict) else v for n, v in value.items()}

    def content(value: Json) -> Json:
        parts = value.get("parts")
        return {**value, "parts": [part(one) for one in parts]} if isinstance(parts, list) else value

    return {**body, "contents": [content(one) for one in items_of(body, "contents")]}


def _message(content: Json) -> tuple[str, list[Json]]:
    parts = content.get("parts")
    return "assistant" if content.get("role") == "model" else "user", _blocks(parts if isinstance(parts, list) else [])


def _blocks(parts: list[Any]) -> list[Json]:
    """Parts in the shape of our transcripts; texts that follow each other are one, as a stream sends them."""
    blocks: list[Json] = []
    for part in parts:
        if not isinstance(part, dict):
            continue
        call, answer, said = part.get("functionCall"), part.get("functionResponse"), part.get("text")
        if isinstance(call, dict):
            blocks.append(tool_use(str(call.get("name", "")), str(call.get("id") or ""), call.get("args")))
        elif isinstance(answer, dict):
            blocks.append(tool_result(str(answer.get("id") or answer.get("name") or ""), answer.get("response", "")))
        elif isinstance(said, str) and said:
            new = {"type": "thinking", "thinking": said, "signature": ""} if part.get("thought") else text(said)
            if blocks and blocks[-1]["type"] == new["type"]:
                blocks[-1][new["type"]] += said
            else:
                blocks.append(new)
    return blocks


def _usage(model: str, counted: Any) -> Usage:
    told = counted if isinstance(counted, dict) else {}
    cached = count(told.get("cachedContentTokenCount"))
    usage = Usage(
        input_tokens=max(0, count(told.get("promptTokenCount")) - cached) + count(told.get("toolUsePromptTokenCount")),
        cache_read_tokens=cached,
        output_tokens=count(told.get("candidatesTokenCount")) + count(told.get("thoughtsTokenCount")),
    )
    return usage.model_copy(update={"cost_usd": usage_cost(model, usage) if usage.tokens else None})
