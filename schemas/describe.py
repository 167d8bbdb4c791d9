"""Descriptions of models and their fields, taken from docstrings, so that they are written once."""

from __future__ import annotations

import inspect
import re


def described(doc: str | None, names: list[str]) -> tuple[str, dict[str, str]]:
    """The text of a docstring without its list of fields, and what that list says of each.

    A list begins after an empty line: `name  words`, several names before the words where they are meant together;
    deeper lines go on with them; `; other: words` begins another field in the same line.
    """
    known = "|".join(sorted(map(re.escape, names), key=len, reverse=True)) or "(?!)"
    begins = re.compile(rf"((?:{known})(?:, (?:{known}))*)\s+(\S.*)")
    paragraphs: list[list[str]] = [[]]
    entries: list[tuple[str, list[str]]] = []
    listing = True
    for line in inspect.cleandoc(doc or "").splitlines():
        if not line:
            paragraphs.append([])
            listing = True
        elif listing and (found := begins.fullmatch(line)):
            entries.append((found[1], [found[2]]))
        elif listing and entries and line[0] == " " and not paragraphs[-1]:
            entries[-1][1].append(line.strip())
        else:
            paragraphs[-1].append(line.strip())
            listing = False
    fields: dict[str, str] = {}
    for given, words in entries:
        _split(given, " ".join(words), known, fields)
    return "\n\n".join(" ".join(lines) for lines in paragraphs if lines), fields


def _split(given: str, words: str, known: str, fields: dict[str, str]) -> None:
    first, *others = re.split(rf"; `?({known})`?(?::|(?= in )|(?= None )) ?", words)
    for name in given.split(", "):
        fields.setdefault(name, first)
    for name, said in zip(others[::2], others[1::2], strict=True):
        fields.setdefault(name, said.strip())
