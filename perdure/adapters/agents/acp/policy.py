"""Our side of the protocol: no files, no terminal, permissions by policy, and the words the agent ends with."""

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
"""Of an agent's last words; an answer that is longer is none."""

CHANGES = ("edit", "delete", "move")
"""Kinds of tools that a step which may only read does not allow; its worktree cannot be changed anyway."""

_ALLOW, _REJECT = ("allow_once", "allow_always"), ("reject_once", "reject_always")


@dataclass
class Policy:
    """Answers what the agent asks of its client; the sandbox holds it, so that everything inside is allowed.

    reads    the step may only read; allowed, refused: permissions given and not, counted
    updates  messages about the session; tools: calls begun; text: what was said since the last of them
    """

    reads: bool = False
    allowed: int = 0
    refused: int = 0
    updates: int = 0
    tools: int = 0
    _words: list[str] = field(default_factory=list)
    _chars: int = 0

    @property
    def text(self) -> str:
        return "".join(self._words).strip()

    def begin(self) -> None:
        """A prompt begins: what was said before it is over."""
        self._words, self._chars = [], 0

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: Sequence[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        allows = not (self.reads and tool_call.kind in CHANGES)
        chosen = choose(options, _ALLOW if allows else _REJECT)
        if allows and chosen is not None:
            self.allowed += 1
        else:
            self.refused += 1
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def session_update(self, session_id: str, update: object, **_: Any) -> None:
        self.updates += 1
        if isinstance(update, ToolCallStart):
            self.tools += 1
            self.begin()
        if isinstance(update, AgentMessageChunk) and isinstance(update.content, TextContentBlock):
            room = TEXT_CHARS - self._chars
            if room > 0:
                self._words.append(update.content.text[:room])
                self._chars += len(self._words[-1])


def choose(options: Sequence[PermissionOption], kinds: Sequence[str]) -> str | None:
    """The id of an option of the first of these kinds that is there; None: of none.

    Of several of one kind the one whose id says "once" counts: another may switch a mode for good (Qwen Code has two).
    """
    for kind in kinds:
        found = [str(option.option_id) for option in options if option.kind == kind]
        if found:
            return next((id for id in found if "once" in id.lower()), found[0])
    return None
