"""The API's refusals about a conversation: roles, tool calls and their results, thinking."""

from __future__ import annotations

from perdure.rehearsal.media import image_problem
from perdure.rehearsal.refused import invalid
from perdure.rehearsal.thinking import is_genuine
from perdure.rehearsal.wire import Media, Message, Request, Text, Thinking, ToolResult, ToolUse


def check_dialogue(request: Request, scripted_tools: frozenset[str]) -> None:
    """Raise Refused for the first thing the API would not take; `scripted_tools` may be used without being offered."""
    offered = {tool.name for tool in request.tools} | scripted_tools
    images = sum(isinstance(block, Media) for message in request.messages for block in message.content)
    asked: list[str] = []
    seen: set[str] = set()
    for number, message in enumerate(request.messages):
        at = f"messages.{number}"
        _check_role(message, number, at)
        _check_text(message, at)
        _check_images(message, images, at)
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


def _check_text(message: Message, at: str) -> None:
    for index, block in enumerate(message.content):
        if isinstance(block, Text) and not block.text.strip():
            raise invalid(f"{at}.content.{index}: text content blocks must contain non-whitespace text")


def _check_images(message: Message, images: int, at: str) -> None:
    for index, block in enumerate(message.content):
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
