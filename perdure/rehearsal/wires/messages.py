"""The wire of Anthropic's Messages API, and its refusals: of a request as a whole, and of its conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from perdure.models.base import Json
from perdure.rehearsal.record import image_problem, tokens_of
from perdure.rehearsal.reply import is_genuine_thinking
from perdure.rehearsal.wire import (
    ApiMessage,
    ApiRefusal,
    CacheControl,
    Media,
    Request,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    invalid_request,
    schema_problem,
)
from perdure.rehearsal.wires.base import (
    IncomingRequest,
    ParsedRequest,
    bearer_token,
    event_frame,
    first_problem,
    parse_body,
    split_text,
)

MAX_BREAKPOINTS = 4
_SAMPLING = ("temperature", "top_p", "top_k")

CONTEXT = "context-management-"
TOOLS_LATER = "advanced-tool-use-"
SYSTEM_LATER = "mid-conversation-tool-changes-"
PER_TURN = "per-turn-control-"
UPDATES = "thinking-display-updates-"
BINDING = "thinking-binding-controls-"
COMPACTION = "compact-2026-09-"
"""CONTEXT to COMPACTION: beginnings of the betas' names in the header `anthropic-beta`; their dates change."""


def parse_request(raw: bytes, headers: Mapping[str, str], scripted_tools: frozenset[str]) -> Request:
    """Parse a request of the Messages API. Raises ApiRefusal with the status and type that the API would answer.

    `scripted_tools` are names that a model in this screenplay makes up: they may stand in a conversation unoffered.
    """
    _check_key(headers)
    if not headers.get("anthropic-version"):
        raise invalid_request("anthropic-version: header is required")
    body = parse_body(raw)
    for name in _SAMPLING:
        if name in body:
            raise invalid_request(f"`{name}` is deprecated for this model")
    request = _validate_shape(body)
    _check_betas(request, headers)
    request = _merge_system_turns(request)
    _check_choices(request)
    _check_tools(request)
    _check_breakpoints(request)
    check_dialogue(request, scripted_tools)
    return request


def count_tokens(raw: bytes, headers: Mapping[str, str]) -> int:
    """Count the tokens of a prompt, for POST /v1/messages/count_tokens. `max_tokens` may be missing.

    Raises ApiRefusal without a key, or for a body of another shape.
    """
    _check_key(headers)
    request = _validate_shape({"max_tokens": 1, **parse_body(raw)})
    blocks = (block for message in request.messages for block in message.content)
    return sum(map(tokens_of, (*request.tools, *request.system, *blocks)))


def _validate_shape(body: Json) -> Request:
    """Return the body as a request; raise ApiRefusal, with the place of the problem, when it has another shape."""
    try:
        return Request.model_validate(body)
    except ValidationError as error:
        where, message, _ = first_problem(error)
        raise invalid_request(f"{where}: {message}") from None


def _check_key(headers: Mapping[str, str]) -> None:
    """Raise ApiRefusal (401) where no key was sent; any will do."""
    if not bearer_token(headers) and not headers.get("x-api-key", "").strip():
        raise ApiRefusal(401, "authentication_error", "x-api-key header is required")


def _check_betas(request: Request, headers: Mapping[str, str]) -> None:
    """Raise ApiRefusal where a beta is used without its header, with the API's message for an unknown parameter.

    Also refuses compaction together with what it excludes.
    """
    named = [name.strip() for name in headers.get("anthropic-beta", "").split(",")]

    def has_beta(beta: str) -> bool:
        return any(name.startswith(beta) for name in named)

    if request.context_management is not None and not has_beta(CONTEXT):
        raise invalid_request("context_management: Extra inputs are not permitted")
    if request.compaction is not None:
        if not has_beta(COMPACTION):
            raise invalid_request("compaction: Extra inputs are not permitted")
        if request.context_management is not None or request.json_schema is not None or request.stop_sequences:
            raise invalid_request(
                "compaction: cannot be combined with context_management, stop_sequences or output_config.format"
            )
    if request.thinking is not None and request.thinking.display == "updates" and not has_beta(UPDATES):
        raise invalid_request("thinking.display: Input should be 'summarized' or 'omitted'")
    if request.thinking is not None and request.thinking.block_binding is not None and not has_beta(BINDING):
        raise invalid_request("thinking.block_binding: Extra inputs are not permitted")
    for index, tool in enumerate(request.tools):
        if tool.defer_loading is not None and not has_beta(TOOLS_LATER):
            raise invalid_request(f"tools.{index}.defer_loading: Extra inputs are not permitted")
    for index, message in enumerate(request.messages):
        if message.output_config is not None and not has_beta(PER_TURN):
            raise invalid_request(f"messages.{index}.output_config: Extra inputs are not permitted")
        is_setting = message.output_config is not None and not message.content
        if message.role == "system" and not has_beta(SYSTEM_LATER) and not is_setting:
            raise invalid_request(f"messages.{index}.role: Input should be 'user' or 'assistant'")


