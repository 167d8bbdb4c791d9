"""JSON schemas as the Messages API takes them: objects closed, nothing it would ignore."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from pydantic import BaseModel

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
    closed, all their fields required."""
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
