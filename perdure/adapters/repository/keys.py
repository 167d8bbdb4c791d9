"""TOML that people wrote: parsed into a model, or an error with file, line and key."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from perdure.adapters.system.bounded import TooMuch, parse_toml
from perdure.models.errors import BadInput
from perdure.models.limits import CONFIG_BYTES
from perdure.text import nearest

PLACE_CHARS_TRIED = 1024 * 1024
"""Read again to find a key's line for an error message, a quarter of a second; else the nearest known one is named."""


Loc = tuple[str | int, ...]
M = TypeVar("M", bound=BaseModel)

_RANGE_ERRORS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")


def parse(text: str, where: str, model: type[M], limit: int = CONFIG_BYTES) -> M:
    """Parse TOML into a model. BadInput says file:line and key, the nearest name of an unknown one, allowed ranges;
    a text of more than `limit` bytes is not read."""
    data = load(text, where, limit)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _complaint(error, model, text, data, where) from None


def load(text: str, where: str, limit: int = CONFIG_BYTES) -> dict[str, Any]:
    """Parse TOML. BadInput has the line of the syntax error."""
    try:
        return parse_toml(text, limit)
    except TooMuch as error:
        raise BadInput(f"not read: {error}", where=f"{where}:{error.line or 1}", fix="shorten it") from None
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = re.search(r"\(at line (\d+), column \d+\)$", message)
        line = int(at[1]) if at else max(1, len(text.rstrip("\n").split("\n")))
        what = message[: message.rindex(" (at ")] if " (at " in message else message
        raise BadInput(f"not valid TOML: {what}", where=f"{where}:{line}", fix="correct this line") from None


def place(text: str, where: str, loc: Loc, data: Mapping[str, Any] | None = None) -> str:
    """`perdure.toml:14 [[test]] "unit" timeout`: where a key, or the closest thing that was written, stands."""
    lines = _lines(text)
    known = next((loc[:n] for n in range(len(loc), 0, -1) if loc[:n] in lines), ())
    return f"{where}:{lines.get(known, 1)} {_key(loc, data if data is not None else tomllib.loads(text))}".rstrip()


