"""The shapes of the schemas as Java classes for Jackson in one file, which the samples use and anybody may copy."""

from __future__ import annotations

import json
import re
from typing import Any

from schemas.simplify import is_nullable, list_types

HEAD = """\
// Made by `make schema`: do not edit.
package perdure;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import java.util.Map;

/** What a delivery takes and gives, as in docs/schema. A field that is null is left out where it may be. */
public final class Types {
    private Types() {}
"""

_PLAIN_TYPES = {"string": "String", "integer": "Long", "number": "Double", "boolean": "Boolean"}


def build_java(types: dict[str, dict[str, Any]]) -> str:
    """Build a Java file whose one class has a nested class or enum for every object and enumeration."""
    return "\n".join([HEAD, *(_type_declaration(name, value) for name, value in types.items()), "}", ""])


def _type_declaration(name: str, value: dict[str, Any]) -> str:
    """Return the nested class of an object's schema, or the nested enum of an enumeration."""
    lines = _doc_comment(value.get("description"), "    ")
    if "enum" in value:
        words = [word for word in value["enum"] if word is not None]
        constants = [f"        @JsonProperty({json.dumps(word)}) {_constant_name(word)}," for word in words]
        return "\n".join([*lines, f"    public enum {name} {{", *constants, "    }", ""])
    required = value.get("required", ())
    lines.append("    @JsonIgnoreProperties(ignoreUnknown = true)")
    if any(key not in required for key in value["properties"]):
        lines.append("    @JsonInclude(JsonInclude.Include.NON_NULL)")
    lines.append(f"    public static class {name} {{")
    for key, field in value["properties"].items():
        lines += _doc_comment(field.get("description"), "        ")
        if key in required and is_nullable(field):
            lines.append("        @JsonInclude(JsonInclude.Include.ALWAYS)")
        lines += [
            f'        @JsonProperty("{key}")',
            f"        public {_type_expression(field)} {_field_name(key)};",
            "",
        ]
    return "\n".join([*(lines if not value["properties"] else lines[:-1]), "    }", ""])


def _constant_name(word: str) -> str:
    """Return a value of an enumeration as the name of a constant."""
    return re.sub(r"[^A-Za-z0-9]+", "_", word).upper()


def _field_name(name: str) -> str:
    """Return a name in snake case as a field's name of Java."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _doc_comment(text: str | None, indent: str) -> list[str]:
    """Return a description as the lines of a Java comment; no lines for an empty one."""
    parts = (text or "").replace("*/", "* /").replace("\n\n", "\n").splitlines()
    if len(parts) <= 1:
        return [f"{indent}/** {part} */" for part in parts]
    return [f"{indent}/**", *(f"{indent} * {part}" for part in parts), f"{indent} */"]


def _type_expression(value: dict[str, Any]) -> str:
    """Return the Java type for a schema; all are such that they can be null."""
    if "$ref" in value:
        return str(value["$ref"]).removeprefix("#/$defs/")
    if "title" in value:
        return str(value["title"])
    match list_types(value):
        case ["array"]:
            return f"List<{_type_expression(value.get('items', {}))}>"
        case ["object"]:
            values = value.get("additionalProperties")
            return f"Map<String, {_type_expression(values) if isinstance(values, dict) else 'Object'}>"
        case [name]:
            return _PLAIN_TYPES[name]
    return "Object"
