"""TOML files that people wrote: parsed into a model, or an error that names file, line and key, with the nearest known
name. The settings of repositories and of the host's owner, presets of agents and screenplays are read by it. Also says,
for activities that test, where a test command was written."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from perdure.adapters.system.bounded import TextTooLarge, parse_toml
from perdure.models.errors import BadInput
from perdure.models.limits import CONFIG_BYTES
from perdure.text import nearest, shorten

PLACE_CHARS_TRIED = 1024 * 1024
"""Characters that are parsed again to find a key's line for an error message, a quarter of a second; beyond that the
nearest known key is named."""


Loc = tuple[str | int, ...]
M = TypeVar("M", bound=BaseModel)

_RANGE_ERRORS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")


def parse_toml_model(text: str, where: str, model: type[M], limit: int = CONFIG_BYTES) -> M:
    """Parse TOML into a model and return it.

    Raises BadInput with file, line and key for a syntax error, an unknown key (with the nearest name), a missing one,
    or a value that is not allowed (with the range); also for a text of more than `limit` bytes.
    """
    data = load_toml(text, where, limit)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _explain_error(error, model, text, data, where) from None


def load_toml(text: str, where: str, limit: int = CONFIG_BYTES) -> dict[str, Any]:
    """Parse TOML into tables. Raises BadInput with file and line of a syntax error, or where the text is too large."""
    try:
        return parse_toml(text, limit)
    except TextTooLarge as error:
        raise BadInput(f"not read: {error}", where=f"{where}:{error.line or 1}", fix="shorten it") from None
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        location = re.search(r"\(at line (\d+), column \d+\)$", message)
        line = int(location[1]) if location else max(1, len(text.rstrip("\n").split("\n")))
        reason = message[: message.rindex(" (at ")] if " (at " in message else message
        raise BadInput(f"not valid TOML: {reason}", where=f"{where}:{line}", fix="correct this line") from None


def locate_key(text: str, where: str, loc: Loc, data: Mapping[str, Any] | None = None) -> str:
    """Return where a key stands, for people: `perdure.toml:14 [[test]] "unit" timeout`.

    The line is that of the key, else of the nearest table around it that was written, else 1.

    data  the parsed text; None: it is parsed here
    """
    lines = _line_numbers(text)
    nearest_loc = next((loc[:n] for n in range(len(loc), 0, -1) if loc[:n] in lines), ())
    return (
        f"{where}:{lines.get(nearest_loc, 1)} {_key_label(loc, data if data is not None else tomllib.loads(text))}"
    ).rstrip()


def key_names(model: type[BaseModel]) -> list[str]:
    """Return the keys that a person may write in the table of this model."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _explain_error(
    error: ValidationError, model: type[BaseModel], text: str, data: dict[str, Any], where: str
) -> BadInput:
    """Return the error for people about a validation error's most telling problem, an unknown key before others."""
    problems = error.errors()
    problem = min(problems, key=lambda candidate: candidate["type"] != "extra_forbidden")
    loc: Loc = tuple(problem["loc"])
    key = str(next((part for part in reversed(loc) if isinstance(part, str)), ""))
    location = locate_key(text, where, loc, data)
    if problem["type"] == "extra_forbidden":
        known_keys = key_names(_model_at(model, loc[:-1]) or model)
        return BadInput(
            f"unknown key {key}{nearest(key, known_keys)}", where=location, fix=f"known here: {', '.join(known_keys)}"
        )
    if problem["type"] == "missing":
        return BadInput(f"{key} is missing", where=location, fix=f"add {key} = {'1' if key == 'version' else '…'}")
    if problem["type"] in _RANGE_ERRORS and (field := _field_at(model, loc)):
        allowed = _allowed_range(field)
        return BadInput(
            f"{key} is {problem['input']}, allowed is {allowed}", where=location, fix=f"set {key} to {allowed}"
        )
    if problem["type"] == "tuple_type" and isinstance(problem["input"], dict):
        return BadInput(
            f"there may be several [{key}], so it is a list", where=location, fix=f"write [[{key}]], not [{key}]"
        )
    if problem["type"] == "tuple_type":
        return BadInput(
            f"{key}: {describe_problem(problem)}".replace("a valid tuple", "a list"),
            where=location,
            fix=f"write {key} = […]",
        )
    return BadInput(
        f"{key}: {describe_problem(problem)}" if key else describe_problem(problem),
        where=location,
        fix="correct this value",
    )


def describe_problem(problem: Mapping[str, Any]) -> str:
    """Return one validation problem in plain words, with what was written where that is short."""
    if problem["type"] == "model_type":
        return "should be a table"
    message = str(problem["msg"]).removeprefix("Value error, ").removeprefix("Input ").partition(", unable to")[0]
    written = problem.get("input")
    if problem["type"] == "value_error" or isinstance(written, dict | list):
        return message
    return shorten(f"{message}, not {written!r}", 300)


