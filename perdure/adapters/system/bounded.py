"""Parsers for texts of strangers: what would cost more than the text is worth is refused before or while it is read."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from perdure.models.limits import NESTING, PROJECT_FILE_BYTES

LINE_DOTS = 500
"""In one line of TOML: the parser's work grows with the square of a dotted key's parts (100 KB: 32 s and 3 GB)."""

INTEGER_BITS = 64
"""Of a number, as TOML promises: a longer one cannot even be shown in a message."""


_STRING = re.compile(
    r""""{3}(?:\\.?|[^\\])*?(?:"{3,5}|\Z)|'{3}.*?(?:'{3,5}|\Z)|"(?:\\[^\n]|[^"\\\n])*"?|'[^'\n]*'?|#[^\n]*""", re.DOTALL
)
"""A TOML string or comment; one without an end goes to the end of its line or of the text, read once in any case."""


class TooMuch(ValueError):
    """A text is larger, deeper or longer than what is parsed. `line`: where, or 0."""

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(what)
        self.line = line


def parse_toml(text: str, limit: int = PROJECT_FILE_BYTES) -> dict[str, Any]:
    """TOMLDecodeError or TooMuch, both ValueErrors; `limit` in bytes."""
    _check_size(text, limit)
    keys = _STRING.sub(lambda found: "\n" * found.group().count("\n"), text)
    for number, line in enumerate(keys.split("\n"), 1):
        if line.count(".") > LINE_DOTS:
            raise TooMuch(f"a line with more than {LINE_DOTS} dots outside of strings is not read", number)
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise TooMuch(_DEEP) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # a number of more digits than Python converts
        raise TooMuch(_LONG) from None
    check_nesting(found)
    return found


def parse_json(text: str, limit: int = PROJECT_FILE_BYTES) -> Any:
    """ValueError, of which TooMuch is one; `limit` in bytes."""
    _check_size(text, limit)
    try:
        found = json.loads(text)
    except RecursionError:
        raise TooMuch(_DEEP) from None
    check_nesting(found)
    return found


def check_nesting(found: Any) -> None:
    """TooMuch where tables and lists are nested too deep, or a whole number is too long."""
    left: list[tuple[Any, int]] = [(found, 0)]
    while left:
        value, depth = left.pop()
        if isinstance(value, int) and value.bit_length() > INTEGER_BITS:
            raise TooMuch(_LONG)
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if inner and depth >= NESTING:
            raise TooMuch(_DEEP)
        left += [(one, depth + 1) for one in inner]


def read_text(path: Path, limit: int) -> str:
    """A file's text; TooMuch when it is longer than `limit` bytes. OSError and UnicodeDecodeError as they come."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise TooMuch(_size(limit))
    return data.decode("utf-8")


def why_unread(error: OSError | ValueError) -> str:
    """Of read_text, in words."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)


def _check_size(text: str, limit: int) -> None:
    if len(text) > limit or len(text.encode(errors="replace")) > limit:
        raise TooMuch(_size(limit))


def _size(limit: int) -> str:
    return f"it is longer than {limit // 1024} KiB"


_LONG = f"a number has more than {INTEGER_BITS} bits"
_DEEP = f"it is nested deeper than {NESTING} levels"


_BYTES = 4 * 1024 * 1024  # a large lock file; enough to recognise a toolchain


def read(path: Path, limit: int = _BYTES) -> str:
    """At most `limit` bytes of a regular file as text; empty when there is none (a FIFO would block for ever)."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", errors="replace")
    except OSError:
        return ""


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's table, empty when there is none that parses."""
    try:
        return parse_toml(read(path, PROJECT_FILE_BYTES + 1))
    except ValueError:
        return {}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object, empty when there is none that parses."""
    try:
        data = parse_json(read(path, PROJECT_FILE_BYTES + 1))
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
