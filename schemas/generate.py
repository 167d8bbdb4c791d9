"""From models to schemas: one file a shape, complete in itself, the same bytes every time."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from perdure.models.base import Recorded, Written
from perdure.models.limits import PLACE_CHARS, REQUEST_BYTES, SAID_BYTES
from schemas.catalogue import SHAPES, Shape
from schemas.describe import described
from schemas.guide import guide
from schemas.typescript import declarations

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_ISSUE = r"^\s*(#?[1-9][0-9]{0,9}|[hH][tT][tT][pP][sS]?://[^/\s]+/[^/\s]+/[^/\s]+/[iI][sS][sS][uU][eE][sS]/[1-9][0-9]{0,9}([/?#].*)?)\s*$"

_WINDOW = r"^\s*[0-9]{1,2}:[0-9]{2} *[-–] *[0-9]{1,2}:[0-9]{2}( +\S{1,60})?\s*$"

# What a validator checks and an annotation does not say. A limit in bytes holds at most that many characters.
STRICTER: dict[tuple[str, str], dict[str, Any]] = {
    ("DeliveryRequest", "request"): {"maxLength": REQUEST_BYTES},
    ("DeliveryRequest", "plan"): {"maxLength": REQUEST_BYTES},
    ("DeliveryRequest", "config"): {"maxLength": REQUEST_BYTES},
    ("DeliveryRequest", "issue"): {"maxLength": PLACE_CHARS, "pattern": _ISSUE},
    ("BacklogItem", "request"): {"maxLength": REQUEST_BYTES},
    ("BacklogItem", "issue"): {"maxLength": PLACE_CHARS, "pattern": _ISSUE},
    ("BacklogRequest", "config"): {"maxLength": REQUEST_BYTES},
    ("BacklogRequest", "window"): {"pattern": _WINDOW},
    ("BacklogRequest", "issues"): {"pattern": r"^\s*(label|milestone|search):.*\S"},
    ("AddBudget", "time"): {"pattern": r"^ *([0-9]+(\.[0-9]+)?[smh] *)+$"},
    ("Approve", "note"): {"maxLength": SAID_BYTES},
    ("Reject", "note"): {"maxLength": SAID_BYTES},
    ("Answer", "answer"): {"maxLength": SAID_BYTES},
    ("Say", "text"): {"maxLength": SAID_BYTES},
    ("Decide", "update"): {"enum": ["approve", "reject", "edit_plan", "answer", "add_budget"]},
}

# What no field alone can tell.
WHOLE: dict[str, dict[str, Any]] = {
    "DeliveryRequest": {
        "anyOf": [
            {"required": ["request"], "properties": {"request": {"pattern": r"\S"}}},
            {"required": ["issue"], "properties": {"issue": {"type": ["integer", "string"]}}},
            {
                "required": ["branch", "phases"],
                "properties": {"branch": {"type": "string"}, "phases": {"type": "array", "minItems": 1}},
            },
        ]
    },
    "BacklogItem": {
        "required": [],
        "anyOf": [
            {"required": ["id", "request"], "properties": {"request": {"pattern": r"\S"}}},
            {"required": ["issue"], "properties": {"issue": {"type": ["integer", "string"]}}},
        ],
    },
    "BacklogRequest": {
        "anyOf": [
            {"required": ["items"], "properties": {"items": {"minItems": 1}}},
            {"required": ["issues"], "properties": {"issues": {"type": "string"}}},
        ]
    },
    "AddBudget": {"anyOf": [{"required": ["usd"]}, {"required": ["tokens"]}, {"required": ["time"]}]},
}


class _Generate(GenerateJsonSchema):
    """`sent`: people write it, so an unknown field is a mistake; what we write may have more fields tomorrow."""

    sent = True

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # "Base Sha" says nothing that base_sha does not

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        made = super().model_schema(schema)
        cls: type[BaseModel] = schema["cls"]
        properties: dict[str, dict[str, Any]] = made.get("properties", {})
        text, fields = _told(cls, list(properties))
        made |= {"title": cls.__name__, "description": text, "properties": properties}
        for name, value in properties.items():
            if name in fields and "description" not in value:
                value["description"] = fields[name]
            _tighten(value, STRICTER.get((cls.__name__, name), {}))
        if not self.sent:
            made.pop("additionalProperties", None)
            if not issubclass(cls, Recorded | Written):
                made["required"] = list(properties)
        return {**made, **WHOLE.get(cls.__name__, {})}


class _Read(_Generate):
    sent = False


def _told(cls: type[BaseModel], names: list[str]) -> tuple[str, dict[str, str]]:
    """The class's own description, and what it or the class it comes from says of each field; in JSON's words."""
    text, fields = described(cls.__doc__, names)
    for base in cls.__mro__[1:-1]:
        if issubclass(base, BaseModel) and base is not BaseModel:
            fields = described(base.__doc__, names)[1] | fields
    return _json_words(text), {name: _json_words(words) for name, words in fields.items()}


def _json_words(text: str) -> str:
    return re.sub(r"\b(None|True|False)\b", lambda found: {"None": "null"}.get(found[1], found[1].lower()), text)


def _tighten(value: dict[str, Any], more: dict[str, Any]) -> None:
    """Narrow a field; where it may be null, the other alternative."""
    for place in [part for part in value.get("anyOf", [value]) if part.get("type") == "string"]:
        place.update(more)


FIRST = ("$schema", "title", "description", "type", "enum", "const", "properties", "items", "required")
LAST = ("default", "examples", "$defs")


def _ordered(value: Any) -> Any:
    """As a person reads a schema: what it is, what is in it, the rest."""
    if isinstance(value, list):
        return [_ordered(part) for part in value]
    if not isinstance(value, dict):
        return value
    rest = [key for key in value if key not in FIRST + LAST]
    made = {}
    for key in [*FIRST, *rest, *LAST]:
        if key == "description" and not value.get(key):
            continue
        if key in ("properties", "$defs") and key in value:
            made[key] = {name: _ordered(part) for name, part in value[key].items()}
        elif key in value:
            made[key] = value[key] if key in ("examples", "default") else _ordered(value[key])
    return made


def schema(shape: Shape) -> dict[str, Any]:
    """One shape's schema: dialect, title, description, properties, examples, definitions."""
    generator = _Generate if shape.sent else _Read
    made = shape.model.model_json_schema(mode="validation", schema_generator=generator)
    ordered: dict[str, Any] = _ordered({"$schema": DIALECT, **made, "examples": shape.examples()})
    return ordered


def files() -> dict[str, str]:
    """Path below the repository's root → text, of everything that `make schema` writes."""
    schemas = {shape.name: schema(shape) for shape in SHAPES}
    made = {f"docs/schema/{name}.json": _json(value) for name, value in schemas.items()}
    made["docs/schema/README.md"] = guide(SHAPES)
    made["examples/typescript/perdure.ts"] = declarations(schemas)
    return made


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
