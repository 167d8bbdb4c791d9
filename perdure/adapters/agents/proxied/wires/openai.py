"""The two APIs of OpenAI as wires of the proxy: chat completions, that of Qwen Code, opencode and of most servers of
other models, and responses, that of Codex; and what both share: errors, prices, texts, and the refusal of files that
its servers would fetch. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Iterator
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
    make_reply,
    make_request,
    parse_error_answer,
    parse_events,
    parse_object,
    reply_token_limit,
    request_error,
    require_text,
    text_block,
    tool_result_block,
    tool_use_block,
    without_fields,
)
from perdure.adapters.agents.proxied.wires.request_fields import CHAT, RESPONSES, copy_allowed
from perdure.models.base import Json
from perdure.models.budget.ledger import Usage

ID_FIELDS = ("client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "user")
"""Fields that name who asks and in which session: they differ for an agent that is started again."""

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}

_CODE_STATUS = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 402,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
}
"""The status of errors that have none of their own, or one that says less: without credit nobody should try again."""


class ProxiedOpenAIWire:
    """The base of both wires of OpenAI: errors, headers, no pings."""

    forwarded_headers: frozenset[str] = frozenset()
    ping = b""

    def parse_error(self, status: int, body: bytes) -> WireError:
        """Parse an error's body; a used-up quota has status 402 whatever the API sends (429), because it does not pass
        by itself."""
        error, message = parse_error_answer(body)
        code = error.get("code") if isinstance(error, dict) else None
        code = code if isinstance(code, str) else ""
        return WireError(402 if code == "insufficient_quota" else status, code, message)

    def error_body(self, error: WireError) -> Json:
        """Return the error as OpenAI writes it."""
        error_type = _ERROR_TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
        return {"error": {"message": error.message, "type": error_type, "param": None, "code": error.kind or None}}


def reply_error(error: Any) -> WireError:
    """Return the error of a reply that has failed after its beginning, from its field `error`; its status is that of
    its code, or 500."""
    error = error if isinstance(error, dict) else {}
    code = str(error.get("code") or error.get("type") or "server_error")
    return WireError(_CODE_STATUS.get(code, 500), code, str(error.get("message") or code))


def text_blocks(content: Any) -> list[Json]:
    """Return the text blocks of a message's content; a refusal counts as text."""
    if isinstance(content, str):
        return [text_block(content)] if content else []
    parts = content if isinstance(content, list) else []
    part_texts = (part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict))
    return [text_block(part_text) for part_text in part_texts if isinstance(part_text, str)]


def has_standard_price(body: Json) -> bool:
    """Return whether no option of the request changes its price."""
    return body.get("service_tier") in (None, "auto", "default")


def parse_usage(model: str, usage_fields: Any, field_names: tuple[str, str, str], *, price_known: bool) -> Usage:
    """Parse the tokens of a reply from its field `usage`, with their price.

    field_names  the fields of the prompt's tokens, of their details (how many were cached), and of the reply's tokens
    price_known  whether the price table holds; else, or without tokens, the price is unknown
    """
    fields = usage_fields if isinstance(usage_fields, dict) else {}
    input_field, details_field, output_field = field_names
    details = fields.get(details_field)
    cached = token_count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    usage = Usage(
        input_tokens=max(0, token_count(fields.get(input_field)) - cached),
        cache_read_tokens=cached,
        output_tokens=token_count(fields.get(output_field)),
    )
    return usage.model_copy(update={"cost_usd": usage_cost(model, usage) if price_known and usage.tokens else None})


_CHAT_USAGE_FIELDS = ("prompt_tokens", "prompt_tokens_details", "completion_tokens")
_STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


