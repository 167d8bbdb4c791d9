"""A message nobody here can read, as a value: to be refused in words instead of being tried for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unreadable:
    """`why`: one line, such as "no valid JSON" or an encoding that this engine does not know."""

    why: str


_WORDS: dict[type, str] = {
    bool: "true or false",
    str: "a string",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
    bytes: "bytes",
    type(None): "null",
}


def kind_of(value: object) -> str:
    """Name the sort of thing sent, as people who write JSON call it; why, where it cannot be read at all."""
    if isinstance(value, Unreadable):
        return f"what cannot be read: {value.why}"
    return _WORDS.get(type(value), type(value).__name__)


def a_number(value: Any) -> Any:
    """Itself, before pydantic would take a string or a switch for a number. ValueError for these."""
    if isinstance(value, bool | str):
        raise ValueError(f"is {kind_of(value)}: write a number")
    return value
