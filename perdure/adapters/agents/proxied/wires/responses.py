"""OpenAI responses: the wire of Codex."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.adapters.agents.proxied.base import Bounds, Cut, Json, ProxiedReply, ProxiedRequest, Route
from perdure.adapters.agents.proxied.wires import openai
from perdure.adapters.agents.proxied.wires.openai import texts
from perdure.adapters.agents.proxied.wires.shapes import (
    answered,
    asked,
    calls,
    items_of,
    limit_of,
    objects,
    parsed,
    refused,
    text_of,
    tool_result,
    tool_use,
    without,
)

_HERE = ("function", "custom", "local_shell", "apply_patch", "computer_use_preview")
"""Types of tools that the agent runs itself; some others may, when they say so."""

_ELSEWHERE = ("previous_response_id", "conversation", "prompt", "background")
"""Fields that stand for what is kept at the API: the ledger would see, and count, half of the conversation."""

_TOKENS = ("input_tokens", "input_tokens_details", "output_tokens")


class Responses(openai.OpenAI):
    """POST /v1/responses."""

    name = "openai-responses"
    headers = frozenset({"openai-beta"})

    def route(self, path: str, query: str) -> Route | None:
        return Route(path) if path == "/v1/responses" and not query else None

    def understand(self, route: Route, body: Json) -> ProxiedRequest:
        model = text_of(body, "model")
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else items_of(body, "input")
        if not items:
            raise refused("input: at least one item is required")
        if taken := [name for name in _ELSEWHERE if body.get(name)]:
            raise refused(f"{taken[0]}: the whole conversation has to be sent")
        if any(item.get("type") == "item_reference" for item in items):
            raise refused("input: items have to be sent, not named by their id")
        openai.refuse_fetched(items)
        sent = dict(body)
        tools = [kept for tool in items_of(body, "tools") if (kept := _here(tool)) is not None]
        if "tools" in sent:
            sent["tools"] = tools
        most = limit_of(sent.get("max_output_tokens"))
        bounds = Bounds.of(route, model, sent, most, known=openai.standard(sent))
        nameless = without(sent, *openai.IDS)
        nameless["input"] = [without(item, "id") for item in items]
        told, stream = (said for item in items for said in _said(item)), sent.get("stream") is True
        return asked(self.name, route, sent, nameless, bounds, told, model=model, turn=bool(tools), stream=stream)

    def read(self, request: ProxiedRequest, events: bool, body: bytes) -> ProxiedReply:
        response = _of_events(body) if events else parsed(body)
        if response.get("status") == "failed":
            raise openai.failed(response.get("error"))
        output = response.get("output")
        if response.get("status") not in ("completed", "incomplete") or not isinstance(output, list):
            raise Cut("it has no end")
        items = [item for item in output if isinstance(item, dict)]
        blocks = [block for item in items for _, said in _said({"role": "assistant", **item}) for block in said]
        named = str(response.get("model") or request.model)
        usage = openai.usage(named, response.get("usage"), _TOKENS, known=request.price_known)
        return answered(events, body, usage, blocks, _stop(response, blocks))


def _here(tool: Json) -> Json | None:
    """The tool without what the API's servers would run; None when that is all of it."""
    kind = tool.get("type")
    if kind == "namespace":
        inner = [kept for one in items_of(tool, "tools") if (kept := _here(one)) is not None]
        return {**tool, "tools": inner} if inner else None
    if kind == "tool_search":
        return tool if tool.get("execution") == "client" else None
    if kind == "shell":
        place = tool.get("environment")
        return tool if isinstance(place, dict) and place.get("type") == "local" else None
    return tool if kind in _HERE else None


def _said(item: Json) -> Iterator[tuple[str, list[Json]]]:
    """(role, blocks) of one item, in the shape of our transcripts."""
    kind, call = item.get("type", "message"), str(item.get("call_id") or item.get("id") or "")
    if kind == "message":
        role = "assistant" if item.get("role") == "assistant" else "user"
        yield role, texts(item.get("content"))
    elif kind == "reasoning":
        summary = "\n".join(block["text"] for block in texts(item.get("summary")))
        yield "assistant", [{"type": "thinking", "thinking": summary, "signature": ""}] if summary else []
    elif kind == "function_call":
        yield "assistant", [tool_use(str(item.get("name", "")), call, item.get("arguments"))]
    elif kind == "custom_tool_call":
        yield "assistant", [tool_use(str(item.get("name", "")), call, {"input": item.get("input")})]
    elif isinstance(kind, str) and kind.endswith("_call"):
        yield "assistant", [tool_use(kind.removesuffix("_call"), call, item.get("action") or item.get("operation"))]
    elif isinstance(kind, str) and kind.endswith("_output"):
        yield "user", [tool_result(call, item.get("output", ""))]


def _stop(response: Json, blocks: list[Json]) -> str:
    if response.get("status") == "incomplete":
        detail = response.get("incomplete_details")
        reason = detail.get("reason") if isinstance(detail, dict) else None
        return "refusal" if reason == "content_filter" else "max_tokens"
    return "tool_use" if calls(blocks) else "end_turn"


def _of_events(body: bytes) -> Json:
    """The response that a stream ends with; items that came before it, where it leaves them out."""
    items: list[Any] = []
    for name, event in objects(body):
        kind = event.get("type") or name
        if kind == "response.output_item.done":
            items.append(event.get("item"))
        elif kind == "error":
            raise openai.failed(event.get("error") or event)
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            response = event.get("response")
            if not isinstance(response, dict):
                raise Cut("its end has no response")
            status = str(kind).removeprefix("response.")
            return {**response, "status": status, "output": response.get("output") or items}
    raise Cut("it was cut off before its end")