class ProxiedChatWire(ProxiedOpenAIWire):
    """The wire of POST /v1/chat/completions."""

    name = "openai-chat"

    def find_route(self, path: str, query: str) -> Route | None:
        """Return the route of chat completions; None for any other path, or with a query."""
        return Route(path) if path == "/v1/chat/completions" and not query else None

    def parse_request(self, route: Route, body: Json) -> ProxiedRequest:
        """Parse a request for one completion; a stream is also asked to say what it has used.

        Only the fields of CHAT are sent on, and of the tools those that the agent runs itself. Raises WireError without
        a model or messages, for tools or a token limit of a wrong shape, for an `n` other than 1, and for a picture or
        file that is not in the request itself.
        """
        forwarded = copy_allowed(body, CHAT)
        model, messages = require_text(forwarded, "model"), list_objects(forwarded, "messages")
        if not messages:
            raise request_error("messages: at least one message is required")
        if forwarded.get("n") not in (None, 1):
            raise request_error("n: one reply at a time")
        tools = [tool for tool in list_objects(forwarded, "tools") if tool.get("type") in ("function", "custom")]
        if "tools" in forwarded:
            forwarded["tools"] = tools
        completion_limit = forwarded.get("max_completion_tokens")
        max_tokens = reply_token_limit(forwarded.get("max_tokens") if completion_limit is None else completion_limit)
        bounds = RequestBounds.for_request(
            route, model, forwarded, max_tokens, price_known=has_standard_price(forwarded)
        )
        body_without_ids, role_blocks = without_fields(forwarded, *ID_FIELDS), map(_chat_role_and_blocks, messages)
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

        The stop reason is tool_use wherever a tool is called. Raises IncompleteReply for what is no JSON object or was
        cut off, and without a message or a finish reason; WireError for an error inside a stream.
        """
        completion = _completion_from_events(body) if is_stream else parse_object(body)
        choices = completion.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        message, finish_reason = choice.get("message"), choice.get("finish_reason")
        if not isinstance(message, dict) or not isinstance(finish_reason, str):
            raise IncompleteReply("it has no end")
        _, blocks = _chat_role_and_blocks({**message, "role": "assistant"})
        stop_reason = "tool_use" if has_tool_call(blocks) else _STOP_REASONS.get(finish_reason, finish_reason)
        model = str(completion.get("model") or request.model)
        usage = parse_usage(model, completion.get("usage"), _CHAT_USAGE_FIELDS, price_known=request.price_known)
        return make_reply(is_stream, body, usage, blocks, stop_reason)


def _chat_role_and_blocks(message: Json) -> tuple[str, list[Json]]:
    """Return role and blocks of a message, in the shape of our transcripts: a tool's message is a tool_result of the
    user, the assistant's reasoning a thinking block; any other role, as `system`, is the user's."""
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
            raise reply_error(event["error"])
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


_AGENT_TOOL_TYPES = ("function", "custom", "local_shell", "apply_patch", "computer_use_preview")
"""Types of tools that the agent runs itself; some others may be, where they say so."""

_STORED_FIELDS = ("previous_response_id", "conversation", "prompt", "background")
"""Fields that stand for what is stored at the API: the ledger would see, and count, half of the conversation."""

_RESPONSES_USAGE_FIELDS = ("input_tokens", "input_tokens_details", "output_tokens")


class ProxiedResponsesWire(ProxiedOpenAIWire):
    """The wire of POST /v1/responses."""

    name = "openai-responses"
    forwarded_headers = frozenset({"openai-beta"})

    def find_route(self, path: str, query: str) -> Route | None:
        """Return the route of responses; None for any other path, or with a query."""
        return Route(path) if path == "/v1/responses" and not query else None

    def parse_request(self, route: Route, body: Json) -> ProxiedRequest:
        """Parse a request for one response. Only the fields of RESPONSES are sent on, and of the tools those that the
        agent runs itself, among the input's items, too.

        Raises WireError without a model or input, for tools or a token limit of a wrong shape, for a request that
        relies on what is stored at the API (an earlier response, an item by its id), and for a picture or file that is
        not in the request itself.
        """
        if stored_fields := [name for name in _STORED_FIELDS if body.get(name)]:
            raise request_error(f"{stored_fields[0]}: the whole conversation has to be sent")
        forwarded = copy_allowed(body, RESPONSES)
        model, text = require_text(forwarded, "model"), forwarded.get("input")
        items = [{"role": "user", "content": text}] if isinstance(text, str) else list_objects(forwarded, "input")
        if not items:
            raise request_error("input: at least one item is required")
        if any(item.get("type") == "item_reference" for item in items):
            raise request_error("input: items have to be sent, not named by their id")
        for place in (forwarded, *items):
            if "tools" in place:
                parts = map(_agent_part, list_objects(place, "tools"))
                place["tools"] = [part for part in parts if part is not None]
        tools = forwarded.get("tools")
        max_tokens = reply_token_limit(forwarded.get("max_output_tokens"))
        bounds = RequestBounds.for_request(
            route, model, forwarded, max_tokens, price_known=has_standard_price(forwarded)
        )
        body_without_ids = without_fields(forwarded, *ID_FIELDS)
        body_without_ids["input"] = [without_fields(item, "id") for item in items]
        role_blocks, stream = (
            (role_and_blocks for item in items for role_and_blocks in _responses_role_and_blocks(item)),
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

        Raises IncompleteReply for what is no JSON object or was cut off, without output, or with a status that is no
        end; WireError for a response that failed.
        """
        response = _response_from_events(body) if is_stream else parse_object(body)
        if response.get("status") == "failed":
            raise reply_error(response.get("error"))
        output = response.get("output")
        if response.get("status") not in ("completed", "incomplete") or not isinstance(output, list):
            raise IncompleteReply("it has no end")
        items = [item for item in output if isinstance(item, dict)]
        blocks = [
            block
            for item in items
            for _, item_blocks in _responses_role_and_blocks({"role": "assistant", **item})
            for block in item_blocks
        ]
        model = str(response.get("model") or request.model)
        usage = parse_usage(model, response.get("usage"), _RESPONSES_USAGE_FIELDS, price_known=request.price_known)
        return make_reply(is_stream, body, usage, blocks, _stop_reason(response, blocks))


def _agent_part(tool: Json) -> Json | None:
    """Return the part of a tool that the agent runs itself, without what the API's servers would run; None when nothing
    is left. A namespace keeps such tools inside; tool search and shell count where they say that they run at the
    client. Raises WireError for a namespace whose tools are no list of objects."""
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


def _responses_role_and_blocks(item: Json) -> Iterator[tuple[str, list[Json]]]:
    """Yield role and blocks of one item, in the shape of our transcripts: messages, reasoning summaries, calls and
    their outputs; nothing for an item of another type."""
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
            raise reply_error(event.get("error") or event)
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            response = event.get("response")
            if not isinstance(response, dict):
                raise IncompleteReply("its end has no response")
            status = str(kind).removeprefix("response.")
            return {**response, "status": status, "output": response.get("output") or items}
    raise IncompleteReply("it was cut off before its end")
