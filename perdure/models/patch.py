"""Patches in git's own format as data: files, hunks, lines, exactly, whatever bytes are in names and contents. The only
parser of them, for what git has just written (`adapters.git.patch`) and for the text of a change that people read.

No content can imitate a header: a hunk is as long as its header says.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from perdure.text import is_visible

_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_QUOTED = re.compile(rb'"((?:[^"\\\n]|\\.)*)"')
_ESCAPE = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPED = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
_ESCAPES = {'"': r"\"", "\\": r"\\"} | {byte.decode(): f"\\{letter.decode()}" for letter, byte in _ESCAPED.items()}
_FILE = b"diff --git "
_KINDS = {b"+": "added", b"-": "gone"}


@dataclass(frozen=True)
class PatchLine:
    """A line of the file after the change: its number from 1, whether the change added it, its bytes without the line
    end."""

    number: int
    added: bool
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Hunk:
    """A changed place. `first` to `last` are lines of the new file, three lines of context included; none if it is
    empty.

    body   the hunk as git wrote it, each line with its sign. Lines are made only when they are needed, because a
           million small ones take a hundred times their size.
    place  the line before it, which says where it is
    """

    first: int
    last: int
    body: bytes = field(default=b"", repr=False)
    place: bytes = field(default=b"", repr=False)

    def new_lines(self) -> Iterator[PatchLine]:
        """Yield the hunk's lines in the new file: those of the context and those that were added."""
        number = self.first
        for start, end in _line_bounds(self.body):
            sign = self.body[start : start + 1]
            if sign in (b" ", b"+"):
                yield PatchLine(number, sign == b"+", self.body[start + 1 : end])
                number += 1


@dataclass(frozen=True)
class FilePatch:
    """One file of a patch.

    path      after the change, and before it where the file is deleted; bytes, as the file system has them
    head      the lines before its hunks, which say names, modes and hashes
    exists    False for a deleted file
    """

    path: bytes
    head: bytes
    exists: bool
    hunks: tuple[Hunk, ...] = ()

    def count_lines(self) -> tuple[int, int]:
        """Return the numbers of added and deleted lines; none for a binary file or a change of the mode alone."""
        added, deleted = (sum((b"\n" + hunk.body).count(sign) for hunk in self.hunks) for sign in (b"\n+", b"\n-"))
        return added, deleted


