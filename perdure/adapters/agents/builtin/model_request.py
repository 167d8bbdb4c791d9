"""One request to the Messages API and its reply, as data that can be hashed, stored and read again."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import struct
from dataclasses import dataclass, replace
from typing import Any

from perdure.adapters.agents.prices import BYTES_PER_TOKEN, worst_price
from perdure.models.ledger import Usage

PIXELS_PER_TOKEN = 750
"""Pixels of an image that the model's API counts as a token; larger ones are scaled down before: this is the most."""


_CACHED = {"type": "ephemeral"}
_CACHED_1H = {"type": "ephemeral", "ttl": "1h"}

_ADAPTIVE = re.compile(r"claude-(?:(?:opus|sonnet)-4-[6-9]|(?:opus|sonnet|haiku|fable|mythos)-5)(?:-\d+)*")
"""Models that take adaptive thinking; others, and names of gateways, are asked without."""

COMPACTION = "compact-2026-09-04"
"""The beta with which the API sums a conversation up."""

_NOTHING = {"type": "text", "text": "(no answer)"}

USER_BREAKPOINTS = 2
"""Previous user messages that are marked, so that many parallel tool results do not push the last mark out of the
20 blocks the cache looks back (94 % of input read from the cache with one call a turn, 91 % with twelve)."""


@dataclass(frozen=True)
class ModelRequest:
    """One request; pure data.

    effort    low to max, None for the model's default
    tools     tool definitions, in a constant order
    messages  roles alternating, beginning with the user's; without cache marks, as checkpoints hold them
    schema    JSON schema the answer has to follow, None for free text
    hour      what is sent is kept for an hour, not five minutes: it costs twice as much as new input to write, and that
              is less than writing all of it again after a wait
    after     id of the conversation's last reply: the API says why the cache did not find what was sent with it; None:
              not asked
    compact   the reply is to be a summary of the conversation, nothing else
    """

    model: str
    max_tokens: int
    effort: str | None
    system: str
    tools: tuple[dict[str, Any], ...]
    messages: tuple[dict[str, Any], ...]
    schema: dict[str, Any] | None
    hour: bool = False
    after: str | None = None
    compact: bool = False

    @property
    def _mark(self) -> dict[str, str]:
        return _CACHED_1H if self.hour else _CACHED

    def body(self) -> dict[str, Any]:
        """The arguments of `messages.stream`, equal bytes for equal questions; of the beta's, for a summary.

        Cache marks, four at most: the system prompt, the last block (the top-level mark) and the ends of the
        previous user messages. Keys inside messages are sorted, because a transcript that was stored and read
        again must give the same bytes as one that was not; tools and schema keep their order, which a model follows.
        """
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": [{"type": "text", "text": self.system, "cache_control": self._mark}],
            "messages": self._marked(),
            "cache_control": self._mark,
        }
        if self.tools:
            body["tools"] = list(self.tools)
        if _ADAPTIVE.fullmatch(self.model):
            body["thinking"] = {"type": "adaptive", "display": "summarized"}
        output: dict[str, Any] = {}
        if self.effort is not None:
            output["effort"] = self.effort
        if self.schema is not None and not self.compact:
            output["format"] = {"type": "json_schema", "schema": self.schema}
        if output:
            body["output_config"] = output
        if self.compact:
            return {**body, "compaction": {"type": "summarize"}, "betas": [COMPACTION]}
        if self.after is not None:
            body["diagnostics"] = {"previous_message_id": self.after}
        return body

    def key(self) -> str:
        """SHA-256 of the request, in hex: equal for equal requests, in any process. `after` changes no reply, and one
        process may know it and another not."""
        return hashlib.sha256(canonical(replace(self, after=None).body())).hexdigest()

    def _marked(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = [_sendable(message) for message in self.messages]
        users = [i for i, message in enumerate(messages) if message["role"] == "user"]
        for i in users[-1 - USER_BREAKPOINTS : -1]:
            content = messages[i]["content"]
            messages[i]["content"] = [*content[:-1], {**content[-1], "cache_control": self._mark}]
        return messages


def upper_bound(question: ModelRequest) -> float | None:
    """The most this request can cost in US dollars; None when the model's price is not known."""
    return worst_price(question.model, _prompt_bytes(question), question.max_tokens, hour=question.hour)


def most_tokens(question: ModelRequest) -> int:
    """The most tokens that this request and its reply can have together."""
    return -(-_prompt_bytes(question) // BYTES_PER_TOKEN) + question.max_tokens


def _prompt_bytes(question: ModelRequest) -> int:
    """As if all of it were text. A picture costs what its pixels cost, not what its base64 would as text."""
    body = question.body()
    tokens = 0
    for message in body["messages"]:
        for place, block in enumerate(message["content"]):
            if block["type"] == "image" and (pixels := _pixels(block["source"]["data"])):
                tokens += -(-pixels // PIXELS_PER_TOKEN)
                message["content"][place] = {"type": "image"}
    size = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))
    return size + tokens * BYTES_PER_TOKEN


def _pixels(data: str) -> int:
    """Of a PNG in base64, from its first 24 bytes; 0 when they are not one's, and it counts as text."""
    try:
        start = base64.b64decode(data[:32], validate=True)
    except binascii.Error:
        return 0
    if len(start) != 24 or start[:8] != b"\x89PNG\r\n\x1a\n" or start[12:16] != b"IHDR":
        return 0
    width, height = struct.unpack(">II", start[16:])
    return int(width) * int(height)


@dataclass(frozen=True)
class Reply:
    """A whole reply: what is written down before its tools run.

    message      {"role": "assistant", "content": [blocks as they came]}
    stop_reason  of the API; never empty, a reply without one is a cut stream
    model        that answered
    usage        with its price where that is known
    request_id   of the API, for its support
    detail       what the API says about a refusal, or empty
    id           of the message, for `ModelRequest.after`; empty in those that an older release wrote down
    missed       the API's reason why its cache did not have what was sent before, or empty
    """

    message: dict[str, Any]
    stop_reason: str
    model: str
    usage: Usage
    request_id: str | None = None
    detail: str = ""
    id: str = ""
    missed: str = ""

    @property
    def summary(self) -> str:
        """Of the conversation, where that was asked for; empty where there is none."""
        blocks = self.message["content"]
        return next((str(block.get("content") or "") for block in blocks if block.get("type") == "compaction"), "")

    def to_json(self) -> str:
        """Equal texts for equal replies; `from_json` gives the reply back."""
        return canonical({**vars(self), "usage": self.usage.model_dump(mode="json")}).decode()

    @classmethod
    def from_json(cls, data: str) -> Reply:
        """ValueError or KeyError when this is not the text of a reply."""
        fields = json.loads(data)
        return cls(
            message=fields["message"],
            stop_reason=fields["stop_reason"],
            model=fields["model"],
            usage=Usage.model_validate(fields["usage"]),
            request_id=fields["request_id"],
            detail=fields["detail"],
            id=fields.get("id", ""),
            missed=fields.get("missed", ""),
        )


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _sendable(message: dict[str, Any]) -> dict[str, Any]:
    """A copy with sorted keys that the API takes: it refuses empty texts and empty messages that it sent itself."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    kept = [block for block in blocks if block.get("type") != "text" or block["text"].strip()]
    clean: list[dict[str, Any]] = json.loads(canonical(kept or [_NOTHING]))
    return {"role": message["role"], "content": clean}
