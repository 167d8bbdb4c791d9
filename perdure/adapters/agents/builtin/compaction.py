"""Shortening of a conversation that fills its model's window: it starts again with its opening, a summary, the change
so far, and the last failure.

That is a turn of its own. The summary is the API's; where it has none, the turn is made without a request, nothing is
paid for it, and the last turns stand in a line each instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.adapters.agents.builtin.tools.ask import ASK
from perdure.adapters.agents.builtin.tools.tool_calls import calls_in, describe_reply, texts_in
from perdure.adapters.agents.builtin.user_messages import is_from_person
from perdure.adapters.agents.text import cut_middle, frame_data
from perdure.models.ledger import Usage

COMPACT_AT = 0.6
"""The share of the window from which on a conversation is made shorter: the rest holds any one turn's results and the
reply to them."""

COMPACT_TURNS = 8
"""Replies that a conversation has before it is made shorter: what fills it sooner is its opening, which stays."""

_SUMMARY_CHARS, _DIFF_CHARS, _FAILURE_CHARS, _LAST_TEXT_CHARS = 60_000, 40_000, 6_000, 2_000
_TURNS_LISTED = 60
"""The most that a shortened conversation has of the work so far, for a beginning of some 20,000 tokens; the files
themselves can be read again."""

COMPACTED = "The conversation up to here has become too long and was cut."
TAKEN_OVER = "The model that worked on this up to here could not go on, and you do so in its place."
"""The sentence that stands where the conversation was cut, and says why."""

_FAILED = re.compile(r"exit code (?!0\b)|killed |ended: ")

Message = dict[str, Any]


def is_window_full(transcript: Sequence[Message], usage: Usage, window: int) -> bool:
    """Return whether a conversation is to be made shorter: its newest turn used COMPACT_AT of the window, and it has
    COMPACT_TURNS replies. `usage`: of that turn; `window`: in tokens."""
    return usage.tokens >= window * COMPACT_AT and _count_replies(transcript) >= COMPACT_TURNS


def can_restart(transcript: Sequence[Message]) -> bool:
    """Return whether there is anything to leave out: the conversation has more than one reply."""
    return _count_replies(transcript) > 1


def compact_transcript(
    transcript: Sequence[Message], diff: str, reason: str = COMPACTED, summary: str = ""
) -> list[Message]:
    """Return the conversation as one user message: its opening as it was, then the summary or the last turns, the
    change so far, the last failure, and all messages from people. Equal input gives equal bytes.

    diff     of the step so far; empty when nothing was changed
    reason   the sentence that says why, such as COMPACTED or TAKEN_OVER; what an earlier one of these two began is
    dropped
    summary  of it all; empty: there is none, and the last turns and the last text of the model stand for it
    """
    opening_blocks = list[dict[str, Any]]()
    for block in transcript[0]["content"]:
        if block.get("type") == "text" and block["text"].startswith((COMPACTED, TAKEN_OVER)):
            break
        opening_blocks.append(block)
    intro = f"{reason} The files are as you left them: go on, and read again what you need."
    if summary:
        texts = [intro, frame_data("summary", cut_middle(summary, _SUMMARY_CHARS))]
    else:
        texts = [f"{intro} What you did last:", frame_data("turns", _last_turns(transcript))]
    texts.append(
        frame_data("diff so far", cut_middle(diff, _DIFF_CHARS)) if diff.strip() else "No file was changed so far."
    )
    if failure := _last_failure(transcript):
        texts.append(frame_data("last failure", cut_middle(failure, _FAILURE_CHARS)))
    if not summary and (last_text := _last_text(transcript)):
        texts.append(frame_data("your last words", cut_middle(last_text, _LAST_TEXT_CHARS)))
    content = [
        *opening_blocks,
        *({"type": "text", "text": text} for text in texts),
        *_people_blocks(transcript, len(opening_blocks)),
    ]
    return [{"role": "user", "content": content}]


def _last_turns(transcript: Sequence[Message]) -> str:
    """Return the newest _TURNS_LISTED replies in a line each, with a line before them that counts the older ones."""
    lines = [f"- {describe_reply(message)}" for message in transcript if message["role"] == "assistant"]
    omitted = [f"- ({len(lines) - _TURNS_LISTED} turns before)"] if len(lines) > _TURNS_LISTED else []
    return "\n".join([*omitted, *lines[-_TURNS_LISTED:]])


def _count_replies(transcript: Sequence[Message]) -> int:
    """Return how many replies of the model a conversation has."""
    return sum(message["role"] == "assistant" for message in transcript)


def _people_blocks(transcript: Sequence[Message], skipped: int) -> Iterator[dict[str, Any]]:
    """Yield every block with a message from a person, as the model has read it; before an answer a block with the
    question it was asked.

    skipped  blocks at the beginning of the first message that are left out
    """
    question = ""
    for index, message in enumerate(transcript):
        if message["role"] == "assistant":
            question = next((str(call["input"]) for call in calls_in(message) if call["name"] == ASK.name), "")
            continue
        for block in message["content"][0 if index else skipped :]:
            if block.get("type") == "text" and is_from_person(block["text"]):
                if question:
                    yield {"type": "text", "text": f"You asked: {frame_data('question', question)}"}
                yield block


def _last_failure(transcript: Sequence[Message]) -> str:
    """Return the newest tool result that is an error, or begins as one of a command that failed or was killed; empty:
    none."""
    for message in reversed(transcript):
        for block in reversed(message["content"] if message["role"] == "user" else ()):
            if block.get("type") != "tool_result" or not isinstance(block.get("content"), str):
                continue
            if block.get("is_error") or _FAILED.match(block["content"]):
                return str(block["content"])
    return ""


def _last_text(transcript: Sequence[Message]) -> str:
    """Return the text of the model's newest reply that has any; empty: none has."""
    texts = ("\n".join(texts_in(message)).strip() for message in reversed(transcript) if message["role"] == "assistant")
    return next(filter(None, texts), "")
