"""JSON schemas from models: one file a shape, complete in itself, the same bytes every time."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from perdure.models.base import HistoryModel, UserInputModel
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.limits import MESSAGE_BYTES, PLACE_CHARS, REQUEST_BYTES
from schemas.catalogue import SHAPES, PublishedShape
from schemas.describe import parse_docstring
from schemas.golang import build_go
from schemas.guide import build_guide
from schemas.java import build_java
from schemas.simplify import collect_types, simplify_schema
from schemas.typescript import build_typescript

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_ISSUE = r"^\s*(#?[1-9][0-9]{0,9}|[hH][tT][tT][pP][sS]?://[^/\s]+/[^/\s]+/[^/\s]+/[iI][sS][sS][uU][eE][sS]/[1-9][0-9]{0,9}([/?#].*)?)\s*$"

_WINDOW = r"^\s*[0-9]{1,2}:[0-9]{2} *[-–] *[0-9]{1,2}:[0-9]{2}( +\S{1,60})?\s*$"

# Limits that a validator checks and an annotation does not state. A limit in bytes holds at most that many characters.
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
    ("Approve", "note"): {"maxLength": MESSAGE_BYTES},
    ("Reject", "note"): {"maxLength": MESSAGE_BYTES},
    ("Answer", "answer"): {"maxLength": MESSAGE_BYTES},
    ("Say", "text"): {"maxLength": MESSAGE_BYTES},
    ("Decide", "update"): {"enum": ["approve", "reject", "edit_plan", "answer", "add_budget"]},
}

# Names of the enumerations that are no class of their own: where one has none, each generator of types finds another.
ENUM_NAMES: dict[tuple[str, str], str] = {
    ("DeliveryRequest", "gates"): "RequestGate",
    ("BacklogRequest", "gates"): "RequestGate",
    ("BacklogRequest", "land"): "LandingMode",
    ("BacklogRequest", "overlap"): "OverlapRule",
    ("BacklogItem", "decompose"): "DecomposeMode",
    ("LandingPlace", "decompose"): "DecomposeMode",
    ("Decide", "update"): "DecisionUpdate",
    ("WebhookMessage", "event"): "NoticeEvent",
}

# Rules about several fields, which no field alone can state. As a condition, since of alternatives generators of types
# make a type each.
WHOLE: dict[str, dict[str, Any]] = {
    "DeliveryRequest": {
        "if": {
            "anyOf": [
                {"required": ["issue"], "properties": {"issue": {"type": "string"}}},
                {
                    "required": ["branch", "phases"],
                    "properties": {"branch": {"type": "string"}, "phases": {"type": "array", "minItems": 1}},
                },
            ]
        },
        "else": {"required": ["request"], "properties": {"request": {"pattern": r"\S"}}},
    },
    "BacklogItem": {
        "required": [],
        "if": {"required": ["issue"], "properties": {"issue": {"type": "string"}}},
        "else": {"required": ["id", "request"], "properties": {"request": {"pattern": r"\S"}}},
    },
    "BacklogRequest": {
        "if": {"required": ["issues"], "properties": {"issues": {"type": "string"}}},
        "else": {"required": ["items"], "properties": {"items": {"minItems": 1}}},
    },
    "AddBudget": {
        "if": {"anyOf": [{"required": ["tokens"]}, {"required": ["time"]}]},
        "else": {"required": ["usd"]},
    },
}


WRITTEN_WHOLE = (Spend, Usage)
"""Models kept in history, without fields at their default there, that are published with all their fields."""


class _SchemaGenerator(GenerateJsonSchema):
    """Generates the schema of a shape that is sent to us.

    People write it, so an unknown field is a mistake; what we write ourselves (`sent` False) may have more fields in
    later versions.
    """

    sent = True

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # "Base Sha" says nothing that base_sha does not

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        """Return a model's schema with its title, descriptions from docstrings, and the rules of STRICTER and WHOLE.

        Where we write the shape ourselves, unknown fields are allowed and, unless defaults are left out, all fields are
        required.
        """
        result = super().model_schema(schema)
        cls: type[BaseModel] = schema["cls"]
        properties: dict[str, dict[str, Any]] = result.get("properties", {})
        text, fields = _describe_model(cls, list(properties))
        result |= {"title": cls.__name__, "description": text, "properties": properties}
        for name, value in properties.items():
            if name in fields and "description" not in value:
                value["description"] = fields[name]
            _tighten(value, STRICTER.get((cls.__name__, name), {}))
            for part in (value, value.get("items", {}), *value.get("anyOf", ())):
                if "enum" in part and (cls.__name__, name) in ENUM_NAMES:
                    part["title"] = ENUM_NAMES[cls.__name__, name]
        if not self.sent:
            result.pop("additionalProperties", None)
            if not issubclass(cls, HistoryModel | UserInputModel) or cls in WRITTEN_WHOLE:
                result["required"] = list(properties)
        return {**result, **WHOLE.get(cls.__name__, {})}


class _OutputSchemaGenerator(_SchemaGenerator):
    """Generates the schema of a shape that we write."""

    sent = False


def _describe_model(cls: type[BaseModel], names: list[str]) -> tuple[str, dict[str, str]]:
    """Return the descriptions of a class and, by it or its base classes, of its fields, in JSON's terms."""
    text, fields = parse_docstring(cls.__doc__, names)
    for base in cls.__mro__[1:-1]:
        if issubclass(base, BaseModel) and base is not BaseModel:
            fields = parse_docstring(base.__doc__, names)[1] | fields
    return _to_json_terms(text), {name: _to_json_terms(description) for name, description in fields.items()}


