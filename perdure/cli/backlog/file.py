"""A backlog as a file that people write, YAML or JSON, read with the line of everything in it."""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.cli.yaml_text import InvalidYaml, YamlDocument, parse_location, parse_yaml
from perdure.models.errors import BadInput, InvalidRequest
from perdure.text import one_line

BACKLOG_BYTES = 1024 * 1024
"""Most bytes of a backlog's file: a thousand items of a thousand bytes. Temporal takes 2 MB as one argument, and a
backlog that goes on in a new run takes its items along with all that is known of them."""


@dataclass(frozen=True)
class BacklogFile:
    """A backlog as it was written, not checked yet.

    name      the file as the person named it
    raw       its fields
    document  the same with the line of each value
    """

    name: str
    raw: dict[str, Any]
    document: YamlDocument

    def locate_error(self, error: InvalidRequest) -> BadInput:
        """Convert an error about the request to one that names file, line and item.

        `items.3.reqest: unknown field` becomes `reqest: unknown field` at `night.yaml:12 item "page"`.
        """
        location, what, item_name = parse_location(error.what), error.what, ""
        if len(location) > 1 and location[0] == "items":
            key, message = ".".join(str(part) for part in location[2:]), error.what.partition(": ")[2]
            what = f"{key}: {message}" if key else message
            item_name = f" item {self._item_label(location[1])}"
        where = f"{self.name}:{self.document.line_of(location)}{item_name}"
        return BadInput(what, where=where, fix=error.fix or "correct this line, and start it again")

    def _item_label(self, number: int | str) -> str:
        """Return an item's id in quotes, or `#3` where it has no id."""
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


def read_backlog_file(path: str) -> BacklogFile:
    """Read a backlog from a file, `-` for standard input. Raises BadInput with file and line."""
    name = "standard input" if path == "-" else path
    return parse_backlog_file(_read_text(path, name), name)


def parse_backlog_file(text: str, name: str) -> BacklogFile:
    """Parse a backlog's text; `name` is the file in errors.

    Raises BadInput, with file and line, for what is not YAML, has a key twice, or is not an object with fields.
    """
    try:
        document = parse_yaml(_json_as_yaml(text))
    except InvalidYaml as error:
        fix = "correct this line"
        raise BadInput(str(error), where=f"{name}:{error.line}" if error.line else name, fix=fix) from None
    if not isinstance(document.data, dict):
        raise BadInput("a backlog has fields", where=f"{name}:1", fix="repository: …, and items: with - id: …")
    return BacklogFile(name, document.data, document)


def _read_text(path: str, name: str) -> str:
    """Read the file, or standard input for `-`. Raises BadInput for what is not readable, not UTF-8 or over
    BACKLOG_BYTES."""
    from perdure.adapters.system.bounded import read_text, unreadable_reason

    try:
        if path != "-":
            return read_text(Path(path).expanduser(), BACKLOG_BYTES)
        data = sys.stdin.buffer.read(BACKLOG_BYTES + 1)
        if len(data) > BACKLOG_BYTES:
            raise ValueError(f"it is longer than {BACKLOG_BYTES // 1024} KiB")
        return data.decode()
    except (OSError, ValueError) as error:
        raise BadInput(
            f"the backlog cannot be read: {unreadable_reason(error)}", where=name, fix="name a YAML file"
        ) from None


def _json_as_yaml(text: str) -> str:
    """Return a JSON text such that YAML reads it the same: no tabs, and a character that is written as two escapes
    joined.

    Any other text is returned unchanged.
    """
    if text.lstrip()[:1] != "{":
        return text
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return re.sub(r"(?i)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", _join_surrogates, text.replace("\t", " "))
    return text


def _join_surrogates(match: re.Match[str]) -> str:
    return bytes.fromhex(match[1] + match[2]).decode("utf-16-be")
