"""A request to the Messages API and its reply, as data that can be hashed, stored and loaded again; and JSON schemas
as that API takes them: objects closed, nothing it would ignore."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import struct
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

from pydantic import BaseModel

from perdure.adapters.agents.prices import BYTES_PER_TOKEN, max_cost
from perdure.adapters.git.messages import computed_once
from perdure.models.base import Message
from perdure.models.budget.ledger import Usage
from perdure.text import one_line

PIXELS_PER_TOKEN = 750
"""Pixels of an image that the model's API counts as a token; larger images are scaled down before, so this is the
most."""


_CACHED = {"type": "ephemeral"}
_CACHED_1H = {"type": "ephemeral", "ttl": "1h"}

_ADAPTIVE = re.compile(r"claude-(?:(?:opus|sonnet)-4-[6-9]|(?:opus|sonnet|haiku|fable|mythos)-5)(?:-\d+)*")
"""Models that take adaptive thinking; others, and names of gateways, are asked without it."""

COMPACTION = "compact-2026-09-04"
"""The beta with which the API sums a conversation up."""

_NO_ANSWER = {"type": "text", "text": "(no answer)"}

USER_BREAKPOINTS = 2
"""Previous user messages that get a cache mark, so that many parallel tool results do not push the last mark out of the
20 blocks the cache looks back (94 % of input read from the cache with one call a turn, 91 % with twelve)."""


@dataclass(frozen=True)
class ModelRequest:
    """A request; pure data.

    effort    low to max, None for the model's default
    tools     tool definitions, in a constant order
    messages  roles alternating, beginning with the user's; without cache marks, as checkpoints hold them
    schema    JSON schema the answer has to follow, None for free text
    hour      what is sent is cached for an hour, not five minutes: it costs twice as much as new input to write, and
    that
              is less than writing all of it again after a wait
    after     id of the conversation's last reply: the API says why the cache did not find what was sent with it; None:
              the API is not asked
    compact   the reply is to be a summary of the conversation, nothing else
    """

    model: str
    max_tokens: int
    effort: str | None
    system: str
    tools: tuple[dict[str, Any], ...]
    messages: tuple[Message, ...]
    schema: dict[str, Any] | None
    hour: bool = False
    after: str | None = None
    compact: bool = False

    @property
    def _cache_mark(self) -> dict[str, str]:
        """Return the cache mark of a block: for an hour or five minutes."""
        return _CACHED_1H if self.hour else _CACHED

    def body(self) -> bytes:
        """Return the request as JSON, as it is sent to be streamed; equal requests give equal bytes. A summary has no
        schema and does not ask about the cache; empty texts are left out.

        Cache marks, four at most: the system prompt, the last block (the top-level mark) and the ends of the previous
        user messages. Keys inside messages are sorted, because a transcript that was stored and loaded again must give
        the same bytes as one that was not; tools and schema keep their order, which a model follows.
        """
        fields = json.dumps({**self._fields(), "stream": True}, separators=(",", ":")).encode()
        return b'%b,"messages":[%b]}' % (fields[:-1], self._messages.json)

    def key(self) -> str:
        """Return the SHA-256 of the request, in hex: equal for equal requests, in any process. `after` does not count:
        it changes no reply, and one process may know it and another not."""
        fields = replace(self, after=None)._fields() | ({"betas": [COMPACTION]} if self.compact else {})
        before, after = ({k: v for k, v in fields.items() if (k < "messages") is first} for first in (True, False))
        parts = canonical_json(before)[:-1], b',"messages":[', self._messages.json, b"],", canonical_json(after)[1:]
        key = hashlib.sha256()
        for part in parts:  # canonical_json of all of it
            key.update(part)
        return key.hexdigest()

    @property
    def prompt_bytes(self) -> int:
        """Return the size of the request as if all of it were text, in bytes. An image counts as much text as its
        pixels cost in tokens, not as its base64."""
        return _text_bytes({**self._fields(), "messages": []}) + self._messages.text_bytes

    def _fields(self) -> dict[str, Any]:
        """Return the fields of the request but its messages."""
        fields: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": [{"type": "text", "text": self.system, "cache_control": self._cache_mark}],
            "cache_control": self._cache_mark,
        }
        if self.tools:
            fields["tools"] = list(self.tools)
        if _ADAPTIVE.fullmatch(self.model):
            fields["thinking"] = {"type": "adaptive", "display": "summarized"}
        output: dict[str, Any] = {}
        if self.effort is not None:
            output["effort"] = self.effort
        if self.schema is not None and not self.compact:
            output["format"] = {"type": "json_schema", "schema": self.schema}
        if output:
            fields["output_config"] = output
        if self.compact:
            return {**fields, "compaction": {"type": "summarize"}}
        if self.after is not None:
            fields["diagnostics"] = {"previous_message_id": self.after}
        return fields

    @cached_property
    def _messages(self) -> _EncodedMessages:
        """Return the messages as the API takes them, with a cache mark at the end of each of the USER_BREAKPOINTS user
        messages before the newest one. Stored messages without a mark were encoded in the turn in which they were
        new."""
        users = [i for i, message in enumerate(self.messages) if message["role"] == "user"]
        marked = users[-1 - USER_BREAKPOINTS : -1]
        encoded = [
            _encode_message(message, self._cache_mark)
            if i in marked
            else computed_once(message, "request", partial(_encode_message, message))
            for i, message in enumerate(self.messages)
        ]
        return _EncodedMessages(
            b",".join(message.json for message in encoded),
            sum(message.text_bytes for message in encoded) + len(", ") * max(len(encoded) - 1, 0),
        )


@dataclass(frozen=True)
class _EncodedMessages:
    """Messages of a request as JSON, one or several with commas between, and their size as if all of it were text."""

    json: bytes
    text_bytes: int


def _encode_message(message: Message, cache_mark: dict[str, str] | None = None) -> _EncodedMessages:
    """Encode one message, with a cache mark at its end where one is given."""
    clean = _clean_message(message)
    if cache_mark is not None:
        clean["content"][-1]["cache_control"] = cache_mark
    encoded = canonical_json(clean)
    pixels = [_png_pixels(block["source"]["data"]) if block["type"] == "image" else 0 for block in clean["content"]]
    clean["content"] = [
        {"type": "image"} if size else block for block, size in zip(clean["content"], pixels, strict=True)
    ]
    tokens = sum(-(-size // PIXELS_PER_TOKEN) for size in pixels)
    return _EncodedMessages(encoded, _text_bytes(clean) + tokens * BYTES_PER_TOKEN)


def _text_bytes(value: object) -> int:
    """Return the size of a value as readable JSON in UTF-8."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def max_cost_usd(request: ModelRequest) -> float | None:
    """Return the most this request and its reply can cost in US dollars; None when the model's price is not known."""
    return max_cost(request.model, request.prompt_bytes, request.max_tokens, hour=request.hour)


