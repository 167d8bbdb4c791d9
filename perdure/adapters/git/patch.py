"""A change between two commits as data: which paths, which lines, in bounded pieces."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from perdure.adapters.git.door import Git
from perdure.adapters.git.repository import Repository
from perdure.models.limits import PATCH_FILE_BYTES

PATCH_BATCH_BYTES = 48 * 1024**2
PATCH_BATCH_FILES = 500
"""Compared by one git command, so that a change of any size needs some 200 MB at once, and its paths fit into argv."""


LINK, SUBMODULE, FILES = "120000", "160000", ("100644", "100755")

_RAW = ("diff-tree", "-r", "--no-renames", "--full-index", "--no-ext-diff", "--no-textconv")
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPE = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPED = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


@dataclass(frozen=True)
class ChangedPath:
    """One path of a change, as it is in the file system (bytes that are not UTF-8 survive).

    mode, sha      after the change, zeros when it is gone; `was_mode`, `was_sha` before it
    size, was_size bytes of its content, 0 without one
    """

    path: str
    was_mode: str
    mode: str
    was_sha: str
    sha: str
    size: int = 0
    was_size: int = 0

    @property
    def there(self) -> bool:
        return self.mode.strip("0") != ""


@dataclass(frozen=True)
class PatchLine:
    """One line of the new side: its number from 1, whether the change added it, its bytes without the line end."""

    number: int
    added: bool
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Hunk:
    """A changed place: `first` to `last` are lines of the new file with three lines of context; none if empty.

    body  the hunk as git wrote it, each line with its sign; lines are made when they are asked for, because a
          million small ones take a hundred times their size
    """

    first: int
    last: int
    body: bytes = field(default=b"", repr=False)

    def lines(self) -> Iterator[PatchLine]:
        """The new side."""
        number, at = self.first, 0
        while at < len(self.body):
            end = self.body.index(b"\n", at)
            sign = self.body[at : at + 1]
            if sign in (b" ", b"+"):
                yield PatchLine(number, sign == b"+", self.body[at + 1 : end])
                number += 1
            at = end + 1


def entries(repository: Repository, a: str, b: str) -> list[ChangedPath]:
    """Every path that differs between two commits or trees; a rename is a path that goes and one that comes."""
    listed = repository.git.run(*_RAW, "-z", "--end-of-options", a, b).stdout.split(b"\0")[:-1]
    found = []
    for facts, name in zip(listed[::2], listed[1::2], strict=True):
        was_mode, mode, was_sha, sha, _ = facts.decode().removeprefix(":").split(" ")
        found.append(ChangedPath(os.fsdecode(name), was_mode, mode, was_sha, sha))
    blobs = [sha for one in found for mode, sha in ((one.was_mode, one.was_sha), (one.mode, one.sha)) if _blob(mode)]
    size = _sizes(repository, dict.fromkeys(blobs))
    return [replace(one, size=size.get(one.sha, 0), was_size=size.get(one.was_sha, 0)) for one in found]


def _blob(mode: str) -> bool:
    return mode == LINK or mode in FILES


def _sizes(repository: Repository, shas: Iterable[str]) -> dict[str, int]:
    found = {sha: repository.loose.size(sha) for sha in shas}
    asked = "".join(f"{sha}\n" for sha, size in found.items() if size is None)
    known = {sha: size for sha, size in found.items() if size is not None}
    if not asked:
        return known
    told = repository.git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=asked.encode()).text
    pairs = (line.split(" ") for line in told.splitlines())
    return known | {sha: int(size) for sha, size in pairs if size.isdigit()}


def unified(repository: Repository, a: str, b: str) -> str:
    """The change for a reader: a unified diff with paths as they are; what is not UTF-8 is replaced, and files over
    PATCH_FILE_BYTES are named, not shown."""
    changed = bounded(repository).run(
        "diff", "--no-renames", "--no-ext-diff", "--no-textconv", "--end-of-options", a, b
    )
    return changed.stdout.decode(errors="replace")


def binaries(repository: Repository, a: str, b: str) -> set[str]:
    """Paths whose content is not text to git; one too large to be compared (PATCH_FILE_BYTES) is not."""
    return {path for path, added, _ in counted(repository, a, b) if added == "-"}


def counted(repository: Repository, a: str, b: str) -> list[tuple[str, str, str]]:
    """(path, lines added, lines deleted) of each file that differs, as git writes the numbers: `-` where it is not text
    to git."""
    listed = bounded(repository).run(*_RAW, "--numstat", "-z", "--end-of-options", a, b).stdout.split(b"\0")[:-1]
    lines = (line.split(b"\t", 2) for line in listed)
    return [(os.fsdecode(path), added.decode(), gone.decode()) for added, gone, path in lines]


def blobs(repository: Repository, changed: Sequence[ChangedPath]) -> Iterator[tuple[ChangedPath, bytes]]:
    """Yield what these paths hold after the change, a bounded number of bytes at a time; without what is too large."""
    for batch in _batches([one for one in changed if _blob(one.mode) and one.size <= PATCH_FILE_BYTES]):
        asked = "".join(f"{one.sha}\n" for one in batch).encode()
        data, at = repository.git.run("cat-file", "--batch", stdin=asked).stdout, 0
        for one in batch:
            begin = data.index(b"\n", at) + 1
            yield one, data[begin : begin + one.size]
            at = begin + one.size + 1


def hunks(
    repository: Repository, a: str, b: str, changed: Sequence[ChangedPath]
) -> Iterator[tuple[str, tuple[Hunk, ...]]]:
    """Yield the changed lines of the text files among `changed`, by path, a bounded number of bytes at a time.

    Without: binary files, files over PATCH_FILE_BYTES, files that are gone or only changed their mode.
    """
    git = bounded(repository)
    for batch in _batches([one for one in changed if one.there and one.mode != SUBMODULE]):
        wanted = {one.path for one in batch}
        paths = [f":(literal,top){path}" for path in sorted(wanted)]
        text = git.run(*_RAW, "-p", "-U3", "--end-of-options", a, b, "--", *paths).stdout
        for path, found in _parsed(text):
            if path in wanted:  # a path that became a directory matches what is in it as well
                wanted.discard(path)
                yield path, found


def bounded(repository: Repository) -> Git:
    """Git that takes a file over PATCH_FILE_BYTES for binary, and writes names in UTF-8 as they are."""
    return replace(repository.git, settings=(f"core.bigFileThreshold={PATCH_FILE_BYTES}", "core.quotePath=false"))


def _batches(changed: Sequence[ChangedPath]) -> Iterator[list[ChangedPath]]:
    batch: list[ChangedPath] = []
    size = 0
    for one in changed:
        weight = one.size + one.was_size if max(one.size, one.was_size) <= PATCH_FILE_BYTES else 0
        if batch and (len(batch) == PATCH_BATCH_FILES or size + weight > PATCH_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += weight
    if batch:
        yield batch


def _parsed(patch: bytes) -> Iterator[tuple[str, tuple[Hunk, ...]]]:
    """Sections of a patch in git's own format, which no content can imitate: a hunk is as long as its header says."""
    path: str | None = None
    found: list[Hunk] = []
    at = 0
    while at < len(patch):
        end = patch.index(b"\n", at)
        line, at = patch[at:end], end + 1
        if line.startswith(b"diff --git "):
            if path is not None:
                yield path, tuple(found)
            path, found = None, []
        elif line.startswith(b"+++ "):
            path = _name(line[4:])
        elif (hunk := _HUNK.match(line)) is not None:
            old, first, new = int(hunk[1] or 1), int(hunk[2]), int(hunk[3] or 1)
            end = _end_of_hunk(patch, at, old, new)
            found.append(Hunk(first, first + new - 1, patch[at:end]))
            at = end
    if path is not None:
        yield path, tuple(found)


def _end_of_hunk(patch: bytes, at: int, old: int, new: int) -> int:
    """Return the end of the hunk that begins at `at`, by the number of its lines on both sides."""
    while old > 0 or new > 0:
        sign = patch[at : at + 1]
        old -= sign in (b" ", b"-")
        new -= sign in (b" ", b"+")
        at = patch.index(b"\n", at) + 1
    return at


def _name(written: bytes) -> str | None:
    """The path of a `+++` line, which git quotes as C does where it holds quotes or control characters."""
    if written.startswith(b'"') and written.endswith(b'"'):
        written = _ESCAPE.sub(_unescaped, written[1:-1])
    else:
        written = written.removesuffix(b"\t")  # after a name with blanks
    return os.fsdecode(written[2:]) if written.startswith(b"b/") else None


def _unescaped(found: re.Match[bytes]) -> bytes:
    what = found[1]
    return bytes([int(what, 8)]) if len(what) == 3 else _ESCAPED.get(what, what)
