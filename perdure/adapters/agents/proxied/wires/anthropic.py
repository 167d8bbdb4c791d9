"""Anthropic Messages as a wire of the proxy, that of Claude Code and of many agents that can be given its address:
requests and replies are parsed, errors written, nothing is sent."""

from __future__ import annotations

from typing import Any

from perdure.adapters.agents.message_builder import MessageBuilder, token_count
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
    list_objects,
    make_count_reply,
    make_reply,
    make_request,
    parse_error_answer,
    parse_events,
    parse_object,
    reply_token_limit,
    request_error,
    require_text,
    text_block,
    tool_use_block,
    without_fields,
)
from perdure.adapters.agents.proxied.wires.request_fields import ANTHROPIC, copy_allowed
from perdure.models.base import Json
from perdure.models.budget.ledger import Usage

_ERROR_TYPES = {
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

_AGENT_TOOL_TYPES = ("custom", "bash_", "text_editor_", "computer_", "memory_")
"""Types of tools that the agent runs itself, or how they begin; the API's servers run all others."""

_ID_FIELDS = ("metadata", "diagnostics")
"""Fields that name who asks and what was asked before: they differ for an agent that is started again."""

_BILLING_PREFIX = "x-anthropic-billing-header:"
"""The beginning of the block in which Claude Code tells its version and an id in the system prompt."""


class ProxiedAnthropicWire:
    """The wire of POST /v1/messages, and of counting a request's tokens."""

    name = "anthropic"
    forwarded_headers = frozenset({"anthropic-version", "anthropic-beta"})
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'

    def find_route(self, path: str, query: str) -> Route | None:
        """Return the route for a request of messages or of their token count, which is free, with no query or
        `beta=true`; None for anything else."""
        if query not in ("", "beta=true") or path not in ("/v1/messages", "/v1/messages/count_tokens"):
            return None
        return Route(path, query, free=path.endswith("count_tokens"))

    def parse_request(self, route: Route, body: Json) -> ProxiedRequest:
        """Parse a request for a message, or for a count of its tokens.

        Only the fields of ANTHROPIC are sent on, and of the tools those that the agent runs itself. The price is not
        known with another `speed` or `inference_geo` than the standard one. Raises WireError without a model or
        messages, for tools or a token limit of a wrong shape, and for a picture, document or file that is named by its
        address or id.
        """
        forwarded = copy_allowed(body, ANTHROPIC)
        model, messages = require_text(forwarded, "model"), list_objects(forwarded, "messages")
        if not messages:
            raise request_error("messages: at least one message is required")
        tools = [tool for tool in list_objects(forwarded, "tools") if _runs_in_agent(tool)]
        if "tools" in forwarded:
            forwarded["tools"] = tools
            if not tools:
                forwarded.pop("tools")
                forwarded.pop("tool_choice", None)
        price_known = forwarded.get("speed") in (None, "standard") and forwarded.get("inference_geo") in (
            None,
            "global",
        )
        max_tokens, one_hour_cache = reply_token_limit(forwarded.get("max_tokens")), _has_one_hour_cache(forwarded)
        bounds = RequestBounds.for_request(
            route, model, forwarded, max_tokens, one_hour_cache=one_hour_cache, price_known=price_known
        )
        role_blocks, stream = map(_to_role_and_blocks, messages), forwarded.get("stream") is True
        return make_request(
            self.name,
            route,
            forwarded,
            _without_ids(forwarded),
            bounds,
            role_blocks,
            model=model,
            turn=bool(tools),
            stream=stream,
        )

    def parse_reply(self, request: ProxiedRequest, is_stream: bool, body: bytes) -> ProxiedReply:
        """Parse a message, JSON or a stream, with its usage and price. An answer that only counts tokens is checked to
        be a JSON object, and not read.

        Raises IncompleteReply for what is no JSON object or was cut off, and without content or a stop reason;
        WireError for an error inside a stream.
        """
        if not request.upper_tokens:
            return make_count_reply(is_stream, body)
        message = _message_from_events(body) if is_stream else parse_object(body)
        content, stop_reason = message.get("content"), message.get("stop_reason")
        if not isinstance(content, list) or not isinstance(stop_reason, str) or not stop_reason:
            raise IncompleteReply("it has no end")
        usage = _parse_usage(message.get("usage"))
        cost = usage_cost(str(message.get("model") or request.model), usage) if request.price_known else None
        return make_reply(is_stream, body, usage.model_copy(update={"cost_usd": cost}), content, stop_reason)

    def parse_error(self, status: int, body: bytes) -> WireError:
        """Parse an error's body; where it names no type, the type is that of the status."""
        error, message = parse_error_answer(body)
        error_type = error.get("type") if isinstance(error, dict) else None
        return WireError(status, error_type if isinstance(error_type, str) else _error_type(status), message)

    def error_body(self, error: WireError) -> Json:
        """Return the error as the Messages API writes it."""
        return {"type": "error", "error": {"type": error.kind or _error_type(error.status), "message": error.message}}


def _error_type(status: int) -> str:
    """Return the type of error that the Messages API has for a status."""
    return _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def _runs_in_agent(tool: Json) -> bool:
    """Return whether the agent runs this tool itself, by its type."""
    tool_type = tool.get("type")
    return tool_type is None or (isinstance(tool_type, str) and tool_type.startswith(_AGENT_TOOL_TYPES))


def _has_one_hour_cache(value: Any) -> bool:
    """Return whether a cache mark in this part of a request asks for an hour: on an object itself, or in its `system`,
    `tools`, `messages` or `content`, at any depth."""
    if isinstance(value, list):
        return any(map(_has_one_hour_cache, value))
    if isinstance(value, dict):
        cache_control = value.get("cache_control")
        if isinstance(cache_control, dict) and cache_control.get("ttl") == "1h":
            return True
        return any(
            _has_one_hour_cache(value[name]) for name in ("system", "tools", "messages", "content") if name in value
        )
    return False


def _without_ids(body: Json) -> Json:
    """Return the request without ids: of who asks, of the session, of the version and attestation of the command
    line."""
    body_without_ids = without_fields(body, *_ID_FIELDS)
    if isinstance(body_without_ids.get("system"), list):
        body_without_ids["system"] = [block for block in body_without_ids["system"] if not _is_billing_block(block)]
    return body_without_ids


def _is_billing_block(block: Any) -> bool:
    """Return whether this block of the system prompt is the one with Claude Code's version and an id."""
    return isinstance(block, dict) and str(block.get("text", "")).startswith(_BILLING_PREFIX)


def _to_role_and_blocks(message: Json) -> tuple[str, list[Json]]:
    """Return role and blocks of a message, without cache marks; any role but the assistant's is the user's, and what
    stands among the blocks and is no object is left out."""
    role = "assistant" if message.get("role") == "assistant" else "user"
    content = message.get("content")
    if isinstance(content, str):
        return role, [text_block(content)]
    blocks = content if isinstance(content, list) else []
    return role, [without_fields(block, "cache_control") for block in blocks if isinstance(block, dict)]


def _parse_usage(fields: Any) -> Usage:
    """Parse the tokens of a reply from its field `usage`, without their price; a number that is missing counts as 0."""
    fields = fields if isinstance(fields, dict) else {}
    cache_creation = fields.get("cache_creation")
    cache_write = token_count(fields.get("cache_creation_input_tokens"))
    one_hour = token_count(cache_creation.get("ephemeral_1h_input_tokens")) if isinstance(cache_creation, dict) else 0
    return Usage(
        input_tokens=token_count(fields.get("input_tokens")),
        cache_read_tokens=token_count(fields.get("cache_read_input_tokens")),
        cache_write_tokens=max(cache_write, one_hour),
        cache_write_1h_tokens=one_hour,
        output_tokens=token_count(fields.get("output_tokens")),
    )


def _message_from_events(body: bytes) -> Json:
    """Merge the events of a stream into the message that they build up.

    Raises IncompleteReply when the stream does not come to its end, WireError when it holds an error.
    """
    builder = MessageBuilder(_tool_call)
    for _, event in parse_events(body):
        if event.get("type") == "error":
            raise _stream_error(event)
        builder.add(event)
        if builder.has_ended and builder.message is not None:
            return {**builder.message, "content": builder.content()}
    raise IncompleteReply("it was cut off before its end")


def _tool_call(block: Json, input_text: str | None) -> Json:
    """Return a tool call; an input that ends halfway (max_tokens) is kept as the text it is."""
    if input_text is None:
        return block
    return tool_use_block(str(block.get("name", "")), str(block.get("id", "")), input_text.strip())


def _stream_error(event: Json) -> WireError:
    """Return the error of a stream's error event. The event has no status: it is that of its type, or 500."""
    error = event.get("error")
    error_type = str(error.get("type") or "api_error") if isinstance(error, dict) else "api_error"
    message = str(error.get("message") or error_type) if isinstance(error, dict) else error_type
    status = next((number for number, name in _ERROR_TYPES.items() if name == error_type), 500)
    return WireError(status, error_type, message)
