"""Descriptions of models and their fields, taken from docstrings, so that they are written once."""

from __future__ import annotations

import inspect
import re


def parse_docstring(doc: str | None, names: list[str]) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring without its list of fields, and the description of each field in that list.

    A list begins after an empty line: `name  text`, several names before the text where they are meant together; deeper
    lines continue the text; `; other: text` begins another field in the same line. Only `names` count as fields.
    """
    names_pattern = "|".join(sorted(map(re.escape, names), key=len, reverse=True)) or "(?!)"
    entry_pattern = re.compile(rf"((?:{names_pattern})(?:, (?:{names_pattern}))*)\s+(\S.*)")
    paragraphs: list[list[str]] = [[]]
    entries: list[tuple[str, list[str]]] = []
    is_listing = True
    for line in inspect.cleandoc(doc or "").splitlines():
        if not line:
            paragraphs.append([])
            is_listing = True
        elif is_listing and (match := entry_pattern.fullmatch(line)):
            entries.append((match[1], [match[2]]))
        elif is_listing and entries and line[0] == " " and not paragraphs[-1]:
            entries[-1][1].append(line.strip())
        else:
            paragraphs[-1].append(line.strip())
            is_listing = False
    fields: dict[str, str] = {}
    for label, texts in entries:
        _add_descriptions(label, " ".join(texts), names_pattern, fields)
    return "\n\n".join(" ".join(lines) for lines in paragraphs if lines), fields


def _add_descriptions(label: str, text: str, names_pattern: str, fields: dict[str, str]) -> None:
    """Add the description of each field that an entry of the list names to `fields`, unless the field has one.

    `label` names the entry's fields, `text` describes them, and other fields after a semicolon.
    """
    first, *others = re.split(rf"; `?({names_pattern})`?(?::|(?= in )|(?= None )) ?", text)
    for name in label.split(", "):
        fields.setdefault(name, first)
    for name, description in zip(others[::2], others[1::2], strict=True):
        fields.setdefault(name, description.strip())
