"""A conversation that fills its model's window begins anew: opening, summary, change so far, last failure.

That is a turn of its own. The summary is the API's; where it has none, the turn is made without a request, nothing is
paid for it, and the last turns stand in a line each instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.adapters.agents.builtin.said import is_spoken
from perdure.adapters.agents.builtin.tools.ask import ASK
from perdure.adapters.agents.builtin.tools.run import calls_in, describe, texts_in
from perdure.adapters.agents.text import framed, middle_out
from perdure.models.ledger import Usage

COMPACT_AT = 0.6
"""Of the window: what is left holds any one turn's results and the reply to them."""

COMPACT_TURNS = 8
"""Replies that a conversation has before it is made shorter: what fills it sooner is its opening, which stays."""

_SUMMARY_CHARS, _DIFF_CHARS, _FAILURE_CHARS, _SAID_CHARS = 60_000, 40_000, 6_000, 2_000
_TURNS_TOLD = 60
"""Of the work so far, for a beginning of some 20,000 tokens; the files themselves can be read again."""

COMPACTED = "The conversation up to here has become too long and was cut."
TAKEN_OVER = "The model that worked on this up to here could not go on, and you do so in its place."
"""The beginning of what stands in its place."""

_FAILED = re.compile(r"exit code (?!0\b)|killed |ended: ")

Message = dict[str, Any]


def full(transcript: Sequence[Message], usage: Usage, window: int) -> bool:
    """True where a conversation is to be made shorter. `usage`: of its newest turn; `window`: in tokens."""
    return usage.tokens >= window * COMPACT_AT and _replies(transcript) >= COMPACT_TURNS


def may_begin_anew(transcript: Sequence[Message]) -> bool:
    """True where there is anything to leave out."""
    return _replies(transcript) > 1


def compacted(transcript: Sequence[Message], diff: str, begins: str = COMPACTED, summary: str = "") -> list[Message]:
    """The conversation anew: its first message as it was, then what has become of the work. Equal input, equal bytes.

    diff     of the step so far; empty when nothing was changed
    begins   COMPACTED, or TAKEN_OVER: why
    summary  of it all; empty: there is none
    """
    kept = list[dict[str, Any]]()
    for block in transcript[0]["content"]:
        if block.get("type") == "text" and block["text"].startswith((COMPACTED, TAKEN_OVER)):
            break
        kept.append(block)
    begun = f"{begins} The files are as you left them: go on, and read again what you need."
    if summary:
        texts = [begun, framed("summary", middle_out(summary, _SUMMARY_CHARS))]
    else:
        texts = [f"{begun} What you did last:", framed("turns", _last_turns(transcript))]
    texts.append(
        framed("diff so far", middle_out(diff, _DIFF_CHARS)) if diff.strip() else "No file was changed so far."
    )
    if failure := _last_failure(transcript):
        texts.append(framed("last failure", middle_out(failure, _FAILURE_CHARS)))
    if not summary and (said := _last_words(transcript)):
        texts.append(framed("your last words", middle_out(said, _SAID_CHARS)))
    content = [*kept, *({"type": "text", "text": text} for text in texts), *_of_people(transcript, len(kept))]
    return [{"role": "user", "content": content}]


def _last_turns(transcript: Sequence[Message]) -> str:
    did = [f"- {describe(message)}" for message in transcript if message["role"] == "assistant"]
    left_out = [f"- ({len(did) - _TURNS_TOLD} turns before)"] if len(did) > _TURNS_TOLD else []
    return "\n".join([*left_out, *did[-_TURNS_TOLD:]])


def _replies(transcript: Sequence[Message]) -> int:
    return sum(message["role"] == "assistant" for message in transcript)


def _of_people(transcript: Sequence[Message], kept: int) -> Iterator[dict[str, Any]]:
    """Every word from a person, as it was read; an answer with its question."""
    asked = ""
    for place, message in enumerate(transcript):
        if message["role"] == "assistant":
            asked = next((str(call["input"]) for call in calls_in(message) if call["name"] == ASK.name), "")
            continue
        for block in message["content"][0 if place else kept :]:
            if block.get("type") == "text" and is_spoken(block["text"]):
                if asked:
                    yield {"type": "text", "text": f"You asked: {framed('question', asked)}"}
                yield block


def _last_failure(transcript: Sequence[Message]) -> str:
    for message in reversed(transcript):
        for block in reversed(message["content"] if message["role"] == "user" else ()):
            if block.get("type") != "tool_result" or not isinstance(block.get("content"), str):
                continue
            if block.get("is_error") or _FAILED.match(block["content"]):
                return str(block["content"])
    return ""


def _last_words(transcript: Sequence[Message]) -> str:
    said = ("\n".join(texts_in(message)).strip() for message in reversed(transcript) if message["role"] == "assistant")
    return next(filter(None, said), "")
