"""OpenAI chat completions: the wire of Qwen Code, opencode and of most servers of other models."""

from __future__ import annotations

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
    token_count,
    tool_result_block,
    tool_use_block,
    without_fields,
)
from perdure.adapters.agents.proxied.wires.openai import text_blocks

_USAGE_FIELDS = ("prompt_tokens", "prompt_tokens_details", "completion_tokens")
_STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_SERVER_SIDE_FIELDS = ("web_search_options",)


class ProxiedChatWire(openai.ProxiedOpenAIWire):
    """The wire of POST /v1/chat/completions."""

    name = "openai-chat"

    def find_route(self, path: str, query: str) -> Route | None:
        """Return the route of chat completions; None for any other path, or with a query."""
        return Route(path) if path == "/v1/chat/completions" and not query else None

    def parse_request(self, route: Route, body: Json) -> ProxiedRequest:
        """Parse a request for one completion; a stream is also asked to say what it has used.

        Tools and options with which the API's servers would search or run something are left out. Raises WireError
        without a model or messages, for `n` above 1, and for a picture or file that is not in the request itself.
        """
        model, messages = require_text(body, "model"), list_objects(body, "messages")
        if not messages:
            raise request_error("messages: at least one message is required")
        if body.get("n") not in (None, 1):
            raise request_error("n: one reply at a time")
        openai.refuse_remote_files(messages)
        forwarded = without_fields(body, *_SERVER_SIDE_FIELDS)
        # Copilot marks the messages of a session it has loaded with a field of its own, which the API refuses.
        forwarded["messages"] = [
            without_fields(message, *(name for name in message if name.startswith("__"))) for message in messages
        ]
        tools = [tool for tool in list_objects(body, "tools") if tool.get("type") in ("function", "custom")]
        if "tools" in forwarded:
            forwarded["tools"] = tools
        completion_limit = forwarded.get("max_completion_tokens")
        max_tokens = reply_token_limit(forwarded.get("max_tokens") if completion_limit is None else completion_limit)
        bounds = RequestBounds.for_request(
            route, model, forwarded, max_tokens, price_known=openai.has_standard_price(forwarded)
        )
        body_without_ids, role_blocks = without_fields(forwarded, *openai.ID_FIELDS), map(_to_role_and_blocks, messages)
        if stream := forwarded.get("stream") is True:  # without it a stream does not say what it has used
            options = forwarded.get("stream_options")
            forwarded["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
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
        """Parse a completion, JSON or a stream, with its usage and price.

        The stop reason is tool_use wherever a tool is called. Raises IncompleteReply without a message or a finish
        reason, and WireError for an error inside a stream.
        """
        completion = _completion_from_events(body) if is_stream else parse_object(body)
        choices = completion.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message, finish_reason = choice.get("message"), choice.get("finish_reason")
        if not isinstance(message, dict) or not isinstance(finish_reason, str):
            raise IncompleteReply("it has no end")
        _, blocks = _to_role_and_blocks({**message, "role": "assistant"})
        stop_reason = "tool_use" if has_tool_call(blocks) else _STOP_REASONS.get(finish_reason, finish_reason)
        model = str(completion.get("model") or request.model)
        usage = openai.parse_usage(model, completion.get("usage"), _USAGE_FIELDS, price_known=request.price_known)
        return make_reply(is_stream, body, usage, blocks, stop_reason)


def _to_role_and_blocks(message: Json) -> tuple[str, list[Json]]:
    """Return role and blocks of a message, in the shape of our transcripts."""
    content, role = message.get("content"), message.get("role")
    if role == "tool":
        result_text = (
            content if isinstance(content, str) else "\n".join(block["text"] for block in text_blocks(content))
        )
        return "user", [tool_result_block(str(message.get("tool_call_id", "")), result_text)]
    blocks = text_blocks(content)
    if role != "assistant":
        return "user", blocks
    thought = message.get("reasoning_content")
    if isinstance(thought, str) and thought:
        blocks = [{"type": "thinking", "thinking": thought, "signature": ""}, *blocks]
    tool_calls = message.get("tool_calls")
    return "assistant", blocks + [_call_block(call) for call in tool_calls or () if isinstance(call, dict)]


def _call_block(call: Json) -> Json:
    """Return a tool call of a message as a `tool_use` block; a custom tool's input is text."""
    function = call.get("function") or call.get("custom")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    call_input = {"input": function.get("input")} if arguments is None else arguments
    return tool_use_block(str(function.get("name", "")), str(call.get("id", "")), call_input)


def _completion_from_events(body: bytes) -> Json:
    """Merge the chunks of a stream, up to its `[DONE]`, into the completion that they make up.

    A refusal counts as the content where there is no other. Raises IncompleteReply when the stream has no `[DONE]`,
    WireError when it holds an error.
    """
    completion: Json = {}
    text_pieces: dict[str, list[str]] = {"content": [], "reasoning_content": [], "refusal": []}
    tool_calls: dict[int, Json] = {}
    finish_reason: Any = None
    for name, event in parse_events(body):
        if name == "[DONE]":
            message: Json = {field: "".join(pieces) for field, pieces in text_pieces.items()}
            message["content"] = message["content"] or message.pop("refusal")
            message["tool_calls"] = [tool_calls[index] for index in sorted(tool_calls)]
            return {**completion, "choices": [{"message": message, "finish_reason": finish_reason}]}
        if event.get("error"):
            raise openai.reply_error(event["error"])
        completion |= {field: event[field] for field in ("model", "usage") if event.get(field)}
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if not isinstance(delta, dict):
                continue
            finish_reason = choice.get("finish_reason") or finish_reason
            for field, pieces in text_pieces.items():
                if isinstance(delta.get(field), str):
                    pieces.append(delta[field])
            for piece in delta.get("tool_calls") or ():
                _add_call_piece(tool_calls, piece)
    raise IncompleteReply("it was cut off before its end")


def _add_call_piece(tool_calls: dict[int, Json], piece: Any) -> None:
    """Add a piece of a tool call to the calls, by their index: name and arguments are appended, an id replaces the
    former. What is no object is ignored."""
    if not isinstance(piece, dict):
        return
    call = tool_calls.setdefault(token_count(piece.get("index")), {"id": "", "function": {"name": "", "arguments": ""}})
    call["id"] = piece.get("id") or call["id"]
    function = piece.get("function")
    for field in ("name", "arguments"):
        if isinstance(function, dict) and isinstance(function.get(field), str):
            call["function"][field] += function[field]
