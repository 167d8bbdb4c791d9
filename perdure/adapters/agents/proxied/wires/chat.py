"""OpenAI chat completions: the wire of Qwen Code, opencode and of most servers of other models."""

from __future__ import annotations

from typing import Any

from perdure.adapters.agents.proxied.base import Bounds, Cut, Json, ProxiedReply, ProxiedRequest, Route
from perdure.adapters.agents.proxied.wires import openai
from perdure.adapters.agents.proxied.wires.openai import texts
from perdure.adapters.agents.proxied.wires.shapes import (
    answered,
    asked,
    calls,
    count,
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

_TOKENS = ("prompt_tokens", "prompt_tokens_details", "completion_tokens")
_STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_ELSEWHERE = ("web_search_options",)


class Chat(openai.OpenAI):
    """POST /v1/chat/completions."""

    name = "openai-chat"

    def route(self, path: str, query: str) -> Route | None:
        return Route(path) if path == "/v1/chat/completions" and not query else None

    def understand(self, route: Route, body: Json) -> ProxiedRequest:
        model, said = text_of(body, "model"), items_of(body, "messages")
        if not said:
            raise refused("messages: at least one message is required")
        if body.get("n") not in (None, 1):
            raise refused("n: one reply at a time")
        openai.refuse_fetched(said)
        sent = without(body, *_ELSEWHERE)
        # Copilot marks the messages of a session it has loaded with a field of its own, which the API refuses.
        sent["messages"] = [without(one, *(name for name in one if name.startswith("__"))) for one in said]
        tools = [tool for tool in items_of(body, "tools") if tool.get("type") in ("function", "custom")]
        if "tools" in sent:
            sent["tools"] = tools
        limit = sent.get("max_completion_tokens")
        most = limit_of(sent.get("max_tokens") if limit is None else limit)
        bounds = Bounds.of(route, model, sent, most, known=openai.standard(sent))
        nameless, told = without(sent, *openai.IDS), map(_message, said)
        if stream := sent.get("stream") is True:  # without it a stream does not say what it has cost
            options = sent.get("stream_options")
            sent["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
        return asked(self.name, route, sent, nameless, bounds, told, model=model, turn=bool(tools), stream=stream)

    def read(self, request: ProxiedRequest, events: bool, body: bytes) -> ProxiedReply:
        whole = _of_events(body) if events else parsed(body)
        choices = whole.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message, why = choice.get("message"), choice.get("finish_reason")
        if not isinstance(message, dict) or not isinstance(why, str):
            raise Cut("it has no end")
        _, blocks = _message({**message, "role": "assistant"})
        stop = "tool_use" if calls(blocks) else _STOPS.get(why, why)
        named = str(whole.get("model") or request.model)
        usage = openai.usage(named, whole.get("usage"), _TOKENS, known=request.price_known)
        return answered(events, body, usage, blocks, stop)


def _message(message: Json) -> tuple[str, list[Json]]:
    """Role and blocks of a message, in the shape of our transcripts."""
    content, role = message.get("content"), message.get("role")
    if role == "tool":
        shown = content if isinstance(content, str) else "\n".join(block["text"] for block in texts(content))
        return "user", [tool_result(str(message.get("tool_call_id", "")), shown)]
    blocks = texts(content)
    if role != "assistant":
        return "user", blocks
    thought = message.get("reasoning_content")
    if isinstance(thought, str) and thought:
        blocks = [{"type": "thinking", "thinking": thought, "signature": ""}, *blocks]
    calls = message.get("tool_calls")
    return "assistant", blocks + [_call(call) for call in calls or () if isinstance(call, dict)]


def _call(call: Json) -> Json:
    function = call.get("function") or call.get("custom")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    given = {"input": function.get("input")} if arguments is None else arguments
    return tool_use(str(function.get("name", "")), str(call.get("id", "")), given)


def _of_events(body: bytes) -> Json:
    """The completion that the pieces of a stream make up, up to its `[DONE]`."""
    whole: Json = {}
    said: dict[str, list[str]] = {"content": [], "reasoning_content": [], "refusal": []}
    calls: dict[int, Json] = {}
    why: Any = None
    for name, event in objects(body):
        if name == "[DONE]":
            message: Json = {field: "".join(pieces) for field, pieces in said.items()}
            message["content"] = message["content"] or message.pop("refusal")
            message["tool_calls"] = [calls[index] for index in sorted(calls)]
            return {**whole, "choices": [{"message": message, "finish_reason": why}]}
        if event.get("error"):
            raise openai.failed(event["error"])
        whole |= {field: event[field] for field in ("model", "usage") if event.get(field)}
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if not isinstance(delta, dict):
                continue
            why = choice.get("finish_reason") or why
            for field, pieces in said.items():
                if isinstance(delta.get(field), str):
                    pieces.append(delta[field])
            for piece in delta.get("tool_calls") or ():
                _add(calls, piece)
    raise Cut("it was cut off before its end")


def _add(calls: dict[int, Json], piece: Any) -> None:
    if not isinstance(piece, dict):
        return
    call = calls.setdefault(count(piece.get("index")), {"id": "", "function": {"name": "", "arguments": ""}})
    call["id"] = piece.get("id") or call["id"]
    given = piece.get("function")
    for field in ("name", "arguments"):
        if isinstance(given, dict) and isinstance(given.get(field), str):
            call["function"][field] += given[field]
