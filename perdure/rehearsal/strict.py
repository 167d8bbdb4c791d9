"""The API's refusals about a request as a whole; rules about the conversation are in `dialogue`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from perdure.rehearsal.cache import image_problem, tokens_of
from perdure.rehearsal.reply import is_genuine
from perdure.rehearsal.schema import schema_problem
from perdure.rehearsal.wire import (
    CacheControl,
    Media,
    Message,
    Refused,
    Request,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    invalid,
)
from perdure.rehearsal.wires.base import Json, bearer, body_of, first_problem

MAX_BREAKPOINTS = 4
_SAMPLING = ("temperature", "top_p", "top_k")

CONTEXT = "context-management-"
TOOLS_LATER = "advanced-tool-use-"
SYSTEM_LATER = "mid-conversation-tool-changes-"
PER_TURN = "per-turn-control-"
UPDATES = "thinking-display-updates-"
BINDING = "thinking-binding-controls-"
COMPACTION = "compact-2026-09-"
"""The beginnings of the betas' names; their dates change."""


def parse(raw: bytes, headers: Mapping[str, str], scripted_tools: frozenset[str]) -> Request:
    """A request the API would take. Raises Refused with the status and type the API would answer with.

    `scripted_tools` are names a model in this screenplay makes up: they may stand in a conversation unoffered.
    """
    _authenticated(headers)
    if not headers.get("anthropic-version"):
        raise invalid("anthropic-version: header is required")
    body = body_of(raw)
    for name in _SAMPLING:
        if name in body:
            raise invalid(f"`{name}` is deprecated for this model")
    request = _shaped(body)
    _check_betas(request, headers)
    request = _without_system_turns(request)
    _check_choices(request)
    _check_tools(request)
    _check_breakpoints(request)
    check_dialogue(request, scripted_tools)
    return request


def count(raw: bytes, headers: Mapping[str, str]) -> int:
    """The tokens of a prompt, for POST /v1/messages/count_tokens. Refused as in `parse`, but for max_tokens."""
    _authenticated(headers)
    request = _shaped({"max_tokens": 1, **body_of(raw)})
    blocks = (block for message in request.messages for block in message.content)
    return sum(map(tokens_of, (*request.tools, *request.system, *blocks)))


def _shaped(body: Json) -> Request:
    try:
        return Request.model_validate(body)
    except ValidationError as error:
        where, message, _ = first_problem(error)
        raise invalid(f"{where}: {message}") from None


def _authenticated(headers: Mapping[str, str]) -> None:
    if not bearer(headers) and not headers.get("x-api-key", "").strip():
        raise Refused(401, "authentication_error", "x-api-key header is required")


def _check_betas(request: Request, headers: Mapping[str, str]) -> None:
    """Raise Refused, in the words for an unknown parameter, where a beta is used without its header."""
    named = [name.strip() for name in headers.get("anthropic-beta", "").split(",")]

    def on(beta: str) -> bool:
        return any(name.startswith(beta) for name in named)

    if request.context_management is not None and not on(CONTEXT):
        raise invalid("context_management: Extra inputs are not permitted")
    if request.compaction is not None:
        if not on(COMPACTION):
            raise invalid("compaction: Extra inputs are not permitted")
        if request.context_management is not None or request.json_schema is not None or request.stop_sequences:
            raise invalid(
                "compaction: cannot be combined with context_management, stop_sequences or output_config.format"
            )
    if request.thinking is not None and request.thinking.display == "updates" and not on(UPDATES):
        raise invalid("thinking.display: Input should be 'summarized' or 'omitted'")
    if request.thinking is not None and request.thinking.block_binding is not None and not on(BINDING):
        raise invalid("thinking.block_binding: Extra inputs are not permitted")
    for index, tool in enumerate(request.tools):
        if tool.defer_loading is not None and not on(TOOLS_LATER):
            raise invalid(f"tools.{index}.defer_loading: Extra inputs are not permitted")
    for index, message in enumerate(request.messages):
        if message.output_config is not None and not on(PER_TURN):
            raise invalid(f"messages.{index}.output_config: Extra inputs are not permitted")
        setting = message.output_config is not None and not message.content
        if message.role == "system" and not on(SYSTEM_LATER) and not setting:
            raise invalid(f"messages.{index}.role: Input should be 'user' or 'assistant'")


def _without_system_turns(request: Request) -> Request:
    """The request with each system message among the conversation as words to the user's message before or after it."""
    if all(message.role != "system" for message in request.messages):
        return request
    turns: list[Message] = []
    for message in request.messages:
        role = "assistant" if message.role == "assistant" else "user"
        if turns and role == "user" and turns[-1].role == "user":
            turns[-1] = turns[-1].model_copy(update={"content": [*turns[-1].content, *message.content]})
        else:
            turns.append(message.model_copy(update={"role": role}))
    return request.model_copy(update={"messages": turns})