def label_lines(patch: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield (kind, start, end) of each line of a patch, without its newline.

    The kind is `file` (names, modes, hashes), `place` (of a hunk), `added`, `gone`, or empty: context, what git says
    about the line before, and text that is no patch. A patch may end anywhere.
    """
    old = new = 0
    in_head = False
    for start, end in _line_bounds(patch):
        sign = patch[start : start + 1]
        if (old > 0 or new > 0) and sign in (b" ", b"+", b"-", b"\\"):
            old -= sign in (b" ", b"-")
            new -= sign in (b" ", b"+")
            kind = _KINDS.get(sign, "")
        elif (hunk := _HUNK.match(patch, start)) is not None:
            old, new, in_head, kind = int(hunk[1] or 1), int(hunk[3] or 1), False, "place"
        else:
            old = new = 0
            in_head = in_head or patch.startswith(_FILE, start)
            kind = "file" if in_head else ""
        yield kind, start, end


def read_files(patch: bytes) -> Iterator[FilePatch]:
    """Yield each file of a patch, in order, and once: git writes one that becomes a link as deleted and as new. Text
    before the first file is passed over."""
    earlier: FilePatch | None = None
    for bounds in _file_bounds(patch):
        file = _read_file(patch, bounds)
        if earlier is not None and earlier.path == file.path:
            file = replace(file, head=earlier.head + file.head, hunks=earlier.hunks + file.hunks)
        elif earlier is not None:
            yield earlier
        earlier = file
    if earlier is not None:
        yield earlier


def _file_bounds(patch: bytes) -> Iterator[list[int]]:
    """Yield for each file where it begins, where each of its hunks does, and where it ends."""
    starts = list[int]()
    for kind, start, _ in label_lines(patch):
        if kind == "file" and patch.startswith(_FILE, start):
            if starts:
                yield [*starts, start]
            starts = [start]
        elif kind == "place" and starts:
            starts.append(start)
    if starts:
        yield [*starts, len(patch)]


def _read_file(patch: bytes, bounds: list[int]) -> FilePatch:
    """Return the file whose head and hunks lie between these bounds, the last of which is its end."""
    head, hunks = patch[bounds[0] : bounds[1]], list[Hunk]()
    for start, end in itertools.pairwise(bounds[1:]):
        place_end = patch.find(b"\n", start, end)
        body_start = end if place_end == -1 else place_end + 1
        if (place := _HUNK.match(patch, start)) is not None:
            first, count = int(place[2]), int(place[3] or 1)
            hunks.append(Hunk(first, first + count - 1, patch[body_start:end], patch[start:body_start]))
    lines = head.split(b"\n")
    exists = not any(line.startswith(b"deleted file mode ") for line in lines)
    return FilePatch(_read_path(lines), head, exists, tuple(hunks))


def _line_bounds(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of each line of a text, whose last one may have no newline."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start)
        end = len(text) if end == -1 else end
        yield start, end
        start = end + 1


def _read_path(head: list[bytes]) -> bytes:
    """Return the path that the lines before a file's hunks name: after the change, or before it where it is gone."""
    for beginning, prefix in ((b"+++ ", b"b/"), (b"--- ", b"a/"), (b"rename to ", b""), (b"copy to ", b"")):
        for line in head[1:]:
            if line.startswith(beginning):
                path = _unquote_name(
                    line.removeprefix(beginning).removesuffix(b"\t")
                )  # a tab follows a name with blanks
                if path.startswith(prefix):
                    return path.removeprefix(prefix)
    names = head[0].removeprefix(_FILE)  # a mode alone, an empty or a binary file: both names are the same
    if (quoted := _QUOTED.match(names)) is not None:
        return _unquote_name(quoted[0])[2:]
    return names[2 : len(names) // 2]


def _unquote_name(name: bytes) -> bytes:
    """Return a name that git has quoted as C does, where it holds quotes, control characters or other bytes than those
    of ASCII; any other as it is."""
    return _ESCAPE.sub(_unescape_byte, name[1:-1]) if _QUOTED.fullmatch(name) else name


def _unescape_byte(match: re.Match[bytes]) -> bytes:
    """Return the byte for which one C escape (three octal digits or a character) stands."""
    code = match[1]
    return bytes([int(code, 8)]) if len(code) == 3 else _ESCAPED.get(code, code)


def readable_patch(patch: bytes) -> str:
    """Return a patch as text, with names as people write them: only what cannot be seen in one is still quoted. Bytes
    of contents that are not UTF-8 are replaced; names can still be read exactly."""
    if b'"' not in patch:
        return patch.decode(errors="replace")
    pieces, position = list[bytes](), 0
    for kind, start, end in label_lines(patch):
        if kind == "file" and b'"' in (line := patch[start:end]):
            pieces += [patch[position:start], _QUOTED.sub(_requote_name, line)]
            position = end
    return b"".join([*pieces, patch[position:]]).decode(errors="replace")


def _requote_name(match: re.Match[bytes]) -> bytes:
    """Return a quoted name with the characters in it that a person sees, without quotes where that are all of them."""
    name = _unquote_name(match[0]).decode("utf-8", "surrogateescape")
    escaped = "".join(map(_escape_character, name))
    return (name if escaped == name else f'"{escaped}"').encode("utf-8", "surrogateescape")


def _escape_character(character: str) -> str:
    """Return a character of a name as git writes it within quotes: as it is where a person sees it."""
    if (short := _ESCAPES.get(character)) is not None:
        return short
    if is_visible(character):
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))
