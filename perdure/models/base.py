"""Base classes of models: those kept in Temporal history, those written by people or agents, those read by other
programs; and checks of raw values for pydantic's validators."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer
from pydantic_core import PydanticSerializationError

Json = dict[str, Any]
"""A JSON object."""

Message = Json
"""A message of a conversation with a model, in the shape of the Messages API."""


class LazyModel(BaseModel):
    """A model whose validator is built at its first use, or by `build_models`.

    A command that imports the client uses a dozen of its two hundred models; to build the others took a tenth of its
    time. So a default is `Model.model_construct()`, which is equal to `Model()` and builds nothing.
    """

    model_config = ConfigDict(defer_build=True)


def build_models() -> None:
    """Build the validators of all models that are loaded, as a worker does before its first task: not within one, and
    once for all processes that are forked from it."""
    waiting = [LazyModel]
    while waiting:
        model = waiting.pop()
        model.model_rebuild()
        waiting += model.__subclasses__()


class HistoryModel(LazyModel):
    """A model that is kept in Temporal history.

    Rules for changing one: optional additions only, no renames, no new required fields: a delivery that has waited for
    weeks is replayed by newer code. Unknown fields are ignored for the same reason. Fields at their default are left
    out of the JSON, which keeps a turn near 1.1 KB of history; those in `always_written` never are.
    """

    always_written: ClassVar[frozenset[str]] = frozenset()

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, serialize_by_alias=True)

    @model_serializer(mode="wrap")
    def _omit_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the serialized fields, by alias when they have one, without those at their default; required fields
        always stay."""
        data: dict[str, Any] = handler(self)
        return {
            key: data[key]
            for name, field in type(self).model_fields.items()
            if (key := field.alias if field.alias in data else name) in data
            and (
                field.is_required()
                or name in self.always_written
                or getattr(self, name) != field.get_default(call_default_factory=True)
            )
        }


class SignalModel(HistoryModel):
    """The argument of a signal that workflows of Perdure send each other. Any client can send one, too: what cannot be
    read as one is ignored by the workflow that gets it, and no error."""

    model_config = ConfigDict(allow_inf_nan=False)


ContractHash = Annotated[str, Field(alias="policy")]
"""SHA-256 of the artifact that is a delivery's Contract. On the wire and in every history its name is `policy`, so that
workers of different releases understand each other."""


_Model = TypeVar("_Model", bound=BaseModel)


def read_as(model: type[_Model], value: object) -> _Model | None:
    """Return what some client has stored (memo, request, result, signal) as an object of this model, or None where it
    is none: anybody may have written it."""
    try:
        return model.model_validate(value)
    except ValidationError:
        return None


class PublishedModel(LazyModel):
    """A model that other programs read: every field is always present, in the documented order."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, serialize_by_alias=True)

    def to_json(self) -> bytes:
        """Return the model as JSON that can be read back; `?` stands for what UTF-8 cannot hold, such as bytes of a
        file's name."""
        try:
            return self.model_dump_json().encode()
        except PydanticSerializationError:
            return json.dumps(self.model_dump(mode="json"), ensure_ascii=False).encode(errors="replace")


class UserInputModel(LazyModel):
    """A model that people or agents write: an unknown field is an error that names the field, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)


@dataclass(frozen=True)
class UnreadableValue:
    """A payload that could not be decoded. `reason`: one line, such as "no valid JSON" or an unknown encoding."""

    reason: str


_JSON_TYPE_NAMES: dict[type, str] = {
    bool: "true or false",
    str: "a string",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
    bytes: "bytes",
    type(None): "null",
}


def json_type_name(value: object) -> str:
    """Return the type of a value in the words of people who write JSON, such as "a list"; for an UnreadableValue, why
    it cannot be read; for any other type, its Python name."""
    if isinstance(value, UnreadableValue):
        return f"what cannot be read: {value.reason}"
    return _JSON_TYPE_NAMES.get(type(value), type(value).__name__)


def require_number(value: Any) -> Any:
    """Return the value itself, for use as a pydantic validator. Raises ValueError for a string or a bool, which
    pydantic would accept as a number; other wrong types are left to pydantic."""
    if isinstance(value, bool | str):
        raise ValueError(f"is {json_type_name(value)}: write a number")
    return value


NON_BLANK = r"[^ \t\r\n]"
"""Pattern of a character that each command must contain: a shell that is given only blanks runs nothing and
succeeds."""


def require_not_blank(value: Any) -> Any:
    """Return the value itself. Raises ValueError for a blank string, clearer than pydantic's error about NON_BLANK."""
    if isinstance(value, str) and not value.strip(" \t\r\n"):
        raise ValueError("is blank: write a command, or leave it out")
    return value