def _check_choices(request: Request) -> None:
    choice, thinking = request.tool_choice, request.thinking
    if choice and not request.tools:
        raise invalid("tool_choice: may only be specified while providing tools")
    if choice and choice.type in ("any", "tool"):
        raise invalid(f"tool_choice: forced tool use (type '{choice.type}') is not supported by this model")
    if thinking and (thinking.type == "enabled") != (thinking.budget_tokens is not None):
        raise invalid("thinking.budget_tokens: required by type 'enabled', and by no other")
    if thinking and thinking.budget_tokens and thinking.budget_tokens >= request.max_tokens:
        raise invalid("thinking.budget_tokens: must be less than max_tokens")
    if request.json_schema is not None and (problem := schema_problem(request.json_schema)):
        raise invalid(f"output_config.format.schema: {problem}")


def _check_tools(request: Request) -> None:
    names = [tool.name for tool in request.tools]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise invalid(f"tools: Tool names must be unique: {repeated[0]}")


def _check_breakpoints(request: Request) -> None:
    marks = [*_explicit_marks(request), *([request.cache_control] if request.cache_control else [])]
    if len(marks) > MAX_BREAKPOINTS:
        raise invalid(
            f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {len(marks)}."
            + (" (top-level cache_control counts as one)" if request.cache_control else "")
        )
    if [mark.ttl for mark in marks] != sorted((mark.ttl for mark in marks), key=("1h", "5m").index):
        raise invalid("cache_control: a ttl='1h' block must not come after a ttl='5m' block")


def _explicit_marks(request: Request) -> Iterator[CacheControl]:
    blocks = (block for message in request.messages for block in message.content)
    for part in (*request.tools, *request.system, *blocks):
        if mark := getattr(part, "cache_control", None):
            yield mark


def check_dialogue(request: Request, scripted_tools: frozenset[str]) -> None:
    """Raise Refused for the first thing the API would not take; `scripted_tools` may be used without being offered."""
    offered = {tool.name for tool in request.tools} | scripted_tools
    images = sum(isinstance(block, Media) for message in request.messages for block in message.content)
    asked: list[str] = []
    seen: set[str] = set()
    for number, message in enumerate(request.messages):
        at = f"messages.{number}"
        _check_role(message, number, at)
        _check_blocks(message, images, at)
        if message.role == "user":
            _check_results(message, asked, at)
            asked = []
            continue
        asked = [block.id for block in message.content if isinstance(block, ToolUse)]
        for index, block in enumerate(message.content):
            if isinstance(block, ToolUse):
                _check_use(block, offered, bool(request.tools), seen, f"{at}.content.{index}.tool_use")
            elif isinstance(block, Thinking) and not is_genuine(request.model, block):
                raise invalid(
                    f"{at}.content.{index}: Invalid `signature` in `thinking` block: thinking blocks must be returned "
                    "unmodified, to the model that wrote them"
                )
    if request.messages[-1].role != "user":
        raise invalid(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )


def _check_role(message: Message, number: int, at: str) -> None:
    expected = ("user", "assistant")[number % 2]
    if message.role != expected:
        raise invalid(
            f"{at}: roles must alternate between 'user' and 'assistant', starting with 'user'; "
            f"expected '{expected}', found '{message.role}'"
        )
    if not message.content:
        raise invalid(f"{at}: all messages must have non-empty content")
    ours = (Text, Media, ToolResult)
    for index, block in enumerate(message.content):
        if message.role == "user" and not isinstance(block, ours):
            raise invalid(f"{at}.content.{index}: `{block.type}` blocks can only be in `assistant` messages")
        if message.role == "assistant" and isinstance(block, Media | ToolResult):
            raise invalid(f"{at}.content.{index}: `{block.type}` blocks can only be in `user` messages")


def _check_blocks(message: Message, images: int, at: str) -> None:
    for index, block in enumerate(message.content):
        if isinstance(block, Text) and not block.text.strip():
            raise invalid(f"{at}.content.{index}: text content blocks must contain non-whitespace text")
        if isinstance(block, Media) and (problem := image_problem(block, images)):
            raise invalid(f"{at}.content.{index}.image.{problem}")


def _check_results(message: Message, asked: list[str], at: str) -> None:
    results = [block.tool_use_id for block in message.content if isinstance(block, ToolResult)]
    if unanswered := [use for use in asked if use not in results]:
        raise invalid(
            f"{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(unanswered)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )
    for index, block in enumerate(message.content):
        if not isinstance(block, ToolResult):
            continue
        if block.tool_use_id not in asked:
            raise invalid(
                f"{at}.content.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {block.tool_use_id}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if results.count(block.tool_use_id) > 1:
            raise invalid(f"{at}.content.{index}: each tool_use must have a single result: {block.tool_use_id}")
        if index >= len(results):
            raise invalid(f"{at}.content.{index}: `tool_result` blocks must come first in the user message")


def _check_use(block: ToolUse, offered: set[str], any_tools: bool, seen: set[str], at: str) -> None:
    if not any_tools:
        raise invalid("tools: requests which include `tool_use` or `tool_result` blocks must define tools")
    if block.name not in offered:
        raise invalid(f"{at}.name: tool '{block.name}' is not among the tools of this request")
    if block.id in seen:
        raise invalid(f"{at}.id: `tool_use` ids must be unique: {block.id}")
    seen.add(block.id)