def _merge_system_turns(request: Request) -> Request:
    """Return the request with the conversation's system messages merged into the user's messages beside them."""
    if all(message.role != "system" for message in request.messages):
        return request
    turns: list[ApiMessage] = []
    for message in request.messages:
        role = "assistant" if message.role == "assistant" else "user"
        if turns and role == "user" and turns[-1].role == "user":
            turns[-1] = turns[-1].model_copy(update={"content": [*turns[-1].content, *message.content]})
        else:
            turns.append(message.model_copy(update={"role": role}))
    return request.model_copy(update={"messages": turns})


def _check_choices(request: Request) -> None:
    """Raise ApiRefusal for a choice of tool without tools, for any forced tool use, and for a thinking budget or an
    answer schema that the API does not take."""
    choice, thinking = request.tool_choice, request.thinking
    if choice and not request.tools:
        raise invalid_request("tool_choice: may only be specified while providing tools")
    if choice and choice.type in ("any", "tool"):
        raise invalid_request(f"tool_choice: forced tool use (type '{choice.type}') is not supported by this model")
    if thinking and (thinking.type == "enabled") != (thinking.budget_tokens is not None):
        raise invalid_request("thinking.budget_tokens: required by type 'enabled', and by no other")
    if thinking and thinking.budget_tokens and thinking.budget_tokens >= request.max_tokens:
        raise invalid_request("thinking.budget_tokens: must be less than max_tokens")
    if request.json_schema is not None and (problem := schema_problem(request.json_schema)):
        raise invalid_request(f"output_config.format.schema: {problem}")


def _check_tools(request: Request) -> None:
    """Raise ApiRefusal when two tools have the same name."""
    names = [tool.name for tool in request.tools]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise invalid_request(f"tools: Tool names must be unique: {repeated[0]}")


def _check_breakpoints(request: Request) -> None:
    """Raise ApiRefusal for more than MAX_BREAKPOINTS cache breakpoints, or one of 1 h after one of 5 min."""
    marks = [*_explicit_marks(request), *([request.cache_control] if request.cache_control else [])]
    if len(marks) > MAX_BREAKPOINTS:
        raise invalid_request(
            f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {len(marks)}."
            + (" (top-level cache_control counts as one)" if request.cache_control else "")
        )
    if [mark.ttl for mark in marks] != sorted((mark.ttl for mark in marks), key=("1h", "5m").index):
        raise invalid_request("cache_control: a ttl='1h' block must not come after a ttl='5m' block")


def _explicit_marks(request: Request) -> Iterator[CacheControl]:
    """Yield the cache breakpoints of tools, system and messages, in the order of the prompt."""
    blocks = (block for message in request.messages for block in message.content)
    for part in (*request.tools, *request.system, *blocks):
        if mark := getattr(part, "cache_control", None):
            yield mark


