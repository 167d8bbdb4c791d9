"""Misses of the model's cache in the middle of a conversation, named with their reason: they cost ten times a hit."""

from __future__ import annotations

import json
from pathlib import Path

from perdure.adapters.agents.builtin.model import Reply
from perdure.adapters.system.files import write_whole
from perdure.models.turn import TurnInput

MISS_TOKENS = 8192
"""Of a prompt: smaller ones may be too small for a model to cache (2,048 to 4,096 on some), and cost little."""

_FILE = "last-message.json"


def last_message(directory: Path, work: TurnInput) -> str | None:
    """The id of the reply of the turn before this one; None in a first turn, and where another host took it. For
    diagnosis alone: nothing that is decided may depend on it."""
    try:
        found = json.loads((directory / _FILE).read_bytes())
        return str(found["id"]) if found["of"] == _of(work, work.turn - 1) and found["id"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def note_message(directory: Path, work: TurnInput, reply: Reply) -> None:
    """Remember this turn's reply for the next one."""
    write_whole(directory / _FILE, json.dumps({"of": _of(work, work.turn), "id": reply.id}).encode())


def miss(reply: Reply, after: str | None) -> str:
    """The reason for a miss, in words; empty where there was none, or nobody knows what was sent before (`after`)."""
    if after is None or reply.usage.prompt_tokens < MISS_TOKENS:
        return ""
    if reply.missed:
        return f"cache missed: {reply.missed}"
    return "cache missed: expired" if reply.usage.cache_read_tokens == 0 else ""


def _of(work: TurnInput, turn: int) -> list[str | int]:
    return [str(work.step), work.attempt, turn]
