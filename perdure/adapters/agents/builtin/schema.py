"""JSON schemas as the Messages API takes them: objects closed, nothing it would ignore."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from pydantic import BaseModel

_UNSUPPORTED = ("title", "default", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "pattern")


def closed(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a model, without importing the Anthropic library (1.3 s) for its `transform_schema`."""
    return deepcopy(_made(model))


@cache
def _made(model: type[BaseModel]) -> dict[str, Any]:
    """Once a model: every turn asks for those of all its tools."""
    return _clean(model.model_json_schema())


def _clean(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}  # nothing may stand beside a reference
    kept = {name: value for name, value in schema.items() if name not in _UNSUPPORTED}
    if "enum" in kept:
        kept.pop("type", None)
    for name in ("properties", "$defs"):
        if name in kept:
            kept[name] = {key: _clean(value) for key, value in kept[name].items()}
    if "items" in kept:
        kept["items"] = _clean(kept["items"])
    if "anyOf" in kept:
        kept["anyOf"] = [_clean(value) for value in kept["anyOf"]]
    if kept.get("type") == "object":
        kept["additionalProperties"] = False
        if "properties" in kept:  # a field with a default too: the API's grammar makes a model write all of them
            kept["required"] = list(kept["properties"])
    return kept