def _allowed_range(field: FieldInfo) -> str:
    """Return the range of a number field in words: `0 to 10`, `more than 0`, `at most 5`."""
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
    """Return the model of the table at this place; None: there is no such table."""
    if not loc:
        return model
    field = _field_at(model, loc)
    return _model_in(field.annotation) if field else None


def _field_at(model: type[BaseModel], loc: Loc) -> FieldInfo | None:
    """Return the field at this place of a model and its nested models, numbers in it (of lists) skipped; None: there is
    none."""
    current: type[BaseModel] | None = model
    field: FieldInfo | None = None
    for part in loc:
        if isinstance(part, int):
            continue
        if current is None:
            return field
        field = next(
            (candidate for name, candidate in current.model_fields.items() if part in (name, candidate.alias)), None
        )
        if field is None:
            return None
        current = _model_in(field.annotation)
    return field


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside `X`, `X | None` or `tuple[X, ...] | None`; None: there is none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for arg in get_args(annotation) if (model := _model_in(arg))), None)


def _key_label(loc: Loc, data: Any) -> str:
    """Return how errors name a key: `[[test]] "unit" timeout`, `[limits] time`.

    A table in a list is named by its `name`, else by its number, `#2`.
    """
    tables: list[str] = []
    label = ""
    for index, part in enumerate(loc):
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
        if index == len(loc) - 1:
            return label
    return label


def _line_numbers(text: str) -> dict[Loc, int]:
    """Return the line, from 1, of every table and key of a TOML text by its path, as far as the text can be parsed in
    bounded time.

    tomllib itself decides where a statement ends: there is no second grammar to maintain.
    """
    line_numbers: dict[Loc, int] = {}
    last_indexes: dict[Loc, int] = {}
    prefix: Loc = ()
    for line, statement in _split_statements(text):
        data = tomllib.loads(statement)
        if not statement.lstrip().startswith("["):
            for path in _key_paths(data):
                line_numbers.setdefault(prefix + path, line)
            continue
        *outer, last = _header_path(data)
        prefix = ()
        for name in outer:
            prefix += (name,)
            prefix += (last_indexes[prefix],) if prefix in last_indexes else ()
        prefix += (last,)
        if statement.lstrip().startswith("[["):
            last_indexes[prefix] = last_indexes.get(prefix, -1) + 1
            line_numbers.setdefault(prefix, line)
            prefix += (last_indexes[prefix],)
        line_numbers.setdefault(prefix, line)
    return line_numbers


def _split_statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the TOML statements of a text, each with the line on which it begins; lines that belong to no statement are
    skipped.

    It ends early once PLACE_CHARS_TRIED characters were parsed: a statement over many lines is parsed again for each of
    them.
    """
    lines = text.split("\n")
    start, parsed_chars = 0, 0
    while start < len(lines):
        for end in range(start + 1, len(lines) + 1):
            last = lines[end - 1]
            if end < len(lines) and last.rstrip().endswith(",") and "#" not in last:
                continue  # No statement ends with a comma: a list with a value on each line is parsed once.
            statement = "\n".join(lines[start:end])
            parsed_chars += len(statement)
            if parsed_chars > PLACE_CHARS_TRIED:  # A statement over many lines is parsed again for each of them.
                return
            try:
                data = tomllib.loads(statement)
            except tomllib.TOMLDecodeError:
                continue
            if data:
                yield start + 1, statement
            break
        start = end


def _header_path(data: Any) -> list[str]:
    """Return the names in a parsed table header, outermost first: `[[a.b]]` gives a, b."""
    path: list[str] = []
    while data:
        data = data[0] if isinstance(data, list) else data
        if not data:
            break
        ((name, data),) = data.items()
        path.append(name)
    return path


def _key_paths(data: Mapping[str, Any], above: Loc = ()) -> Iterator[Loc]:
    """Yield the path of every key in nested tables, outer ones first; `above` stands before each."""
    for name, value in data.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from _key_paths(value, (*above, name))


def command_origin(name: str, origins: Mapping[str, str], file: str, text: str) -> str:
    """Return where a test command comes from, for people: `perdure.toml:14 [[test]] "unit"`, `--config [[test]]
    "unit"`, or a sentence that it was detected.

    name     the command's, unique among them
    origins  where each setting came from, by dotted name
    file     the repository's own configuration file, and `text` its content on the base branch

    A text that cannot be parsed raises nothing: the line is left out.
    """
    origin = origins.get("test", file)
    if origin == "detected":
        return f'[[test]] "{name}", detected from the repository\'s files: no perdure.toml names a test command'
    if origin.startswith(file):
        with contextlib.suppress(ValueError):
            tests = parse_toml(text).get("test") or ()
            index = next((position for position, test in enumerate(tests) if test.get("name") == name), None)
            if index is not None:
                return locate_key(text, file, ("test", index))
    return f'{origin} [[test]] "{name}"'
