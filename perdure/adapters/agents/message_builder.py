"""A reply of the Messages API that comes as a stream of events, put together without the vendor's library: that takes
a tool's input it cannot parse for a broken stream. Used by the built-in agent's client and by the proxy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.models.base import Json
from perdure.models.limits import TOKENS_MOST

_TEXT_FIELDS = {"text_delta": "text", "thinking_delta": "thinking"}


class MessageBuilder:
    """The message that the events of a stream build up, as JSON objects. What no event says is left out; events that
    nothing is known of are ignored.

    message    the message without its content; None: it has not begun
    has_ended  the stream has said that the message is whole
    """

    def __init__(self, make_call: Callable[[Json, str | None], Json]) -> None:
        """`make_call` returns the block of a tool call, made of the block as it began and of its input's text; None:
        none came."""
        self._make_call = make_call
        self.message: Json | None = None
        self.has_ended = False
        self._blocks: dict[int, Json] = {}
        self._inputs: dict[int, str] = {}

    def add(self, event: Json) -> str:
        """Add an event, and return the text that it adds to the reply; empty: none."""
        kind, index = event.get("type"), event.get("index")
        position = index if isinstance(index, int) else len(self._blocks)
        if kind == "message_start" and self.message is None:
            self.message = dict(json_object(event.get("message")))
        elif kind == "content_block_start":
            self._blocks[position] = dict(json_object(event.get("content_block")))
            return _text(self._blocks[position].get("text"))
        elif kind == "content_block_delta":
            return self._add_delta(position, json_object(event.get("delta")))
        elif kind == "message_delta" and self.message is not None:
            usage = {name: value for name, value in json_object(event.get("usage")).items() if value is not None}
            usage = {**json_object(self.message.get("usage")), **usage}
            self.message |= {**json_object(event.get("delta")), "usage": usage}
        elif kind == "message_stop":
            self.has_ended = True
        return ""

    def _add_delta(self, position: int, delta: Json) -> str:
        """Add a piece of a block, and return the text that it adds to the reply. A block that has not begun begins."""
        kind = delta.get("type")
        block = self._blocks.setdefault(position, {"type": "tool_use" if kind == "input_json_delta" else "text"})
        if kind == "input_json_delta":
            self._inputs[position] = self._inputs.get(position, "") + _text(delta.get("partial_json"))
        elif kind in ("signature_delta", "compaction_delta"):
            block |= {name: value for name, value in delta.items() if name != "type"}
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta.get("citation")]
        elif isinstance(kind, str) and kind in _TEXT_FIELDS:
            name = _TEXT_FIELDS[kind]
            block[name] = _text(block.get(name)) + _text(delta.get(name))
        return _text(delta.get("text")) if kind == "text_delta" else ""

    def content(self) -> list[Json]:
        """Return the content's blocks, in order. The text of a text block is a text, whatever came."""
        blocks = []
        for position in sorted(self._blocks):
            block = self._blocks[position]
            if block.get("type") == "tool_use":
                block = self._make_call(block, self._inputs.get(position))
            elif block.get("type") == "text":
                block = {**block, "text": _text(block.get("text"))}
            blocks.append(block)
        return blocks


def json_object(value: Any) -> Json:
    """Return a value that is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def token_count(value: object) -> int:
    """Return a number of tokens as an API gives it, TOKENS_MOST at most; 0 for everything that is no positive
    integer."""
    return min(value, TOKENS_MOST) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _text(value: Any) -> str:
    """Return a value that is a text, else an empty one."""
    return value if isinstance(value, str) else ""
