"""Texts of programs without what stands in comments and strings, in one pass and without a parser."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_BEGINS, _VISIBLE = re.compile("[\"'`/#]"), re.compile(r"[^\n]")
"""The characters a string or comment can begin with; those that are blanked in one."""

_REGEX_AFTER = re.compile(r"(?:^|[(,=:\[!&|?{};+\n]|=>|\breturn|\btypeof|\bcase)[ \t]{0,8}$")


@dataclass(frozen=True)
class BlankedSource:
    """The text of a program, whole and blanked; all three are of the same length.

    plain  without comments
    bare   without what stands in strings, too
    """

    text: str
    plain: str
    bare: str

    def line_number(self, position: int) -> int:
        """Return the number of the line at a position, from 1."""
        return self.text.count("\n", 0, position) + 1

    def block_end(self, position: int) -> int:
        """Return the position behind the bracket that closes the one at `position`; the end of the text where nothing
        does."""
        return self._bracket_ends.get(position, len(self.bare))

    @cached_property
    def _bracket_ends(self) -> dict[int, int]:
        """Return, for the position of each opening bracket, the position behind the one that closes it."""
        ends: dict[int, int] = {}
        openings: list[int] = []
        for match in re.finditer(r"[()\[\]{}]", self.bare):
            if match[0] in "([{":
                openings.append(match.start())
            elif openings:
                ends[openings.pop()] = match.end()
        return ends


def blank_source(text: str, ending: str) -> BlankedSource:
    """Return a program's text with its comments and strings replaced by blanks, line ends kept.

    ending  of the file's name: it says what a comment and a string are
    """
    python, script = ending == "py", re.fullmatch(r"[cm]?[jt]sx?", ending) is not None
    plain, bare = list(text), list(text)
    position, end = 0, len(text)

    def blank(first: int, last: int, *versions: list[str]) -> None:
        """Replace the characters from `first` to `last` by blanks in these versions of the text."""
        if first < last:
            spaces = _VISIBLE.sub(" ", text[first:last])
            for characters in versions:
                characters[first : first + len(spaces)] = spaces

    while position < end:
        character, pair = text[position], text[position : position + 2]
        if (character == "#" and (python or position == 0)) or (pair == "//" and not python):
            stop = _end_after(text, "\n", position) - 1
            blank(position, stop, plain, bare)
        elif pair == "/*" and not python:
            stop = _end_after(text, "*/", position + 2)
            blank(position, stop, plain, bare)
        elif character in "\"'`" and (python or script or character != "'" or _is_character(text, position)):
            stop = _string_end(text, position, python, script)
            blank(position + 1, stop - 1, bare)
        elif script and character == "/" and _REGEX_AFTER.search(text[max(0, position - 20) : position]):
            stop = _string_end(text, position, python, script)
        else:
            next_start = _BEGINS.search(text, position + 1)
            stop = next_start.start() if next_start else end
        position = max(stop, position + 1)
    return BlankedSource(text, "".join(plain), "".join(bare))


def _end_after(text: str, needle: str, start: int) -> int:
    """Return the position behind the next `needle`; the end of the text where there is none."""
    position = text.find(needle, start)
    return len(text) if position < 0 else position + len(needle)


def _is_character(text: str, position: int) -> bool:
    """Return whether a single quote begins a character, and not a lifetime (Rust)."""
    return re.match(r"'(\\.[^']{0,10}|[^'\\])'", text[position : position + 14]) is not None


def _string_end(text: str, start: int, python: bool, script: bool) -> int:
    """Return the position behind the string, template or regular expression that begins at `start`, whatever a template
    holds.

    python, script  the language is Python; it is JavaScript or TypeScript
    """
    quote = text[start]
    if text.startswith(quote * 3, start) and not script and quote in "\"'":
        position = text.find(quote * 3, start + 3)
        while position > 0 and text[position - 1] == "\\" and python:
            position = text.find(quote * 3, position + 1)
        return len(text) if position < 0 else position + 3
    stops = re.compile(r"[\\\n]|" + re.escape(quote))
    position = start + 1
    while (match := stops.search(text, position)) is not None:
        if match[0] == quote:
            return match.end()
        if match[0] == "\n" and quote != "`" and (python or script):
            return match.start()
        position = match.end() + (match[0] == "\\")
    return len(text)


def normal_form(text: str) -> str:
    """Return a text without differences in white space that mean nothing."""
    return re.sub(r" ?([(){}\[\],;:.=<>+*/!&|-]) ?", r"\1", " ".join(text.split())).replace(",)", ")")