def names(model: type[BaseModel]) -> list[str]:
    """The keys a person may write."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _complaint(error: ValidationError, model: type[BaseModel], text: str, data: dict[str, Any], where: str) -> BadInput:
    problems = error.errors()
    problem = min(problems, key=lambda p: p["type"] != "extra_forbidden")
    loc: Loc = tuple(problem["loc"])
    key = str(next((part for part in reversed(loc) if isinstance(part, str)), ""))
    at = place(text, where, loc, data)
    if problem["type"] == "extra_forbidden":
        known = names(_model_at(model, loc[:-1]) or model)
        return BadInput(f"unknown key {key}{nearest(key, known)}", where=at, fix=f"known here: {', '.join(known)}")
    if problem["type"] == "missing":
        return BadInput(f"{key} is missing", where=at, fix=f"add {key} = {'1' if key == 'version' else '…'}")
    if problem["type"] in _RANGE_ERRORS and (field := _field_at(model, loc)):
        allowed = _allowed(field)
        return BadInput(f"{key} is {problem['input']}, allowed is {allowed}", where=at, fix=f"set {key} to {allowed}")
    if problem["type"] == "tuple_type" and isinstance(problem["input"], dict):
        return BadInput(f"there may be several [{key}], so it is a list", where=at, fix=f"write [[{key}]], not [{key}]")
    if problem["type"] == "tuple_type":
        return BadInput(
            f"{key}: {plain(problem)}".replace("a valid tuple", "a list"), where=at, fix=f"write {key} = […]"
        )
    return BadInput(f"{key}: {plain(problem)}" if key else plain(problem), where=at, fix="correct this value")


def plain(problem: Mapping[str, Any]) -> str:
    """One validation problem in plain words, with what was written when that is short."""
    if problem["type"] == "model_type":
        return "should be a table"
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ").partition(", unable to")[0]
    written = problem.get("input")
    if problem["type"] == "value_error" or isinstance(written, dict | list):
        return message
    return f"{message}, not {written!r}"[:300]


def _allowed(field: FieldInfo) -> str:
    """`0 to 10`, `more than 0`."""
    low = high = ""
    for limit in field.metadata:
        match limit:
            case Ge(ge=value):
                low = f"{value}"
            case Gt(gt=value):
                low = f"more than {value}"
            case Le(le=value):
                high = f"{value}"
            case Lt(lt=value):
                high = f"less than {value}"
    if low and high:
        return f"{low} to {high}"
    if low:
        return low if low.startswith("more") else f"{low} or more"
    return f"at most {high}"


def _model_at(model: type[BaseModel], loc: Loc) -> type[BaseModel] | None:
    if not loc:
        return model
    field = _field_at(model, loc)
    return _model_in(field.annotation) if field else None


def _field_at(model: type[BaseModel], loc: Loc) -> FieldInfo | None:
    current: type[BaseModel] | None = model
    field: FieldInfo | None = None
    for part in loc:
        if isinstance(part, int):
            continue
        if current is None:
            return field
        field = next((f for name, f in current.model_fields.items() if part in (name, f.alias)), None)
        if field is None:
            return None
        current = _model_in(field.annotation)
    return field


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside `X`, `X | None`, `tuple[X, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _model_in(arg))), None)


def _key(loc: Loc, data: Any) -> str:
    tables: list[str] = []
    label = ""
    for number, part in enumerate(loc):
        value = data.get(part) if isinstance(data, dict) else None
        if isinstance(part, int):
            value = data[part] if isinstance(data, list) and part < len(data) else None
            if isinstance(value, dict):
                label = f'[[{".".join(tables)}]] "{value.get("name", f"#{part + 1}")}"'
        elif isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
            tables.append(part)
            label = f"[{'.'.join(tables)}]"
        else:
            return f"{label} {part}".strip()
        data = value
        if number == len(loc) - 1:
            return label
    return label


def _lines(text: str) -> dict[Loc, int]:
    """The line of every table and key. tomllib itself decides where a statement ends: no second grammar to maintain."""
    found: dict[Loc, int] = {}
    latest: dict[Loc, int] = {}
    prefix: Loc = ()
    for line, statement in _statements(text):
        data = tomllib.loads(statement)
        if not statement.lstrip().startswith("["):
            for path in _paths(data):
                found.setdefault(prefix + path, line)
            continue
        *outer, last = _header(data)
        prefix = ()
        for name in outer:
            prefix += (name,)
            prefix += (latest[prefix],) if prefix in latest else ()
        prefix += (last,)
        if statement.lstrip().startswith("[["):
            latest[prefix] = latest.get(prefix, -1) + 1
            found.setdefault(prefix, line)
            prefix += (latest[prefix],)
        found.setdefault(prefix, line)
    return found


def _statements(text: str) -> Iterator[tuple[int, str]]:
    lines = text.split("\n")
    start, tried = 0, 0
    while start < len(lines):
        for end in range(start + 1, len(lines) + 1):
            last = lines[end - 1]
            if end < len(lines) and last.rstrip().endswith(",") and "#" not in last:
                continue  # no statement ends with a comma: a list of a value a line is read once
            statement = "\n".join(lines[start:end])
            tried += len(statement)
            if tried > PLACE_CHARS_TRIED:  # what is open for many lines is read again for each of them
                return
            try:
                data = tomllib.loads(statement)
            except tomllib.TOMLDecodeError:
                continue
            if data:
                yield start + 1, statement
            break
        start = end


def _header(data: Any) -> list[str]:
    path: list[str] = []
    while data:
        data = data[0] if isinstance(data, list) else data
        if not data:
            break
        ((name, data),) = data.items()
        path.append(name)
    return path


def _paths(data: Mapping[str, Any], above: Loc = ()) -> Iterator[Loc]:
    for name, value in data.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from _paths(value, (*above, name))


def command_origin(name: str, origins: Mapping[str, str], file: str, text: str) -> str:
    """`perdure.toml:14 [[test]] "unit"`, `--config [[test]] "unit"`, or that it was detected.

    name     the command's, unique among them
    origins  where each setting came from, by dotted name
    file     the repository's own configuration file, and its text on the base branch
    """
    origin = origins.get("test", file)
    if origin == "detected":
        return f'[[test]] "{name}", detected from the repository\'s files: no perdure.toml names a test command'
    if origin.startswith(file):
        with contextlib.suppress(ValueError):
            tests = parse_toml(text).get("test") or ()
            number = next((n for n, test in enumerate(tests) if test.get("name") == name), None)
            if number is not None:
                return place(text, file, ("test", number))
    return f'{origin} [[test]] "{name}"'
