"""Schemas in the form that generators of types in Go, Java, Python and TypeScript give a type to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.models.limits import INTEGER_MOST

Schema = dict[str, Any]

_NO_SCHEMAS = ("default", "examples", "enum", "const", "if", "else", "required")
"""Keywords whose values no generator of types reads as schemas."""


def simplify_schema(schema: Schema) -> Schema:
    """Return a schema that accepts the same values, without `anyOf`: a field that may be null has a list of types, and
    a definition that may be null there is written in its place, with its title. Other enumerations are definitions,
    every integer is bounded to what a double holds exactly, and a default is a plain value."""
    definitions = schema.get("$defs", {})
    result = _simplify_part({key: value for key, value in schema.items() if key != "$defs"}, definitions)
    kept: dict[str, Schema] = {}
    waiting = [result]
    while waiting:
        for part in _iterate_schemas(waiting.pop()):
            if (name := str(part.get("$ref", "")).removeprefix("#/$defs/")) and name not in kept:
                kept[name] = _simplify_part(definitions[name], definitions)
                waiting.append(kept[name])
    named = {name: _name_enums(value, kept) for name, value in kept.items()}
    result = _name_enums(result, named)
    return {**result, "$defs": dict(sorted(named.items()))} if named else result


def collect_types(schemas: list[Schema]) -> dict[str, Schema]:
    """Return the objects and enumerations of some schemas by title; those of equal titles are the same type."""
    types: dict[str, Schema] = {}
    for schema in schemas:
        for part in _iterate_schemas(schema):
            if "title" in part and ("properties" in part or "enum" in part):
                types.setdefault(part["title"], part)
    return types


def list_types(schema: Schema) -> list[str]:
    """Return the types that a schema lists, null not among them."""
    types = schema.get("type", [])
    return [name for name in ([types] if isinstance(types, str) else types) if name != "null"]


def is_nullable(schema: Schema) -> bool:
    """Return True where a schema lists several types, one of which is null."""
    return "null" in schema.get("type", ()) and schema["type"] != "null"


def _iterate_schemas(schema: Any) -> Iterator[Schema]:
    """Yield a schema and all schemas within it."""
    if isinstance(schema, list):
        for part in schema:
            yield from _iterate_schemas(part)
    elif isinstance(schema, dict):
        yield schema
        for key, value in schema.items():
            if key in ("properties", "$defs"):
                yield from _iterate_schemas(list(value.values()))
            elif key not in _NO_SCHEMAS:
                yield from _iterate_schemas(value)


def _simplify_part(value: Any, definitions: dict[str, Schema]) -> Any:
    """Return a schema, or what is within one, with its alternatives merged and its integers bounded."""
    if isinstance(value, list):
        return [_simplify_part(part, definitions) for part in value]
    if not isinstance(value, dict):
        return value
    if "anyOf" in value:
        value = _merge_alternatives(value, definitions)
    result = {key: part if key in _NO_SCHEMAS else _simplify_part(part, definitions) for key, part in value.items()}
    # Generators for Go write no constant of such a type, and their code does not compile.
    if (default := result.get("default")) is not None and (
        (default and isinstance(default, dict)) or is_nullable(result)
    ):
        del result["default"]
    if "integer" in list_types(result) and "const" not in result:
        if "exclusiveMinimum" not in result:
            result.setdefault("minimum", -INTEGER_MOST)
        result.setdefault("maximum", INTEGER_MOST)
    return result


def _merge_alternatives(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """Return a schema whose alternatives differ in type as one with a list of types: each keyword is about one."""
    merged: Schema = {}
    types: list[str] = []
    for part in schema["anyOf"]:
        full = {**definitions.get(str(part.get("$ref", "")).removeprefix("#/$defs/"), {}), **part}
        types.append(full["type"])
        merged |= {key: value for key, value in full.items() if key != "$ref"}
    if "enum" in merged:
        merged["enum"] = [*merged["enum"], None]
    merged |= {key: value for key, value in schema.items() if key != "anyOf"}
    # Where a language has no type for several, its generators take the first: text holds a number too.
    merged["type"] = sorted(types, key=("string", "integer", "number", "boolean", "array", "object", "null").index)
    return merged


def _name_enums(value: Any, named: dict[str, Schema], *, top: bool = True) -> Any:
    """Return a schema with references in the place of enumerations that have a title, and add these to `named`."""
    if isinstance(value, list):
        return [_name_enums(part, named, top=False) for part in value]
    if not isinstance(value, dict):
        return value
    if not top and "title" in value and "enum" in value and value["type"] == "string":
        named[value["title"]] = {key: value[key] for key in ("title", "type", "enum")}
        rest = {key: part for key, part in value.items() if key not in ("title", "type", "enum")}
        return {**rest, "$ref": f"#/$defs/{value['title']}"}
    return {
        key: {name: _name_enums(part, named, top=False) for name, part in child.items()}
        if key == "properties"
        else child
        if key in _NO_SCHEMAS
        else _name_enums(child, named, top=False)
        for key, child in value.items()
    }
