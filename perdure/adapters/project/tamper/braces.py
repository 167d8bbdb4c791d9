"""Sources in languages with braces, without a parser: where strings, comments and blocks begin and end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

_RETURN = re.compile(r"[^\w.$]return\s*?(;|\n|$|\})")
_REGEX_AFTER = re.compile(r"(?:^|[(,=:\[!&|?{};+\n]|=>|\breturn|\btypeof|\bcase)\s*$")

_BEGINS, _VISIBLE = re.compile("[\"'`/]"), re.compile(r"[^\n]")
"""The characters a string, comment or regular expression can begin with; those that are blanked in one."""


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


def read(text: str, script: bool) -> Source:
    """Comments and the insides of strings, blanked. `script`: JavaScript's templates and regular expressions."""
    plain, bare = list(text), list(text)
    at, end = 0, len(text)

    def blank(first: int, last: int, *where: list[str]) -> None:
        if first < last:
            spaces = _VISIBLE.sub(" ", text[first:last])
            for characters in where:
                characters[first : first + len(spaces)] = spaces

    while at < end:
        character, two = text[at], text[at : at + 2]
        if two == "//" or (character == "#" and at == 0):
            stop = text.find("\n", at)
            stop = end if stop < 0 else stop
            blank(at, stop, plain, bare)
        elif two == "/*":
            stop = text.find("*/", at + 2)
            stop = end if stop < 0 else stop + 2
            blank(at, stop, plain, bare)
        elif character in "\"'`" and not (character == "'" and not script and not _character(text, at)):
            stop = _string(text, at, script)
            blank(at + 1, stop - 1, bare)
        elif script and character == "/" and _REGEX_AFTER.search(text[max(0, at - 20) : at]):
            stop = _regex(text, at)
            blank(at + 1, stop - 1, bare)
        else:
            begun = _BEGINS.search(text, at + 1)
            stop = begun.start() if begun else end
        at = max(stop, at + 1)
    return Source(text, "".join(plain), "".join(bare))


def _character(text: str, at: int) -> bool:
    """Whether a single quote begins a character, and not a lifetime."""
    return re.match(r"'(\\.[^']*|[^'\\])'", text[at : at + 14]) is not None


def _string(text: str, at: int, script: bool) -> int:
    quote = text[at]
    if text.startswith('"""', at) and not script:
        stop = text.find('"""', at + 3)
        return len(text) if stop < 0 else stop + 3
    position = at + 1
    while position < len(text):
        character = text[position]
        if character == "\\" and not (quote == "`" and not script):
            position += 1
        elif character == quote:
            return position + 1
        elif character == "\n" and quote != "`" and script:
            return position
        elif quote == "`" and script and text.startswith("${", position):
            position = _template(text, position + 1)
            continue
        position += 1
    return len(text)


def _template(text: str, at: int) -> int:
    """Behind the brace that closes a template's expression."""
    depth = 0
    while at < len(text):
        if text[at] in "\"'`":
            at = _string(text, at, True)
            continue
        depth += (text[at] == "{") - (text[at] == "}")
        at += 1
        if depth == 0:
            return at
    return len(text)


def _regex(text: str, at: int) -> int:
    position, inside = at + 1, False
    while position < len(text) and text[position] != "\n":
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "[":
            inside = True
        elif character == "]":
            inside = False
        elif character == "/" and not inside:
            return position + 1
        position += 1
    return at + 1


def normal(text: str) -> str:
    """Without differences in white space that mean nothing."""
    return re.sub(r"\s*([(){}\[\],;:.=<>+*/!&|-])\s*", r"\1", " ".join(text.split())).replace(",)", ")")


def live(source: Source, first: int, last: int, swallowing: str) -> str:
    """The plain text of a block without what is never reached or whose failure is caught and forgotten.

    swallowing  what in a catch block shows that it does not forget: a pattern
    """
    dead: list[tuple[int, int]] = []
    bare = source.bare
    for match in re.compile(r"\bif\s*\(\s*(?:false|0|!1|!true)\s*\)\s*\{|\bif\s+false\s*\{").finditer(
        bare, first, last
    ):
        dead.append((match.start(), source.block(match.end() - 1)))
    for match in re.compile(r"\btry\s*\{").finditer(bare, first, last):
        stop = source.block(match.end() - 1)
        caught = re.compile(r"\s*catch\s*(\([^)]*\))?\s*\{").match(bare, stop)
        if caught:
            block = bare[caught.end() : source.block(caught.end() - 1)]
            if not re.search(swallowing, block):
                dead.append((match.start(), stop))
    depth = 0
    for position in range(first, last):
        depth += (bare[position] in "({[") - (bare[position] in ")}]")
        if depth == 0 and bare.startswith("return", position) and _RETURN.match(bare, position - 1):
            dead.append((position, last))
            break
    kept = list(source.plain[first:last])
    for start, stop in dead:
        for position in range(max(start, first) - first, min(stop, last) - first):
            kept[position] = " " if kept[position] != "\n" else "\n"
    return "".join(kept)
