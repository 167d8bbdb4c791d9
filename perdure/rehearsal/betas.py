"""Parameters that the Messages API takes only with a beta's header, in the shapes that agents send."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.rehearsal.wire import Message, Request, invalid

CONTEXT = "context-management-"
TOOLS_LATER = "advanced-tool-use-"
SYSTEM_LATER = "mid-conversation-tool-changes-"
PER_TURN = "per-turn-control-"
UPDATES = "thinking-display-updates-"
BINDING = "thinking-binding-controls-"
COMPACTION = "compact-2026-09-"
"""The beginnings of the betas' names; their dates change."""


def check_betas(request: Request, headers: Mapping[str, str]) -> None:
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


def without_system_turns(request: Request) -> Request:
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
