"""One test out of its file, as the base has it and as the change does."""

from __future__ import annotations

import re

EXPERIMENT_FILE_CHARS = 4_000
"""Of each version of a test file beside a changed promise: what a reviewer reads."""


_CLOSES = (")", "]", "}")
_BELONGS = ("@", "#[")
"""The beginning of a line that says something about the one below it."""


def versions(name: str, before: str, after: str) -> tuple[str, str]:
    """The test of this name in both texts, cut; both texts from their beginning where one of them does not show it."""
    both = _test(name, before), _test(name, after)
    old, new = both if all(both) else (before, after)
    return old[:EXPERIMENT_FILE_CHARS], new[:EXPERIMENT_FILE_CHARS]


def _test(name: str, text: str) -> str:
    """The lines from the one that names it to the end of its block, by indentation; empty when it is not found."""
    lines, first = text.splitlines(), 0
    for part in _parts(name):
        rest = range(first, len(lines))
        found = [n for defines in (True, False) for n in rest if _names(part, lines[n], defines=defines)]
        if not found:
            return ""
        first = found[0]
    last = first + 1
    while last < len(lines) and _goes_on(lines[last], _indent(lines[first])):
        last += 1
    while (
        first and lines[first - 1].lstrip().startswith(_BELONGS) and _indent(lines[first - 1]) == _indent(lines[first])
    ):
        first -= 1
    return "\n".join(lines[first:last]).rstrip()


def _parts(name: str) -> list[str]:
    """`Calc`, `test_add` of `tests/test_calc.py::Calc::test_add[1]`; suites and tests of other runners likewise."""
    _, _, inside = name.rpartition(".py::") if ".py::" in name else ("", "", name)
    parts = re.split(r"::| > ", inside)
    return [part for part in (re.sub(r"\[.*\]$", "", one).split("/", 1)[0].strip() for one in parts) if part]


def _names(part: str, line: str, *, defines: bool) -> bool:
    """True where it stands in a line as a word; defines: as the name of something, or as a whole string."""
    word = re.escape(part)
    sought = rf"""\b(?:def|class|func|fn|function)\s+{word}\b|(["'`]){word}\1""" if defines else rf"(?<!\w){word}(?!\w)"
    return re.search(sought, line) is not None


def _goes_on(line: str, indent: int) -> bool:
    return not line.strip() or _indent(line) > indent or (_indent(line) == indent and line.lstrip().startswith(_CLOSES))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