def check_dialogue(request: Request, scripted_tools: frozenset[str]) -> None:
    """Raise ApiRefusal for the first thing in the conversation that the API does not take.

    Checked are roles, blocks, tool calls and their results, and thinking signatures. `scripted_tools` may be used
    without being offered.
    """
    offered = {tool.name for tool in request.tools} | scripted_tools
    images = sum(isinstance(block, Media) for message in request.messages for block in message.content)
    call_ids: list[str] = []
    used_ids: set[str] = set()
    for number, message in enumerate(request.messages):
        path = f"messages.{number}"
        _check_role(message, number, path)
        _check_blocks(message, images, path)
        if message.role == "user":
            _check_results(message, call_ids, path)
            call_ids = []
            continue
        call_ids = [block.id for block in message.content if isinstance(block, ToolUse)]
        for index, block in enumerate(message.content):
            if isinstance(block, ToolUse):
                _check_tool_use(block, offered, bool(request.tools), used_ids, f"{path}.content.{index}.tool_use")
            elif isinstance(block, Thinking) and not is_genuine_thinking(request.model, block):
                raise invalid_request(
                    f"{path}.content.{index}: Invalid `signature` in `thinking` block: thinking blocks "
                    "must be returned "
                    "unmodified, to the model that wrote them"
                )
    if request.messages[-1].role != "user":
        raise invalid_request(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


def _check_role(message: ApiMessage, number: int, path: str) -> None:
    """Raise ApiRefusal when a message is out of turn, empty, or has blocks that its role cannot have."""
    expected = ("user", "assistant")[number % 2]
    if message.role != expected:
        raise invalid_request(
            f"{path}: roles must alternate between 'user' and 'assistant', starting with 'user'; "
            f"expected '{expected}', found '{message.role}'"
        )
    if not message.content:
        raise invalid_request(f"{path}: all messages must have non-empty content")
    user_blocks = (Text, Media, ToolResult)
    for index, block in enumerate(message.content):
        if message.role == "user" and not isinstance(block, user_blocks):
            raise invalid_request(f"{path}.content.{index}: `{block.type}` blocks can only be in `assistant` messages")
        if message.role == "assistant" and isinstance(block, Media | ToolResult):
            raise invalid_request(f"{path}.content.{index}: `{block.type}` blocks can only be in `user` messages")


def _check_blocks(message: ApiMessage, images: int, path: str) -> None:
    """Raise ApiRefusal for blank text, and for an image that the API does not take among the request's `images`."""
    for index, block in enumerate(message.content):
        if isinstance(block, Text) and not block.text.strip():
            raise invalid_request(f"{path}.content.{index}: text content blocks must contain non-whitespace text")
        if isinstance(block, Media) and (problem := image_problem(block, images)):
            raise invalid_request(f"{path}.content.{index}.image.{problem}")


def _check_results(message: ApiMessage, call_ids: list[str], path: str) -> None:
    """Raise ApiRefusal unless a user message begins with exactly one result for each call of the message before it."""
    results = [block.tool_use_id for block in message.content if isinstance(block, ToolResult)]
    if unanswered := [use for use in call_ids if use not in results]:
        raise invalid_request(
            f"{path}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(unanswered)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )
    for index, block in enumerate(message.content):
        if not isinstance(block, ToolResult):
            continue
        if block.tool_use_id not in call_ids:
            raise invalid_request(
                f"{path}.content.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {block.tool_use_id}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if results.count(block.tool_use_id) > 1:
            raise invalid_request(
                f"{path}.content.{index}: each tool_use must have a single result: {block.tool_use_id}"
            )
        if index >= len(results):
            raise invalid_request(f"{path}.content.{index}: `tool_result` blocks must come first in the user message")


def _check_tool_use(block: ToolUse, offered: set[str], any_tools: bool, used_ids: set[str], path: str) -> None:
    """Raise ApiRefusal for a call without any tools, of an unoffered tool or with a used id; else add its id to
    `used_ids`.
    """
    if not any_tools:
        raise invalid_request("tools: requests which include `tool_use` or `tool_result` blocks must define tools")
    if block.name not in offered:
        raise invalid_request(f"{path}.name: tool '{block.name}' is not among the tools of this request")
    if block.id in used_ids:
        raise invalid_request(f"{path}.id: `tool_use` ids must be unique: {block.id}")
    used_ids.add(block.id)


class MessagesWire:
    """The wire that the built-in agent and Claude Code speak."""

    def parse_request(self, incoming: IncomingRequest, made_up_tools: frozenset[str]) -> ParsedRequest:
        return ParsedRequest(parse_request(incoming.raw, incoming.headers, made_up_tools))

    def reply_body(self, reply: Json, parsed: ParsedRequest) -> Json:
        return reply

    def reply_frames(self, reply: Json, parsed: ParsedRequest) -> Iterator[bytes]:
        return map(event_frame, message_events(reply))

    def error(self, refused: ApiRefusal, request_id: str) -> Json:
        return refused.error_body(request_id)

    def error_frame(self, refused: ApiRefusal, request_id: str) -> bytes:
        return event_frame(refused.error_body(request_id))


def message_events(message: Json) -> Iterator[Json]:
    """Yield all events of one streamed message, `message_start` to `message_stop`.

    At max_tokens the input of a tool call in last place ends halfway and is not whole JSON.
    """
    usage = message["usage"]
    opening: Json = {"content": [], "stop_reason": None, "stop_details": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": {**message, **opening}}
    yield {"type": "ping"}
    for index, block in enumerate(message["content"]):
        is_cut = message["stop_reason"] == "max_tokens" and index == len(message["content"]) - 1
        opened, deltas = _split_block(block, is_cut)
        yield {"type": "content_block_start", "index": index, "content_block": opened}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    counts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    delta = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    yield {"type": "message_delta", "delta": delta, "usage": {name: usage[name] for name in counts}}
    yield {"type": "message_stop"}


def _split_block(block: Json, is_cut: bool) -> tuple[Json, list[Json]]:
    """Split a block into the empty block that opens it and its deltas; `is_cut`: with half of a tool's input."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in split_text(block["text"])]
        case "tool_use":
            input_json = json.dumps(block["input"], ensure_ascii=False)
            fragments = ["", *split_text(input_json[: len(input_json) // 2] if is_cut else input_json)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in fragments]
        case "compaction":
            return {**block, "content": None}, [{"type": "compaction_delta", "content": block["content"]}]
        case _:
            thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in split_text(block["thinking"])]
            signature = {"type": "signature_delta", "signature": block["signature"]}
            return {**block, "thinking": "", "signature": ""}, [*thoughts, signature]
