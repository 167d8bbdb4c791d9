"""A backlog as a file that people write, YAML or JSON: read with the line of everything in it."""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.cli.yaml_text import NotRead, Yaml, loc_of, read
from perdure.models.errors import BadInput, InvalidRequest
from perdure.text import one_line

BACKLOG_BYTES = 1024 * 1024
"""Of a file: a thousand items of a thousand bytes. Temporal takes 2 MB as one argument, and a backlog that goes on in a
new run takes its items along, with all that is known of them."""


@dataclass(frozen=True)
class BacklogFile:
    """The text as it was written, not checked yet. `name`: as the person named it."""

    name: str
    raw: dict[str, Any]
    found: Yaml

    def placed(self, error: InvalidRequest) -> BadInput:
        """The same with file and line; the item by its name: `reqest: unknown field`, `night.yaml:12 item "page"`."""
        loc, what, item = loc_of(error.what), error.what, ""
        if len(loc) > 1 and loc[0] == "items":
            key, words = ".".join(str(part) for part in loc[2:]), error.what.partition(": ")[2]
            what = f"{key}: {words}" if key else words
            item = f" item {self._named(loc[1])}"
        where = f"{self.name}:{self.found.line(loc)}{item}"
        return BadInput(what, where=where, fix=error.fix or "correct this line, and start it again")

    def _named(self, number: int | str) -> str:
        """`"page"`, or `#3` where it has no name of its own."""
        items = self.raw.get("items")
        item = items[number] if isinstance(items, list) and isinstance(number, int) and number < len(items) else None
        id = item.get("id") if isinstance(item, dict) else None
        return (
            f'"{one_line(id, 60)}"'
            if isinstance(id, str) and id
            else f"#{number + 1}"
            if isinstance(number, int)
            else number
        )


def read_file(path: str) -> BacklogFile:
    """The file of that name; standard input for `-`. BadInput with file and line."""
    name = "standard input" if path == "-" else path
    return parsed(_text(path, name), name)


def parsed(text: str, name: str) -> BacklogFile:
    """BadInput with file and line for what is not YAML, has a key twice, or is no object with fields."""
    try:
        found = read(_spaced(text))
    except NotRead as error:
        fix = "correct this line"
        raise BadInput(str(error), where=f"{name}:{error.line}" if error.line else name, fix=fix) from None
    if not isinstance(found.data, dict):
        raise BadInput("a backlog has fields", where=f"{name}:1", fix="repository: …, and items: with - id: …")
    return BacklogFile(name, found.data, found)


def _text(path: str, name: str) -> str:
    from perdure.adapters.system.bounded import read_text, why_unread

    try:
        if path != "-":
            return read_text(Path(path).expanduser(), BACKLOG_BYTES)
        data = sys.stdin.buffer.read(BACKLOG_BYTES + 1)
        if len(data) > BACKLOG_BYTES:
            raise ValueError(f"it is longer than {BACKLOG_BYTES // 1024} KiB")
        return data.decode()
    except (OSError, ValueError) as error:
        raise BadInput(f"the backlog cannot be read: {why_unread(error)}", where=name, fix="name a YAML file") from None


def _spaced(text: str) -> str:
    """JSON as YAML reads it: its tabs stand between its parts alone, and a character may be two `\\u`."""
    if text.lstrip()[:1] != "{":
        return text
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return re.sub(r"(?i)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", _character, text.replace("\t", " "))
    return text


def _character(found: re.Match[str]) -> str:
    return bytes.fromhex(found[1] + found[2]).decode("utf-16-be")
