"""The same shapes as TypeScript types, for the example and for whoever wants to copy one file."""

from __future__ import annotations

import json
from typing import Any

from schemas.simplify import is_nullable, list_types

HEAD = """\
// What a delivery takes and gives, as in docs/schema. Made by `make schema`: do not edit.
// A field that may be left out has a question mark; null is null.
"""


def build_typescript(types: dict[str, dict[str, Any]]) -> str:
    """Build a TypeScript file with one exported type for every object and enumeration."""
    return "\n".join([HEAD, *(_type_declaration(name, value) for name, value in types.items())])


def _type_declaration(name: str, value: dict[str, Any]) -> str:
    """Return the exported interface of an object's schema, or a type alias for an enumeration."""
    lines = _doc_comment(value.get("description"), "")
    if "enum" in value:
        words = " | ".join(json.dumps(word) for word in value["enum"] if word is not None)
        return "\n".join([*lines, f"export type {name} = {words};", ""])
    if not value["properties"]:
        return "\n".join([*lines, f"export type {name} = Record<string, never>;", ""])
    lines.append(f"export interface {name} {{")
    required = value.get("required", ())
    for key, field in value["properties"].items():
        lines += _doc_comment(field.get("description"), "  ")
        lines.append(f"  {key}{'' if key in required else '?'}: {_type_expression(field)};")
    return "\n".join([*lines, "}", ""])


def _doc_comment(text: str | None, indent: str) -> list[str]:
    """Return a description as the lines of a TypeScript comment; no lines for an empty one."""
    if not text:
        return []
    parts = text.replace("*/", "* /").replace("\n\n", "\n").splitlines()
    if len(parts) == 1:
        return [f"{indent}/** {parts[0]} */"]
    return [f"{indent}/**", *(f"{indent} * {part}" for part in parts), f"{indent} */"]


def _type_expression(value: dict[str, Any]) -> str:
    """Return the TypeScript expression for a schema's type; `unknown` where there is no equivalent."""
    if "$ref" in value:
        return str(value["$ref"]).removeprefix("#/$defs/")
    if "const" in value:
        return json.dumps(value["const"])
    names = [value["title"]] if "title" in value else [_plain_type(name, value) for name in list_types(value)]
    return " | ".join([*names, *(["null"] if is_nullable(value) else [])]) or "unknown"


def _plain_type(name: str, value: dict[str, Any]) -> str:
    """Return the TypeScript expression for one of the types that a schema lists."""
    match name:
        case "array" if "prefixItems" in value:
            return f"[{', '.join(_type_expression(part) for part in value['prefixItems'])}]"
        case "array":
            inner = _type_expression(value.get("items", {}))
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        case "object":
            values = value.get("additionalProperties")
            return f"Record<string, {_type_expression(values) if isinstance(values, dict) else 'unknown'}>"
        case "integer" | "number":
            return "number"
    return name
