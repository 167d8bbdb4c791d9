"""One test out of its file, as the base has it and as the change does."""

from __future__ import annotations

import re

EXPERIMENT_FILE_CHARS = 4_000
"""Characters of each version of a test beside a changed promise: as much as a reviewer reads."""


_CLOSES = (")", "]", "}")
_BELONGS = ("@", "#[")
"""Beginnings of lines that say something about the line below them: decorators, attributes."""


def versions_of_test(name: str, before: str, after: str) -> tuple[str, str]:
    """Return a test's text out of the base's file and out of the change's, each cut to EXPERIMENT_FILE_CHARS; both
    files from their beginning where one of them does not show the test."""
    both = _find_test_text(name, before), _find_test_text(name, after)
    old, new = both if all(both) else (before, after)
    return old[:EXPERIMENT_FILE_CHARS], new[:EXPERIMENT_FILE_CHARS]


def _find_test_text(name: str, text: str) -> str:
    """Return the lines of a test, from its decorators and the line that names it to the end of its block, by
    indentation; empty when it is not found."""
    lines, first = text.splitlines(), 0
    for part in _split_name(name):
        rest = range(first, len(lines))
        line_numbers = [n for defines in (True, False) for n in rest if _line_names(part, lines[n], defines=defines)]
        if not line_numbers:
            return ""
        first = line_numbers[0]
    last = first + 1
    while last < len(lines) and _continues_block(lines[last], _indentation(lines[first])):
        last += 1
    while (
        first
        and lines[first - 1].lstrip().startswith(_BELONGS)
        and _indentation(lines[first - 1]) == _indentation(lines[first])
    ):
        first -= 1
    return "\n".join(lines[first:last]).rstrip()


def _split_name(name: str) -> list[str]:
    """Split a test's name into the names that its source has: `Calc`, `test_add` of
    `tests/test_calc.py::Calc::test_add[1]`; likewise suites and tests of other runners."""
    _, _, inside = name.rpartition(".py::") if ".py::" in name else ("", "", name)
    parts = re.split(r"::| > ", inside)
    return [part for part in (re.sub(r"\[.*\]$", "", raw).split("/", 1)[0].strip() for raw in parts) if part]


def _line_names(part: str, line: str, *, defines: bool) -> bool:
    """Return whether a line has a name as a word; with `defines`, as the name of something it defines, or as a whole
    string."""
    word = re.escape(part)
    sought = rf"""\b(?:def|class|func|fn|function)\s+{word}\b|(["'`]){word}\1""" if defines else rf"(?<!\w){word}(?!\w)"
    return re.search(sought, line) is not None


def _continues_block(line: str, indent: int) -> bool:
    """Return whether a line still belongs to a block whose first line has this indentation: it is blank, deeper, or a
    closing bracket."""
    return (
        not line.strip()
        or _indentation(line) > indent
        or (_indentation(line) == indent and line.lstrip().startswith(_CLOSES))
    )


def _indentation(line: str) -> int:
    """Return the number of blank characters at the beginning of a line."""
    return len(line) - len(line.lstrip())
