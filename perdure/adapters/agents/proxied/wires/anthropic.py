"""Anthropic Messages: the wire of Claude Code and of many agents that take its address."""

from __future__ import annotations

from typing import Any

from perdure.adapters.agents.prices import usage_cost
from perdure.adapters.agents.proxied.base import Bounds, Cut, Json, ProxiedReply, ProxiedRequest, Route, WireError
from perdure.adapters.agents.proxied.wires.shapes import (
    answered,
    asked,
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
    text_of,
    tool_use,
    without,
)
from perdure.models.ledger import Usage

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

_HERE = ("custom", "bash_", "text_editor_", "computer_", "memory_")
"""Types of tools that the agent runs itself, or how they begin; the API's servers run all others."""

_ELSEWHERE = ("mcp_servers", "container", "fallbacks")
"""Fields that make the API's servers call others or run what the agent sends: it has no network, there either."""

_IDS = ("metadata", "diagnostics")
"""Fields that name who asks and what was asked before: they differ for an agent that is started again."""

_BILLING = "x-anthropic-billing-header:"
"""The beginning of the block in which Claude Code tells its version and an id in the system prompt."""


class Anthropic:
    """POST /v1/messages, and counting its tokens."""

    name = "anthropic"
    headers = frozenset({"anthropic-version", "anthropic-beta"})
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'

    def route(self, path: str, query: str) -> Route | None:
        if query not in ("", "beta=true") or path not in ("/v1/messages", "/v1/messages/count_tokens"):
            return None
        return Route(path, query, free=path.endswith("count_tokens"))

    def understand(self, route: Route, body: Json) -> ProxiedRequest:
        model, said = text_of(body, "model"), items_of(body, "messages")
        if not said:
            raise refused("messages: at least one message is required")
        sent = without(body, *_ELSEWHERE)
        tools = [tool for tool in items_of(body, "tools") if _runs_here(tool)]
        if "tools" in sent:
            sent["tools"] = tools
            if not tools:
                sent.pop("tools")
                sent.pop("tool_choice", None)
        refuse_addresses(said, _address, "content")
        known = sent.get("speed") in (None, "standard") and sent.get("inference_geo") in (None, "global")
        most, hour = limit_of(sent.get("max_tokens")), _mentions_hour(sent)
        bounds = Bounds.of(route, model, sent, most, hour=hour, known=known)
        told, stream = map(_message, said), sent.get("stream") is True
        return asked(
            self.name, route, sent, _nameless(sent), bounds, told, model=model, turn=bool(tools), stream=stream
        )

    def read(self, request: ProxiedRequest, events: bool, body: bytes) -> ProxiedReply:
        if not request.upper_tokens:
            return counted(events, body)
        message = _of_events(body) if events else parsed(body)
        content, stop = message.get("content"), message.get("stop_reason")
        if not isinstance(content, list) or not isinstance(stop, str) or not stop:
            raise Cut("it has no end")
        usage = _usage(message.get("usage"))
        cost = usage_cost(str(message.get("model") or request.model), usage) if request.price_known else None
        return answered(events, body, usage.model_copy(update={"cost_usd": cost}), content, stop)

    def refusal(self, status: int, body: bytes) -> WireError:
        error, said = said_in(body)
        kind = error.get("type") if isinstance(error, dict) else None
        return WireError(status, kind if isinstance(kind, str) else _kind(status), said)

    def error(self, error: WireError) -> Json:
        return {"type": "error", "error": {"type": error.kind or _kind(error.status), "message": error.said}}


def _kind(status: int) -> str:
    return _KINDS.get(status, "api_error" if status >= 500 else "invalid_request_error")


def _runs_here(tool: Json) -> bool:
    kind = tool.get("type")
    return kind is None or (isinstance(kind, str) and kind.startswith(_HERE))


def _address(block: Json) -> str:
    source = block.get("source")
    fetched = isinstance(source, dict) and source.get("type") == "url"
    return "a picture or document cannot be named by its address" if fetched else ""


def _mentions_hour(value: Any) -> bool:
    """True where a cache mark asks for an hour."""
    if isinstance(value, list):
        return any(map(_mentions_hour, value))
    if isinstance(value, dict):
        mark = value.get("cache_control")
        if isinstance(mark, dict) and mark.get("ttl") == "1h":
            return True
        return any(_mentions_hour(value[name]) for name in ("system", "tools", "messages", "content") if name in value)
    return False


