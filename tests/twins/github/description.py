"""GitHub's own description of its REST API: which operation a request is, and whether it and its reply fit it.

`description.json` is cut out of the one that GitHub publishes (extract.py); NOTICE has its licence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from openapi_schema_validator import OAS30Validator, oas30_format_checker
from referencing import Registry
from referencing.jsonschema import DRAFT4

Json = dict[str, Any]

_ROOT = "urn:github"
_MOST = 5
"""Complaints about one document; the first says enough."""


@dataclass(frozen=True)
class Operation:
    """`pulls/create`, say. `path` has its parameters in braces, as GitHub's documentation does."""

    id: str
    method: str
    path: str

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def body(self) -> Json | None:
        found: Json | None = _document()["operations"][self.id].get("body")
        return found

    def parameters(self, place: str) -> dict[str, Json]:
        """By name, those of the path or of the query."""
        return {each["name"]: each for each in _document()["operations"][self.id]["parameters"] if each["in"] == place}

    def match(self, path: str) -> dict[str, str] | None:
        """The path's parameters, not yet converted; None when this is not the operation's path."""
        found = _pattern(self.path).fullmatch(path)
        return {name: unquote(value) for name, value in found.groupdict().items()} if found else None


@cache
def operations() -> dict[str, Operation]:
    """All that the twin knows, by id; those with the longer path first, for a branch's name may have slashes."""
    found = sorted(_document()["operations"].items(), key=lambda each: -len(each[1]["path"]))
    return {id: Operation(id, each["method"], each["path"]) for id, each in found}


def find(method: str, path: str) -> tuple[Operation, dict[str, str]] | None:
    """The operation of a request and its path's parameters. `path` is without the API's prefix."""
    for operation in operations().values():
        if operation.method == method and (values := operation.match(path)) is not None:
            return operation, values
    return None


def check_parameters(operation: Operation, place: str, given: Sequence[tuple[str, str]]) -> tuple[Json, list[str]]:
    """Parameters of the path or the query as the values they stand for, and what is wrong with them."""
    known, values, wrong = operation.parameters(place), {}, []
    for name, text in given:
        if name not in known:
            wrong.append(f"{place} parameter {name}: there is none for {operation.id}")
            continue
        if name in values:
            wrong.append(f"{place} parameter {name}: given twice")
        kind = known[name]["schema"].get("type")
        digits = kind == "integer" and re.fullmatch(r"-?\d+", text, re.ASCII)
        values[name] = int(text) if digits else text
        wrong += [f"{place} parameter {name}: {each}" for each in _complaints(known[name]["schema"], values[name])]
    missing = [name for name, each in known.items() if each["required"] and name not in values]
    return values, wrong + [f"{place} parameter {name}: missing" for name in missing]


def check_body(operation: Operation, body: Any) -> list[str]:
    """What is wrong with a request's body; `body` is None when there is none."""
    described = operation.body
    if described is None:
        return [] if body is None else ["body: there is none for this operation"]
    if body is None:
        return ["body: missing"] if described["required"] else []
    return [
        f"body: {each}" for each in (*_complaints(described["schema"], body), *strangers(body, described["schema"]))
    ]


def check_reply(operation: Operation, status: int, body: Any) -> list[str]:
    """What is wrong with a reply of ours. Errors that the description does not list for the operation, such as the
    401 that every operation may give, have the shape of `basic-error` or of `validation-error`."""
    described = _document()["operations"][operation.id]["responses"]
    if str(status) in described:
        schema = described[str(status)]
        if schema is None and status < 400:
            return [] if body is None else [f"{status}: has no body"]
    elif status < 300:
        return [f"{status}: not a status of {operation.id}"]
    else:
        schema = None
    if schema is None:
        schema = {"$ref": f"#/components/schemas/{'validation-error' if status == 422 else 'basic-error'}"}
    return [f"{status}: {each}" for each in (*_complaints(schema, body), *strangers(body, schema))]


def strangers(value: Any, *schemas: Json, where: str = "") -> Iterator[str]:
    """Fields that no schema names. GitHub's schemas allow them; a client that sends one has misspelt another."""
    concrete = [each for schema in schemas for each in _alternatives(schema)]
    if isinstance(value, dict):
        named = [each for each in concrete if "properties" in each]
        if not named or any(each.get("additionalProperties") for each in concrete):
            return
        for name, inner in value.items():
            fitting = [each["properties"][name] for each in named if name in each["properties"]]
            if fitting:
                yield from strangers(inner, *fitting, where=f"{where}{name}.")
            else:
                yield f"{where}{name}: no such field"
    elif isinstance(value, list):
        items = [each["items"] for each in concrete if "items" in each]
        for index, inner in enumerate(value):
            yield from strangers(inner, *items, where=f"{where}{index}.")


def _alternatives(schema: Json) -> Iterator[Json]:
    while "$ref" in schema:
        schema = _document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    yield schema
    for word in ("allOf", "anyOf", "oneOf"):
        for each in schema.get(word, ()):
            yield from _alternatives(each)


def _complaints(schema: Json, value: Any) -> Iterator[str]:
    errors = _validator(json.dumps(schema)).iter_errors(value)
    for _, error in zip(range(_MOST), errors, strict=False):
        yield ".".join(map(str, error.absolute_path)) + f": {_short(error.message)}"


def _short(text: str) -> str:
    """The end says what is wrong with the value at the beginning."""
    return text if len(text) <= 300 else f"{text[:120]} … {text[-180:]}"


@cache
def _validator(schema: str) -> OAS30Validator:
    """By the schema's text, whose references are meant within the description."""
    return OAS30Validator(
        json.loads(schema.replace('"#/', f'"{_ROOT}#/')), registry=_registry(), format_checker=oas30_format_checker
    )


@cache
def _registry() -> Registry[Any]:
    empty: Registry[Any] = Registry()
    found: Registry[Any] = empty.with_resource(_ROOT, DRAFT4.create_resource(_document()))
    return found


@cache
def _document() -> Json:
    found: Json = json.loads((files(__package__) / "description.json").read_text(encoding="utf-8"))
    return found


@cache
def _pattern(path: str) -> re.Pattern[str]:
    """A branch's name is the one parameter that may have slashes in it."""
    parts = re.split(r"\{(\w+)\}", path)
    names = (f"(?P<{name}>{'.+' if name == 'branch' else '[^/]+'})" for name in parts[1::2])
    return re.compile("".join(re.escape(text) + next(names, "") for text in parts[::2]))
