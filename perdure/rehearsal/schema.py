"""Structured outputs: which JSON schemas the API takes, and whether an answer follows one."""

from __future__ import annotations

from typing import Any

_KEYWORDS = frozenset(
    {"$defs", "$ref", "type", "enum", "const", "anyOf", "allOf", "properties", "required", "additionalProperties"}
    | {"items", "minItems", "format", "description", "title", "default"}
)
"""Keywords of the API's grammar; limits on numbers and lengths are not (the SDK moves them to the description)."""

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


_NO_EMPTY_VALUE = "nothing may be made up"


def schema_problem(schema: dict[str, Any]) -> str | None:
    """Return why the API would refuse this schema as `output_config.format`, or None."""
    if schema.get("type") != "object" and "$ref" not in schema:
        return "the schema must be an object schema (type: object)"
    return _find_unsupported(schema, "schema")


def answer_problem(answer: Any, schema: dict[str, Any]) -> str | None:
    """Return where an answer departs from a schema that the API takes, or None."""
    return _find_departure(answer, schema, schema, "answer")


def fill_empties(answer: Any, schema: dict[str, Any]) -> Any:
    """Return the answer with the lists and nulls filled in that a screenplay left out of the things in its lists.

    For example an issue's screenshots or a task's role. What the answer itself has to have, such as its issues, is
    never made up.
    """
    return _fill_value(answer, schema, schema, inside=False)


def _fill_value(value: Any, schema: dict[str, Any], root: dict[str, Any], *, inside: bool = True) -> Any:
    """Return a value with its schema's required lists and nulls filled in, at the top only if `inside` is set."""
    schema = _resolve_reference(schema, root)
    if isinstance(value, list) and "items" in schema:
        return [_fill_value(item, schema["items"], root) for item in value]
    if not isinstance(value, dict):
        return value
    properties = {name: _resolve_reference(part, root) for name, part in schema.get("properties", {}).items()}
    empties = {name: _empty_value(properties.get(name, {})) for name in schema.get("required", []) if inside}
    fields = {**{name: empty for name, empty in empties.items() if empty != _NO_EMPTY_VALUE}, **value}
    return {name: _fill_value(part, properties.get(name, {}), root) for name, part in fields.items()}


def _empty_value(schema: dict[str, Any]) -> Any:
    """Return the value to fill in for a missing field: a list, null, or _NO_EMPTY_VALUE where neither is allowed."""
    if schema.get("type") == "array":
        return []
    return None if {"type": "null"} in schema.get("anyOf", []) else _NO_EMPTY_VALUE


def _resolve_reference(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that a `$ref` points to within `root`, or the schema itself when it has none."""
    if "$ref" not in schema:
        return schema
    target: Any = root
    for name in str(schema["$ref"]).removeprefix("#/").split("/"):
        target = target[name]
    resolved: dict[str, Any] = target
    return resolved


def _find_unsupported(schema: Any, path: str) -> str | None:
    """Return the first thing in a schema or its subschemas that the API does not support, with its path; else None."""
    if not isinstance(schema, dict):
        return f"{path}: a schema must be an object"
    if unknown := sorted(schema.keys() - _KEYWORDS):
        return f"{path}: property '{unknown[0]}' is not supported"
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in _TYPES:
            return f"{path}: '{kind}' is not a type"
    if "object" in kinds and schema.get("additionalProperties") is not False:
        return f"{path}: for 'object' type, 'additionalProperties' must be explicitly set to false"
    if schema.get("minItems", 0) not in (0, 1):
        return f"{path}: for 'array' type, 'minItems' values other than 0 or 1 are not supported"
    subschemas = [
        (f"{path}.{word}.{name}", part)
        for word in ("properties", "$defs")
        for name, part in schema.get(word, {}).items()
    ]
    subschemas += [
        (f"{path}.{word}.{n}", part) for word in ("anyOf", "allOf") for n, part in enumerate(schema.get(word, []))
    ]
    subschemas += [(f"{path}.items", schema["items"])] if "items" in schema else []
    return next((problem for name, part in subschemas if (problem := _find_unsupported(part, name))), None)


def _find_departure(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str) -> str | None:
    """Return how and where a value departs from a schema's const, enum, anyOf, allOf, type or content; else None."""
    schema = _resolve_reference(schema, root)
    if "const" in schema and value != schema["const"]:
        return f"{path} is {value!r}, not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{path} is {value!r}, not one of {', '.join(map(repr, schema['enum']))}"
    if "anyOf" in schema:
        problems = [_find_departure(value, part, root, path) for part in schema["anyOf"]]
        return None if None in problems else problems[0]
    for part in schema.get("allOf", []):
        if problem := _find_departure(value, part, root, path):
            return problem
    return _type_problem(value, schema, path) or _content_problem(value, schema, root, path)


def _type_problem(value: Any, schema: dict[str, Any], path: str) -> str | None:
    """Return that a value is not of the schema's types, or None."""
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    allowed = tuple(cls for kind in kinds for cls in _TYPES[kind])
    is_wrong_bool = isinstance(value, bool) and "boolean" not in kinds  # True is an int to Python, not to JSON
    if kinds and (is_wrong_bool or not isinstance(value, allowed)):
        return f"{path} is {value!r:.60}, not of type {' or '.join(kinds)}"
    return None


def _content_problem(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str) -> str | None:
    """Return the first list item or object field that departs from the schema, is missing or unknown; else None."""
    if isinstance(value, list) and "items" in schema:
        problems = (_find_departure(item, schema["items"], root, f"{path}[{n}]") for n, item in enumerate(value))
        return next((problem for problem in problems if problem), None)
    if not isinstance(value, dict):
        return None
    properties = schema.get("properties", {})
    if missing := [name for name in schema.get("required", []) if name not in value]:
        return f"{path}.{missing[0]} is missing"
    if unknown := [name for name in value if name not in properties and schema.get("additionalProperties") is False]:
        return f"{path}.{unknown[0]} is not in the schema (it has {', '.join(properties)})"
    problems = (
        _find_departure(value[name], part, root, f"{path}.{name}") for name, part in properties.items() if name in value
    )
    return next((problem for problem in problems if problem), None)
