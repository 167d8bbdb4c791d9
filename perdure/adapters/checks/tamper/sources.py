"""Texts of programs without what stands in comments and strings, in one pass and without a parser."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_BEGINS, _VISIBLE = re.compile("[\"'`/#]"), re.compile(r"[^\n]")
"""The characters a string or comment can begin with; those that are blanked in one."""

_REGEX_AFTER = re.compile(r"(?:^|[(,=:\[!&|?{};+\n]|=>|\breturn|\btypeof|\bcase)[ \t]{0,8}$")


@dataclass(frozen=True)
class Source:
    """plain: without comments. bare: without what stands in strings, too. Both are as long as the text itself."""

    text: str
    plain: str
    bare: str

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def block(self, at: int) -> int:
        """Behind the bracket that closes the one at `at`; the end where nothing does."""
        return self._closed.get(at, len(self.bare))

    @cached_property
    def _closed(self) -> dict[int, int]:
        found: dict[int, int] = {}
        opened: list[int] = []
        for match in re.finditer(r"[()\[\]{}]", self.bare):
            if match[0] in "([{":
                opened.append(match.start())
            elif opened:
                found[opened.pop()] = match.end()
        return found


def read(text: str, ending: str) -> Source:
    """`ending`: of the file's name, which says what a comment and a string are."""
    python, script = ending == "py", re.fullmatch(r"[cm]?[jt]sx?", ending) is not None
    plain, bare = list(text), list(text)
    at, end = 0, len(text)

    def blank(first: int, last: int, *where: list[str]) -> None:
        if first < last:
            spaces = _VISIBLE.sub(" ", text[first:last])
            for characters in where:
                characters[first : first + len(spaces)] = spaces

    while at < end:
        character, two = text[at], text[at : at + 2]
        if (character == "#" and (python or at == 0)) or (two == "//" and not python):
            stop = _behind(text, "\n", at) - 1
            blank(at, stop, plain, bare)
        elif two == "/*" and not python:
            stop = _behind(text, "*/", at + 2)
            blank(at, stop, plain, bare)
        elif character in "\"'`" and (python or script or character != "'" or _character(text, at)):
            stop = _string(text, at, python, script)
            blank(at + 1, stop - 1, bare)
        elif script and character == "/" and _REGEX_AFTER.search(text[max(0, at - 20) : at]):
            stop = _string(text, at, python, script)
        else:
            begun = _BEGINS.search(text, at + 1)
            stop = begun.start() if begun else end
        at = max(stop, at + 1)
    return Source(text, "".join(plain), "".join(bare))


def _behind(text: str, what: str, at: int) -> int:
    found = text.find(what, at)
    return len(text) if found < 0 else found + len(what)


def _character(text: str, at: int) -> bool:
    """True where a single quote begins a character, and not a lifetime."""
    return re.match(r"'(\\.[^']{0,10}|[^'\\])'", text[at : at + 14]) is not None


def _string(text: str, at: int, python: bool, script: bool) -> int:
    """Behind a string, a template with what it holds, or a regular expression that begin here."""
    quote = text[at]
    if text.startswith(quote * 3, at) and not script and quote in "\"'":
        position = text.find(quote * 3, at + 3)
        while position > 0 and text[position - 1] == "\\" and python:
            position = text.find(quote * 3, position + 1)
        return len(text) if position < 0 else position + 3
    ends = re.compile(r"[\\\n]|" + re.escape(quote))
    position = at + 1
    while (found := ends.search(text, position)) is not None:
        if found[0] == quote:
            return found.end()
        if found[0] == "\n" and quote != "`" and (python or script):
            return found.start()
        position = found.end() + (found[0] == "\\")
    return len(text)


def normal(text: str) -> str:
    """Without differences in white space that mean nothing."""
    return re.sub(r" ?([(){}\[\],;:.=<>+*/!&|-]) ?", r"\1", " ".join(text.split())).replace(",)", ")")