def _nameless(body: Json) -> Json:
    """The request without ids: of who asks, of the session, of the version and attestation of the command line."""
    plain = without(body, *_IDS)
    if isinstance(plain.get("system"), list):
        plain["system"] = [block for block in plain["system"] if not _bills(block)]
    return plain


def _bills(block: Any) -> bool:
    return isinstance(block, dict) and str(block.get("text", "")).startswith(_BILLING)


def _message(message: Json) -> tuple[str, list[Json]]:
    """Role and blocks without cache marks; what stands in the place of blocks and is none is left out."""
    role = "assistant" if message.get("role") == "assistant" else "user"
    content = message.get("content")
    if isinstance(content, str):
        return role, [text(content)]
    blocks = content if isinstance(content, list) else []
    return role, [without(block, "cache_control") for block in blocks if isinstance(block, dict)]


def _usage(counted: Any) -> Usage:
    counted = counted if isinstance(counted, dict) else {}
    created = counted.get("cache_creation")
    written = count(counted.get("cache_creation_input_tokens"))
    hour = count(created.get("ephemeral_1h_input_tokens")) if isinstance(created, dict) else 0
    return Usage(
        input_tokens=count(counted.get("input_tokens")),
        cache_read_tokens=count(counted.get("cache_read_input_tokens")),
        cache_write_tokens=max(written, hour),
        cache_write_1h_tokens=hour,
        output_tokens=count(counted.get("output_tokens")),
    )


def _of_events(body: bytes) -> Json:
    """The message that a stream builds up. Cut when it does not come to its end, WireError when it says why not."""
    message: Json | None = None
    blocks: dict[int, _Building] = {}
    for _, event in objects(body):
        kind = event.get("type")
        if kind == "error":
            raise _in_stream(event)
        if kind == "message_start" and isinstance(event.get("message"), dict):
            message = dict(event["message"])
        elif message is None:
            continue
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            blocks[count(event.get("index"))] = _Building(event["content_block"])
        elif kind == "content_block_delta" and isinstance(event.get("delta"), dict):
            if (block := blocks.get(count(event.get("index")))) is not None:
                block.add(event["delta"])
        elif kind == "message_delta":
            delta, usage = event.get("delta"), event.get("usage")
            message |= delta if isinstance(delta, dict) else {}
            new = {name: value for name, value in usage.items() if value is not None} if isinstance(usage, dict) else {}
            before = message.get("usage")
            message["usage"] = {**(before if isinstance(before, dict) else {}), **new}
        elif kind == "message_stop":
            return {**message, "content": [blocks[index].whole() for index in sorted(blocks)]}
    raise Cut("it was cut off before its end")


def _in_stream(event: Json) -> WireError:
    """An error inside a stream has no status of its own: that of its type, or of a server's fault."""
    error = event.get("error")
    kind = str(error.get("type") or "api_error") if isinstance(error, dict) else "api_error"
    said = str(error.get("message") or kind) if isinstance(error, dict) else kind
    status = next((number for number, name in _KINDS.items() if name == kind), 500)
    return WireError(status, kind, said)


_PLACES = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class _Building:
    """A block while its pieces come."""

    def __init__(self, start: Json) -> None:
        self._block = dict(start)
        self._pieces: dict[str, list[str]] = {}

    def add(self, delta: Json) -> None:
        kind = delta.get("type")
        if kind == "signature_delta":
            self._block["signature"] = delta.get("signature", "")
        elif kind == "citations_delta":
            self._block["citations"] = [*(self._block.get("citations") or []), delta.get("citation")]
        elif isinstance(kind, str) and kind in _PLACES:
            name = _PLACES[kind]
            self._pieces.setdefault(name, []).append(str(delta.get(name, "")))

    def whole(self) -> Json:
        """The block; a call's input that ends halfway (max_tokens) is kept as the text it is."""
        block = dict(self._block)
        for name, pieces in self._pieces.items():
            if name == "partial_json":
                said = "".join(pieces)
                block = tool_use(str(block.get("name", "")), str(block.get("id", "")), said.strip())
            else:
                block[name] = str(block.get(name) or "") + "".join(pieces)
        return block
