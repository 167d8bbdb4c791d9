"""OpenAI responses: the wire of Codex."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.adapters.agents.proxied.base import (
    IncompleteReply,
    Json,
    ProxiedReply,
    ProxiedRequest,
    RequestBounds,
    Route,
)
from perdure.adapters.agents.proxied.wires import openai
from perdure.adapters.agents.proxied.wires.common import (
    has_tool_call,
    list_objects,
    make_reply,
    make_request,
    parse_events,
    parse_object,
    reply_token_limit,
    request_error,
    require_text,
    tool_result_block,
    tool_use_block,
    without_fields,
)
from perdure.adapters.agents.proxied.wires.openai import text_blocks

_AGENT_TOOL_TYPES = ("function", "custom", "local_shell", "apply_patch", "computer_use_preview")
"""Types of tools that the agent runs itself; some others may be, where they say so."""

_STORED_FIELDS = ("previous_response_id", "conversation", "prompt", "background")
"""Fields that stand for what is stored at the API: the ledger would see, and count, half of the conversation."""

_USAGE_FIELDS = ("input_tokens", "input_tokens_details", "output_tokens")


class ProxiedResponsesWire(openai.ProxiedOpenAIWire):
    """The wire of POST /v1/responses."""

    name = "openai-responses"
    forwarded_headers = frozenset({"openai-beta"})

    def find_route(self, path: str, query: str) -> Route | None:
        """Return the route of responses; None for any other path, or with a query."""
        return Route(path) if path == "/v1/responses" and not query else None

    def parse_request(self, route: Route, body: Json) -> ProxiedRequest:
        """Parse a request for one response; tools that the API's servers would run are left out.

        Raises WireError without a model or input, for a request that relies on what is stored at the API (an earlier
        response, an item by its id), and for a picture or file that is not in the request itself.
        """
        model = require_text(body, "model")
        input_value = body.get("input")
        items = (
            [{"role": "user", "content": input_value}] if isinstance(input_value, str) else list_objects(body, "input")
        )
        if not items:
            raise request_error("input: at least one item is required")
        if stored_fields := [name for name in _STORED_FIELDS if body.get(name)]:
            raise request_error(f"{stored_fields[0]}: the whole conversation has to be sent")
        if any(item.get("type") == "item_reference" for item in items):
            raise request_error("input: items have to be sent, not named by their id")
        openai.refuse_remote_files(items)
        forwarded = dict(body)
        tools = [agent_tool for tool in list_objects(body, "tools") if (agent_tool := _agent_part(tool)) is not None]
        if "tools" in forwarded:
            forwarded["tools"] = tools
        max_tokens = reply_token_limit(forwarded.get("max_output_tokens"))
        bounds = RequestBounds.for_request(
            route, model, forwarded, max_tokens, price_known=openai.has_standard_price(forwarded)
        )
        body_without_ids = without_fields(forwarded, *openai.ID_FIELDS)
        body_without_ids["input"] = [without_fields(item, "id") for item in items]
        role_blocks, stream = (
            (role_and_blocks for item in items for role_and_blocks in _to_role_and_blocks(item)),
            forwarded.get("stream") is True,
        )
        return make_request(
            self.name,
            route,
            forwarded,
            body_without_ids,
            bounds,
            role_blocks,
            model=model,
            turn=bool(tools),
            stream=stream,
        )

    def parse_reply(self, request: ProxiedRequest, is_stream: bool, body: bytes) -> ProxiedReply:
        """Parse a response, JSON or a stream, with its usage and price.

        Raises IncompleteReply without output, or with a status that is no end, and WireError for a response that
        failed.
        """
        response = _response_from_events(body) if is_stream else parse_object(body)
        if response.get("status") == "failed":
            raise openai.reply_error(response.get("error"))
        output = response.get("output")
        if response.get("status") not in ("completed", "incomplete") or not isinstance(output, list):
            raise IncompleteReply("it has no end")
        items = [item for item in output if isinstance(item, dict)]
        blocks = [
            block
            for item in items
            for _, item_blocks in _to_role_and_blocks({"role": "assistant", **item})
            for block in item_blocks
        ]
        model = str(response.get("model") or request.model)
        usage = openai.parse_usage(model, response.get("usage"), _USAGE_FIELDS, price_known=request.price_known)
        return make_reply(is_stream, body, usage, blocks, _stop_reason(response, blocks))


def _agent_part(tool: Json) -> Json | None:
    """Return the part of a tool that the agent runs itself, without what the API's servers would run; None when nothing
    is left."""
    tool_type = tool.get("type")
    if tool_type == "namespace":
        inner = [
            agent_tool
            for inner_tool in list_objects(tool, "tools")
            if (agent_tool := _agent_part(inner_tool)) is not None
        ]
        return {**tool, "tools": inner} if inner else None
    if tool_type == "tool_search":
        return tool if tool.get("execution") == "client" else None
    if tool_type == "shell":
        environment = tool.get("environment")
        return tool if isinstance(environment, dict) and environment.get("type") == "local" else None
    return tool if tool_type in _AGENT_TOOL_TYPES else None


def _to_role_and_blocks(item: Json) -> Iterator[tuple[str, list[Json]]]:
    """Yield role and blocks of one item, in the shape of our transcripts; nothing for an item of another type."""
    kind, call_id = item.get("type", "message"), str(item.get("call_id") or item.get("id") or "")
    if kind == "message":
        role = "assistant" if item.get("role") == "assistant" else "user"
        yield role, text_blocks(item.get("content"))
    elif kind == "reasoning":
        summary = "\n".join(block["text"] for block in text_blocks(item.get("summary")))
        yield "assistant", [{"type": "thinking", "thinking": summary, "signature": ""}] if summary else []
    elif kind == "function_call":
        yield "assistant", [tool_use_block(str(item.get("name", "")), call_id, item.get("arguments"))]
    elif kind == "custom_tool_call":
        yield "assistant", [tool_use_block(str(item.get("name", "")), call_id, {"input": item.get("input")})]
    elif isinstance(kind, str) and kind.endswith("_call"):
        yield (
            "assistant",
            [tool_use_block(kind.removesuffix("_call"), call_id, item.get("action") or item.get("operation"))],
        )
    elif isinstance(kind, str) and kind.endswith("_output"):
        yield "user", [tool_result_block(call_id, item.get("output", ""))]


def _stop_reason(response: Json, blocks: list[Json]) -> str:
    """Return the stop reason of a response: refusal or max_tokens where it is incomplete, else tool_use or end_turn."""
    if response.get("status") == "incomplete":
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        return "refusal" if reason == "content_filter" else "max_tokens"
    return "tool_use" if has_tool_call(blocks) else "end_turn"


def _response_from_events(body: bytes) -> Json:
    """Return the response that a stream ends with; where its output is left out, it is filled with the items that came
    before.

    Raises IncompleteReply when the stream does not come to its end, WireError when it holds an error.
    """
    items: list[Any] = []
    for name, event in parse_events(body):
        kind = event.get("type") or name
        if kind == "response.output_item.done":
            items.append(event.get("item"))
        elif kind == "error":
            raise openai.reply_error(event.get("error") or event)
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            response = event.get("response")
            if not isinstance(response, dict):
                raise IncompleteReply("its end has no response")
            status = str(kind).removeprefix("response.")
            return {**response, "status": status, "output": response.get("output") or items}
    raise IncompleteReply("it was cut off before its end")
