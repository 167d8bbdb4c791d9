"""Kinds of model: what lives in Temporal history, what people write, what others read, what nobody can read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer


class Recorded(BaseModel):
    """A model that is kept in Temporal history.

    Rules for changing one: optional additions only, no renames, no new required fields: a delivery that has
    waited for weeks is replayed by newer code. Unknown fields are ignored for the same reason. Fields at their
    default are left out of the JSON, which keeps a turn near 1.1 KB of history.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, serialize_by_alias=True)

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {
            key: data[key]
            for name, field in type(self).model_fields.items()
            if (key := field.alias if field.alias in data else name) in data
            and (field.is_required() or getattr(self, name) != field.get_default(call_default_factory=True))
        }


ContractHash = Annotated[str, Field(alias="policy")]
"""SHA-256 of the artifact that is a delivery's Contract. On the wire and in every history its name is `policy`, so that
workers of different releases understand each other."""


class Published(BaseModel):
    """A model that other programs read: every field is always present, in the documented order."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Written(BaseModel):
    """A model that people write: an unknown field is a mistake to be named, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)


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


SOMETHING = r"[^ \t\r\n]"
"""A character that each command has: a shell runs nothing of blanks, and that passes."""


def not_blank(value: Any) -> Any:
    """Itself, before pydantic would tell of the pattern. ValueError for blanks."""
    if isinstance(value, str) and not value.strip(" \t\r\n"):
        raise ValueError("is blank: write a command, or leave it out")
    return value
