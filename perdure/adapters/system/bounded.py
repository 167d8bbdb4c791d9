"""Bounded parsing and reading of texts from strangers: what would cost too much is refused, before or during the work.
Used wherever settings, presets and files of a repository are read."""

from __future__ import annotations

import codecs
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # has no types of its own

from perdure.models.limits import NESTING, PROJECT_FILE_BYTES

LINE_DOTS = 500
"""In one line of TOML: the parser's work grows with the square of a dotted key's parts (100 KB: 32 s and 3 GB)."""

INTEGER_BITS = 64
"""Of a number, as TOML promises: a longer one cannot even be shown in a message."""


_STRING = re.compile(
    r""""{3}(?:\\.?|[^\\])*?(?:"{3,5}|\Z)|'{3}.*?(?:'{3,5}|\Z)|"(?:\\[^\n]|[^"\\\n])*"?|'[^'\n]*'?|#[^\n]*""", re.DOTALL
)
"""A TOML string or comment; one without an end goes to the end of its line or of the text, read once in any case."""


class TextTooLarge(ValueError):
    """A text is larger than what is parsed, is nested deeper, or has a longer number. `line`: where, or 0."""

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(what)
        self.line = line


def parse_toml(text: str, limit: int = PROJECT_FILE_BYTES) -> dict[str, Any]:
    """Parse a TOML text of at most `limit` bytes; a byte order mark before it is passed over.

    Raises TOMLDecodeError for a syntax error, and TextTooLarge for a longer text, a line with more than LINE_DOTS dots
    outside of strings, deeper nesting than NESTING, or a number of more than INTEGER_BITS; both are ValueErrors.
    """
    text = text.removeprefix("\ufeff")
    _check_size(text, limit)
    keys = _STRING.sub(lambda table: "\n" * table.group().count("\n"), text)
    for number, line in enumerate(keys.split("\n"), 1):
        if line.count(".") > LINE_DOTS:
            raise TextTooLarge(f"a line with more than {LINE_DOTS} dots outside of strings is not read", number)
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise TextTooLarge(_DEEP_REASON) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # a number of more digits than Python converts
        raise TextTooLarge(_LONG_REASON) from None
    check_nesting(table)
    return table


def parse_json(text: str, limit: int = PROJECT_FILE_BYTES) -> Any:
    """Parse a JSON text of at most `limit` bytes; a byte order mark before it is passed over.

    Raises ValueError for a syntax error, and TextTooLarge, which is one, for a longer text, deeper nesting than
    NESTING, or a number of more than INTEGER_BITS.
    """
    text = text.removeprefix("\ufeff")
    _check_size(text, limit)
    try:
        data = json.loads(text)
    except RecursionError:
        raise TextTooLarge(_DEEP_REASON) from None
    check_nesting(data)
    return data


def check_nesting(data: Any) -> None:
    """Raise TextTooLarge where parsed tables and lists are nested deeper than NESTING, or a number has more than
    INTEGER_BITS."""
    to_visit: list[tuple[Any, int]] = [(data, 0)]
    while to_visit:
        value, depth = to_visit.pop()
        if isinstance(value, int) and value.bit_length() > INTEGER_BITS:
            raise TextTooLarge(_LONG_REASON)
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if inner and depth >= NESTING:
            raise TextTooLarge(_DEEP_REASON)
        to_visit += [(element, depth + 1) for element in inner]


def read_text(path: Path, limit: int) -> str:
    """Return the text of a file.

    Raises TextTooLarge where it has more than `limit` bytes; OSError and UnicodeDecodeError as they come.
    """
    with path.open("rb") as file:
        return decode_text(file.read(limit + 1), limit)


def decode_text(data: bytes, limit: int) -> str:
    """Return a text that a person wrote, from its bytes: in UTF-8, or in UTF-16 where a byte order mark says so, as
    some editors and shells write it; without that mark.

    Raises TextTooLarge where it has more than `limit` bytes, UnicodeDecodeError in another encoding.
    """
    if len(data) > limit:
        raise TextTooLarge(_size_reason(limit))
    return data.decode("utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")


def unreadable_reason(error: OSError | ValueError) -> str:
    """Return in words why read_text has failed."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, UnicodeDecodeError):
        line = error.object.count(b"\n", 0, error.start) + 1
        return f"it is not UTF-8 text: line {line} has the byte 0x{error.object[error.start]:02x}; save it as UTF-8"
    return str(error)


def _check_size(text: str, limit: int) -> None:
    """Raise TextTooLarge for a text of more than `limit` bytes."""
    if len(text) > limit or len(text.encode(errors="replace")) > limit:
        raise TextTooLarge(_size_reason(limit))


def _size_reason(limit: int) -> str:
    return f"it is longer than {limit // 1024} KiB"


_LONG_REASON = f"a number has more than {INTEGER_BITS} bits"
_DEEP_REASON = f"it is nested deeper than {NESTING} levels"


_READ_BYTES = 4 * 1024 * 1024  # a large lock file; enough to recognise a toolchain


def read_beginning(path: Path, limit: int = _READ_BYTES) -> str:
    """Return at most the first `limit` bytes of a regular file as text; empty where it cannot be read.

    Anything but a regular file counts as absent: a FIFO would block for ever. Bytes that are no UTF-8 are replaced, a
    byte order mark is left out.
    """
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", errors="replace").removeprefix("\ufeff")
    except OSError:
        return ""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the table of a TOML file; empty where there is none, it does not parse, or it is too large."""
    try:
        return parse_toml(read_beginning(path, PROJECT_FILE_BYTES + 1))
    except ValueError:
        return {}


def read_json(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file; empty where there is none, it does not parse, holds something else or is too
    large."""
    try:
        data = parse_json(read_beginning(path, PROJECT_FILE_BYTES + 1))
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


_YAML: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


_YAML_BYTES = 128 * 1024  # its parser takes a microsecond a byte


def parse_yaml(text: str) -> Any:
    """Parse a YAML text into texts, lists and mappings; None where it does not parse, is larger than _YAML_BYTES, or is
    nested deeper than NESTING. What is named twice (an alias) is there twice, as the same object."""
    depth = 0
    try:
        _check_size(text, _YAML_BYTES)
        for event in yaml.parse(text, _YAML):  # libyaml's loader would end the process at the end of the stack
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > NESTING:
                return None
        return yaml.load(text, _YAML)  # noqa: S506  # it makes no other objects
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def find_subtable(table: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the table that lies at these names inside a table; empty where there is none."""
    for name in names:
        inner = table.get(name)
        table = inner if isinstance(inner, dict) else {}
    return table
