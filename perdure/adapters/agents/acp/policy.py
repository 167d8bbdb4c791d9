"""Our side of the protocol: no files, no terminal, permissions by policy, and the text with which the agent ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from acp.schema import (
    AgentMessageChunk,
    AllowedOutcome,
    DeniedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallStart,
    ToolCallUpdate,
)

TEXT_CHARS = 1_000_000
"""The most characters kept of the text with which an agent ends; an answer that is longer is none."""

CHANGES = ("edit", "delete", "move")
"""Kinds of tools that are refused in a step that may only read; its worktree cannot be changed anyway."""

_ALLOW, _REJECT = ("allow_once", "allow_always"), ("reject_once", "reject_always")


@dataclass
class PermissionPolicy:
    """The client of the protocol, as the ACP library calls it: answers permission requests and collects the agent's
    text.

    All is allowed but changes in a step that only reads, because the sandbox holds the agent.

    read_only         the step may only read
    allowed, refused  how many permissions were given and not
    updates           how many updates of the session came; tools: how many tool calls began
    text              what the agent has said since the last tool call
    """

    read_only: bool = False
    allowed: int = 0
    refused: int = 0
    updates: int = 0
    tools: int = 0
    _text_parts: list[str] = field(default_factory=list)
    _chars: int = 0

    @property
    def text(self) -> str:
        """Return what the agent has said since the prompt or its last tool call began."""
        return "".join(self._text_parts).strip()

    def clear_text(self) -> None:
        """Forget the text collected so far, because a prompt or a tool call begins."""
        self._text_parts, self._chars = [], 0

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: Sequence[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        """Answer the agent's request for a permission, and count the answer. Changes of files are refused in a
        read-only step, all else is allowed. Where the agent offers no option for the answer, the reply is "cancelled"
        and counts as refused."""
        is_allowed = not (self.read_only and tool_call.kind in CHANGES)
        option_id = choose_option(options, _ALLOW if is_allowed else _REJECT)
        if is_allowed and option_id is not None:
            self.allowed += 1
        else:
            self.refused += 1
        if option_id is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option_id))

    async def session_update(self, session_id: str, update: object, **_: Any) -> None:
        """Count an update of the session. The start of a tool call clears the collected text; a text message is added
        to it, up to TEXT_CHARS."""
        self.updates += 1
        if isinstance(update, ToolCallStart):
            self.tools += 1
            self.clear_text()
        if isinstance(update, AgentMessageChunk) and isinstance(update.content, TextContentBlock):
            remaining_chars = TEXT_CHARS - self._chars
            if remaining_chars > 0:
                self._text_parts.append(update.content.text[:remaining_chars])
                self._chars += len(self._text_parts[-1])


def choose_option(options: Sequence[PermissionOption], kinds: Sequence[str]) -> str | None:
    """Return the id of an offered option of the first of these kinds that is offered; None when none is.

    Of several options of one kind the first whose id contains "once" is taken, or else the first: another one may
    switch a mode for good (Qwen Code has two).
    """
    for kind in kinds:
        option_ids = [str(option.option_id) for option in options if option.kind == kind]
        if option_ids:
            return next((id for id in option_ids if "once" in id.lower()), option_ids[0])
    return None
