"""Secrets in lines that a change adds. A secret's value stays in memory: no finding, log or artifact has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from perdure.adapters.checks.findings.detectors import addresses, detectors, may_have_address
from perdure.adapters.git.patch import Hunk, PatchLine

SECRET_KEY_LINES = 8
"""Behind the first line of a private key, until its first line of content: headers of encrypted ones have four."""


_KEY = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d: ")
_KEY_WORDS = ("PRIVATE KEY", "PuTTY-User-Key-File")
_CONTENT = re.compile(r"[A-Za-z0-9+/=]{40,}")
_KEY_VARIETY = 12
"""Different characters in 40 of base64; real keys have runs of A in them, so that runs say nothing here."""

_NAMED_EXAMPLE = re.compile(r"(?i)(?:^|[._-])(?:examples?|samples?|dummy|fake)(?:[._-]|$)")
_FOR_TESTS = re.compile(
    r"(?i)(?:^|/)(?:[^/]*[._-])?(?:tests?|specs?|fixtures?|testdata|__tests__)(?:[._-][^/]*)?(?:/|$)"
)


@dataclass(frozen=True)
class Leak:
    """A secret in an added line (from 1; None: in a file without lines).

    blocks  it must not be published; otherwise a person has to look
    """

    kind: str
    line: int | None
    value: str = field(repr=False)
    blocks: bool = True


def in_hunks(path: str, hunks: Iterable[Hunk]) -> Iterator[Leak]:
    """Secrets that the change adds to a text file."""
    for hunk in hunks:
        yield from _in_lines(path, hunk.body, hunk.lines)


def in_bytes(path: str, data: bytes) -> Iterator[Leak]:
    """Secrets in a file that is no text to git: such as UTF-16, or a program with a token inside."""
    for leak in _in_data(path, data.replace(b"\0", b"")):
        yield Leak(leak.kind, None, leak.value, leak.blocks)


def in_text(text: str) -> Iterator[Leak]:
    """Secrets in words that are not a file's: a path, a commit message."""
    yield from _in_data("", text.encode("utf-8", "surrogateescape"))


def _in_data(path: str, data: bytes) -> Iterator[Leak]:
    lines = (PatchLine(number, True, line) for number, line in enumerate(data.split(b"\n"), 1))
    yield from _in_lines(path, data, lambda: lines)


def _in_lines(path: str, data: bytes, lines: Callable[[], Iterator[PatchLine]]) -> Iterator[Leak]:
    """`data`: all the lines, for a look at what is worth looking for: in most hunks it is nothing."""
    whole = data.decode("utf-8", "replace")
    example = _named_example(path)
    tested = example or _FOR_TESTS.search(path) is not None
    chosen = [one for one in detectors() if (one.certain or not tested) and one.possible(whole)]
    passwords = not tested and may_have_address(whole)
    keys = _Keys() if any(word in whole for word in _KEY_WORDS) else None
    if not (chosen or passwords or keys):
        return
    for line in lines():
        text = line.data.decode("utf-8", "replace")
        if line.added:
            for one in chosen:
                yield from (Leak(one.kind, line.number, value, one.blocks) for value in one.values(text))
            if passwords:
                yield from (Leak("a password in an address", line.number, value) for value in addresses(text))
        if keys is not None and (found := keys.read(line, text)) is not None:
            yield Leak("a private key", found[0], found[1], blocks=not example)


class _Keys:
    """Reads lines in their order and says where a private key begins, once its content is seen and any of it is new."""

    def __init__(self) -> None:
        self._header: PatchLine | None = None
        self._left = 0

    def read(self, line: PatchLine, text: str) -> tuple[int, str] | None:
        """(the line of its header, its first line of content); a header without content stands in guides."""
        if (header := _KEY.search(text)) is not None:
            self._header, self._left, text = line, SECRET_KEY_LINES + 1, text[header.end() :]
        begun = self._header
        if begun is None:
            return None
        self._left -= 1
        found = _CONTENT.search(text)
        if found is None:
            self._header = None if "-----END" in text or not self._left else begun
            return None
        self._header = None
        real = len(set(found[0])) >= _KEY_VARIETY and (line.added or begun.added)
        return (begun.number, found[0]) if real else None


def _named_example(path: str) -> bool:
    return _NAMED_EXAMPLE.search(path.rpartition("/")[2]) is not None or (
        _FOR_TESTS.search(path) is not None and any(map(_NAMED_EXAMPLE.search, path.split("/")))
    )