def _to_json_terms(text: str) -> str:
    """Replace Python's None, True and False by JSON's terms."""
    return re.sub(r"\b(None|True|False)\b", lambda match: {"None": "null"}.get(match[1], match[1].lower()), text)


def _tighten(value: dict[str, Any], keywords: dict[str, Any]) -> None:
    """Add keywords to a field that is a string, or to the string among its alternatives, and bounds to an integer."""
    for part in value.get("anyOf", [value]):
        of_numbers = part.get("type") == "integer"
        if of_numbers or part.get("type") == "string":
            part.update({key: keywords[key] for key in keywords if (key in ("minimum", "maximum")) is of_numbers})


FIRST_KEYS = ("$schema", "title", "description", "type", "enum", "const", "properties", "items", "required")
LAST_KEYS = ("default", "examples", "$defs")


def _order_keys(value: Any) -> Any:
    """Return a schema with all keys in a person's reading order and without empty descriptions.

    First comes what it is, then what is in it, then the rest.
    """
    if isinstance(value, list):
        return [_order_keys(part) for part in value]
    if not isinstance(value, dict):
        return value
    rest = [key for key in value if key not in FIRST_KEYS + LAST_KEYS]
    result = {}
    for key in [*FIRST_KEYS, *rest, *LAST_KEYS]:
        if key == "description" and not value.get(key):
            continue
        if key in ("properties", "$defs") and key in value:
            result[key] = {name: _order_keys(part) for name, part in value[key].items()}
        elif key in value:
            result[key] = value[key] if key in ("examples", "default") else _order_keys(value[key])
    return result


def build_schema(shape: PublishedShape) -> dict[str, Any]:
    """Build one shape's schema: dialect, title, description, properties, examples, definitions."""
    generator = _SchemaGenerator if shape.sent else _OutputSchemaGenerator
    model_schema = shape.model.model_json_schema(mode="validation", schema_generator=generator)
    simple = simplify_schema(model_schema)
    ordered: dict[str, Any] = _order_keys({"$schema": DIALECT, **simple, "examples": shape.examples()})
    return ordered


def build_files() -> dict[str, str]:
    """Build everything that `make schema` writes: path below the repository's root → text."""
    schemas = {shape.name: build_schema(shape) for shape in SHAPES}
    texts = {f"docs/schema/{name}.json": _to_json_text(value) for name, value in schemas.items()}
    texts["docs/schema/README.md"] = build_guide(SHAPES)
    types = collect_types(list(schemas.values()))
    texts["examples/clients/typescript/perdure.ts"] = build_typescript(types)
    texts["examples/clients/go/perdure/types.go"] = build_go(types)
    texts["examples/clients/java/src/main/java/perdure/Types.java"] = build_java(types)
    return texts


def _to_json_text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