def max_total_tokens(request: ModelRequest) -> int:
    """Return the most tokens that this request and its reply can have together."""
    return -(-request.prompt_bytes // BYTES_PER_TOKEN) + request.max_tokens


def _png_pixels(data: str) -> int:
    """Return the number of pixels of a PNG in base64, from its first 24 bytes; 0 when these are not a PNG's, and it
    counts as text."""
    try:
        header = base64.b64decode(data[:32], validate=True)
    except binascii.Error:
        return 0
    if len(header) != 24 or header[:8] != b"\x89PNG\r\n\x1a\n" or header[12:16] != b"IHDR":
        return 0
    width, height = struct.unpack(">II", header[16:])
    return int(width) * int(height)


@dataclass(frozen=True)
class Reply:
    """A whole reply: it is stored before its tools run.

    message      {"role": "assistant", "content": [blocks as they came]}
    stop_reason  of the API; never empty, a reply without one is a cut stream
    model        that answered
    usage        with its price where that is known
    request_id   of the API, for its support
    detail       what the API says about a refusal, or empty
    id           of the message, for `ModelRequest.after`; empty in replies that an older release stored
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
        """Return the summary of the conversation, where one was requested; empty where there is none."""
        blocks = self.message["content"]
        return next((str(block.get("content") or "") for block in blocks if block.get("type") == "compaction"), "")

    def to_json(self) -> str:
        """Return the reply as JSON: equal texts for equal replies; `from_json` gives the reply back."""
        return canonical_json({**vars(self), "usage": self.usage.model_dump(mode="json")}).decode()

    @classmethod
    def from_json(cls, data: str) -> Reply:
        """Parse a text of `to_json`. Raises ValueError or KeyError when it is not the text of a reply."""
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


def canonical_json(value: object) -> bytes:
    """Return a value as compact JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


UNREADABLE = "unreadable_input"
"""The only fields of a tool call's input that could not be used are this, with the text that came, and `problem`."""


def readable_call(block: dict[str, Any], input_text: str | None, used_ids: set[str]) -> dict[str, Any]:
    """Return a tool call as it can be kept, run and sent again: with an input that is a JSON object (one under
    UNREADABLE where it is not), a name and an id that no other call has, which is added to `used_ids`.

    block       as it came; `input_text`: its input, where that came as a text

    The reply was paid for: what is wrong in it the model gets back as an error, it does not make the reply unusable.
    """
    raw_id = block.get("id")
    call_id = first_id = raw_id if isinstance(raw_id, str) and raw_id else f"call_{len(used_ids)}"
    while call_id in used_ids:
        call_id = f"{first_id}_{len(used_ids)}"
    used_ids.add(call_id)
    try:
        call_input = block.get("input") if input_text is None else json.loads(input_text.strip() or "{}")
        json.dumps(call_input, ensure_ascii=False, allow_nan=False).encode()
        problem = "" if isinstance(call_input, dict) else "it is no JSON object"
    except UnicodeEncodeError:
        problem = "it holds half a character (an unpaired surrogate)"
    except (ValueError, RecursionError) as error:
        problem = f"it is not JSON: {one_line(str(error), 200)}"
    if problem:
        text = repr(block.get("input")) if input_text is None else input_text
        call_input = {UNREADABLE: text[:UNREADABLE_CHARS].encode("utf-8", "replace").decode(), "problem": problem}
    return {"type": "tool_use", "id": call_id, "name": str(block.get("name") or ""), "input": call_input}


UNREADABLE_CHARS = 2000
"""Characters that are kept of an input that could not be read."""


def _clean_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a message, keys sorted, that the API takes: without the empty texts that it sent itself and
    refuses, and with "(no answer)" where nothing else is left."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    full_blocks = [block for block in blocks if block.get("type") != "text" or block["text"].strip()]
    clean: list[dict[str, Any]] = json.loads(canonical_json(full_blocks or [_NO_ANSWER]))
    return {"role": message["role"], "content": clean}


_UNSUPPORTED = ("title", "default", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "pattern")


def closed_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a model, which the caller may change. It is made without importing the Anthropic library
    (1.3 s) for its `transform_schema`."""
    return deepcopy(_cached_schema(model))


@cache
def _cached_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a model, made once: every turn needs those of all its tools."""
    return _clean_schema(model.model_json_schema())


def _clean_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema, and all in it, as the API takes it: without keywords that it does not support, objects
    closed, all their fields required, an enum without its type, nothing beside a reference."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}  # nothing may stand beside a reference
    cleaned = {name: value for name, value in schema.items() if name not in _UNSUPPORTED}
    if "enum" in cleaned:
        cleaned.pop("type", None)
    for name in ("properties", "$defs"):
        if name in cleaned:
            cleaned[name] = {key: _clean_schema(value) for key, value in cleaned[name].items()}
    if "items" in cleaned:
        cleaned["items"] = _clean_schema(cleaned["items"])
    if "anyOf" in cleaned:
        cleaned["anyOf"] = [_clean_schema(value) for value in cleaned["anyOf"]]
    if cleaned.get("type") == "object":
        cleaned["additionalProperties"] = False
        if "properties" in cleaned:  # a field with a default too: the API's grammar makes a model write all of them
            cleaned["required"] = list(cleaned["properties"])
    return cleaned
