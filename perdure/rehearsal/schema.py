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


_NONE = "nothing may be made up"


def schema_problem(schema: dict[str, Any]) -> str | None:
    """Say why the API would refuse this schema as `output_config.format`, or None."""
    if schema.get("type") != "object" and "$ref" not in schema:
        return "the schema must be an object schema (type: object)"
    return _unsupported(schema, "schema")


def answer_problem(answer: Any, schema: dict[str, Any]) -> str | None:
    """Say where an answer departs from a schema the API takes, or None."""
    return _departs(answer, schema, schema, "answer")


def with_empties(answer: Any, schema: dict[str, Any]) -> Any:
    """The answer with the lists and nulls that a screenplay left out of the things it lists, such as an issue's
    screenshots or a task's role.

    What the answer itself has to have, such as its issues, is never made up.
    """
    return _filled(answer, schema, schema, inside=False)


def _filled(value: Any, schema: dict[str, Any], root: dict[str, Any], *, inside: bool = True) -> Any:
    schema = _resolved(schema, root)
    if isinstance(value, list) and "items" in schema:
        return [_filled(item, schema["items"], root) for item in value]
    if not isinstance(value, dict):
        return value
    properties = {name: _resolved(part, root) for name, part in schema.get("properties", {}).items()}
    empties = {name: _empty(properties.get(name, {})) for name in schema.get("required", []) if inside}
    given = {**{name: empty for name, empty in empties.items() if empty != _NONE}, **value}
    return {name: _filled(part, properties.get(name, {}), root) for name, part in given.items()}


def _empty(schema: dict[str, Any]) -> Any:
    if schema.get("type") == "array":
        return []
    return None if {"type": "null"} in schema.get("anyOf", []) else _NONE


def _resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    target: Any = root
    for name in str(schema["$ref"]).removeprefix("#/").split("/"):
        target = target[name]
    found: dict[str, Any] = target
    return found


def _unsupported(schema: Any, at: str) -> str | None:
    if not isinstance(schema, dict):
        return f"{at}: a schema must be an object"
    if unknown := sorted(schema.keys() - _KEYWORDS):
        return f"{at}: property '{unknown[0]}' is not supported"
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in _TYPES:
            return f"{at}: '{kind}' is not a type"
    if "object" in kinds and schema.get("additionalProperties") is not False:
        return f"{at}: for 'object' type, 'additionalProperties' must be explicitly set to false"
    if schema.get("minItems", 0) not in (0, 1):
        return f"{at}: for 'array' type, 'minItems' values other than 0 or 1 are not supported"
    below = [
        (f"{at}.{word}.{name}", part) for word in ("properties", "$defs") for name, part in schema.get(word, {}).items()
    ]
    below += [(f"{at}.{word}.{n}", part) for word in ("anyOf", "allOf") for n, part in enumerate(schema.get(word, []))]
    below += [(f"{at}.items", schema["items"])] if "items" in schema else []
    return next((problem for name, part in below if (problem := _unsupported(part, name))), None)


def _departs(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str) -> str | None:
    schema = _resolved(schema, root)
    if "const" in schema and value != schema["const"]:
        return f"{at} is {value!r}, not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{at} is {value!r}, not one of {', '.join(map(repr, schema['enum']))}"
    if "anyOf" in schema:
        problems = [_departs(value, part, root, at) for part in schema["anyOf"]]
        return None if None in problems else problems[0]
    for part in schema.get("allOf", []):
        if problem := _departs(value, part, root, at):
            return problem
    return _wrong_type(value, schema, at) or _wrong_inside(value, schema, root, at)


def _wrong_type(value: Any, schema: dict[str, Any], at: str) -> str | None:
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    allowed = tuple(cls for kind in kinds for cls in _TYPES[kind])
    wrong_bool = isinstance(value, bool) and "boolean" not in kinds  # True is an int to Python, not to JSON
    if kinds and (wrong_bool or not isinstance(value, allowed)):
        return f"{at} is {value!r:.60}, not of type {' or '.join(kinds)}"
    return None


def _wrong_inside(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str) -> str | None:
    if isinstance(value, list) and "items" in schema:
        found = (_departs(item, schema["items"], root, f"{at}[{n}]") for n, item in enumerate(value))
        return next((problem for problem in found if problem), None)
    if not isinstance(value, dict):
        return None
    properties = schema.get("properties", {})
    if missing := [name for name in schema.get("required", []) if name not in value]:
        return f"{at}.{missing[0]} is missing"
    if unknown := [name for name in value if name not in properties and schema.get("additionalProperties") is False]:
        return f"{at}.{unknown[0]} is not in the schema (it has {', '.join(properties)})"
    found = (_departs(value[name], part, root, f"{at}.{name}") for name, part in properties.items() if name in value)
    return next((problem for problem in found if problem), None)
