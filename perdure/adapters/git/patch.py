"""A change between two commits as data: which paths differ, their contents, their hunks and lines, read a bounded
number of bytes at a time. The engine's findings and the texts that agents are shown are made of it. Nothing is
applied."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from perdure.adapters.git.command import Git
from perdure.adapters.git.repository import Repository
from perdure.models.limits import PATCH_FILE_BYTES

PATCH_BATCH_BYTES = 48 * 1024**2
PATCH_BATCH_FILES = 500
"""The most bytes and files compared by one git command, so that a change of any size needs some 200 MB at once, and its
paths fit into argv."""


LINK, SUBMODULE, FILES = "120000", "160000", ("100644", "100755")

_RAW = ("diff-tree", "-r", "--no-renames", "--full-index", "--no-ext-diff", "--no-textconv")
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPE = re.compile(rb'\\([0-7]{3}|[abtnvfr"\\])')
_ESCAPED = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


@dataclass(frozen=True)
class ChangedPath:
    """A path of a change, as it is in the file system (bytes that are not UTF-8 survive).

    mode, sha       after the change, zeros when it was deleted; `was_mode`, `was_sha` before it
    size, was_size  bytes of its content, 0 without one
    """

    path: str
    was_mode: str
    mode: str
    was_sha: str
    sha: str
    size: int = 0
    was_size: int = 0

    @property
    def exists(self) -> bool:
        """Return True where the path exists after the change."""
        return self.mode.strip("0") != ""


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

    body  the hunk as git wrote it, each line with its sign. Lines are made only when they are needed, because a
          million small ones take a hundred times their size.
    """

    first: int
    last: int
    body: bytes = field(default=b"", repr=False)

    def new_lines(self) -> Iterator[PatchLine]:
        """Yield the hunk's lines in the new file: those of the context and those that were added."""
        number, position = self.first, 0
        while position < len(self.body):
            end = self.body.index(b"\n", position)
            sign = self.body[position : position + 1]
            if sign in (b" ", b"+"):
                yield PatchLine(number, sign == b"+", self.body[position + 1 : end])
                number += 1
            position = end + 1


def changed_paths(repository: Repository, a: str, b: str) -> list[ChangedPath]:
    """Return every path that differs between two commits or trees, with modes, hashes and sizes; a rename is a path
    that goes and one that comes. Raises GitError when a commit is missing."""
    listed = repository.git.execute(*_RAW, "-z", "--end-of-options", a, b).stdout.split(b"\0")[:-1]
    changes = []
    for header, name in zip(listed[::2], listed[1::2], strict=True):
        was_mode, mode, was_sha, sha, _ = header.decode().removeprefix(":").split(" ")
        changes.append(ChangedPath(os.fsdecode(name), was_mode, mode, was_sha, sha))
    blobs = [
        sha
        for change in changes
        for mode, sha in ((change.was_mode, change.was_sha), (change.mode, change.sha))
        if _is_blob(mode)
    ]
    size = _blob_sizes(repository, dict.fromkeys(blobs))
    return [replace(change, size=size.get(change.sha, 0), was_size=size.get(change.was_sha, 0)) for change in changes]


def _is_blob(mode: str) -> bool:
    """Return True for the mode of a file or link, whose content is a blob."""
    return mode == LINK or mode in FILES


def _blob_sizes(repository: Repository, shas: Iterable[str]) -> dict[str, int]:
    """Return the sizes of blobs by their hashes: loose ones from their files, the others from one git command. A blob
    that git does not have is left out."""
    loose_sizes = {sha: repository.loose.object_size(sha) for sha in shas}
    object_names = "".join(f"{sha}\n" for sha, size in loose_sizes.items() if size is None)
    known = {sha: size for sha, size in loose_sizes.items() if size is not None}
    if not object_names:
        return known
    output = repository.git.execute(
        "cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=object_names.encode()
    ).text
    pairs = (line.split(" ") for line in output.splitlines())
    return known | {sha: int(size) for sha, size in pairs if size.isdigit()}


def unified_diff(repository: Repository, a: str, b: str) -> str:
    """Return the change as a unified diff for a reader, with paths as they are. What is not UTF-8 is replaced, and
    files over PATCH_FILE_BYTES are named, not shown. Raises GitError when a commit is missing."""
    changed = size_limited_git(repository).execute(
        "diff", "--no-renames", "--no-ext-diff", "--no-textconv", "--end-of-options", a, b
    )
    return changed.stdout.decode(errors="replace")


def binary_paths(repository: Repository, a: str, b: str) -> set[str]:
    """Return the paths whose content is not text to git. A file that is too large to be compared (PATCH_FILE_BYTES) is
    among them."""
    return {path for path, added, _ in line_counts(repository, a, b) if added == "-"}


def line_counts(repository: Repository, a: str, b: str) -> list[tuple[str, str, str]]:
    """Return (path, lines added, lines deleted) of each file that differs, as git writes the numbers: `-` where the
    file is binary or over PATCH_FILE_BYTES. Raises GitError when a commit is missing."""
    listed = (
        size_limited_git(repository)
        .execute(*_RAW, "--numstat", "-z", "--end-of-options", a, b)
        .stdout.split(b"\0")[:-1]
    )
    lines = (line.split(b"\t", 2) for line in listed)
    return [(os.fsdecode(path), added.decode(), gone.decode()) for added, gone, path in lines]


def read_blobs(repository: Repository, changed: Sequence[ChangedPath]) -> Iterator[tuple[ChangedPath, bytes]]:
    """Yield each of these paths with its content after the change, a bounded number of bytes at a time. Deleted paths,
    submodules and files over PATCH_FILE_BYTES are left out. Raises GitError when git fails."""
    for batch in _split_batches(
        [change for change in changed if _is_blob(change.mode) and change.size <= PATCH_FILE_BYTES]
    ):
        object_names = "".join(f"{change.sha}\n" for change in batch).encode()
        data, position = repository.git.execute("cat-file", "--batch", stdin=object_names).stdout, 0
        for change in batch:
            begin = data.index(b"\n", position) + 1
            yield change, data[begin : begin + change.size]
            position = begin + change.size + 1


def read_hunks(
    repository: Repository, a: str, b: str, changed: Sequence[ChangedPath]
) -> Iterator[tuple[str, tuple[Hunk, ...]]]:
    """Yield (path, hunks) of the text files among `changed`, a bounded number of bytes at a time.

    Left out: binary files, files over PATCH_FILE_BYTES, files that were deleted or only changed their mode. Raises
    GitError when a commit is missing.
    """
    git = size_limited_git(repository)
    for batch in _split_batches([change for change in changed if change.exists and change.mode != SUBMODULE]):
        expected_paths = {change.path for change in batch}
        paths = [f":(literal,top){path}" for path in sorted(expected_paths)]
        text = git.execute(*_RAW, "-p", "-U3", "--end-of-options", a, b, "--", *paths).stdout
        for path, path_hunks in _parse_patch(text):
            if path in expected_paths:  # a path that became a directory matches what is in it as well
                expected_paths.discard(path)
                yield path, path_hunks


def size_limited_git(repository: Repository) -> Git:
    """Return git that takes a file over PATCH_FILE_BYTES for binary, and writes names in UTF-8 as they are."""
    return replace(repository.git, settings=(f"core.bigFileThreshold={PATCH_FILE_BYTES}", "core.quotePath=false"))


def _split_batches(changed: Sequence[ChangedPath]) -> Iterator[list[ChangedPath]]:
    """Yield the changes in batches of at most PATCH_BATCH_FILES paths and about PATCH_BATCH_BYTES bytes, before and
    after counted together. Files over PATCH_FILE_BYTES, which are not compared, count nothing."""
    batch: list[ChangedPath] = []
    size = 0
    for change in changed:
        weight = change.size + change.was_size if max(change.size, change.was_size) <= PATCH_FILE_BYTES else 0
        if batch and (len(batch) == PATCH_BATCH_FILES or size + weight > PATCH_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(change)
        size += weight
    if batch:
        yield batch


def _parse_patch(patch: bytes) -> Iterator[tuple[str, tuple[Hunk, ...]]]:
    """Yield (path, hunks) for each file in a patch of git's own format; files without lines of a new file (deleted,
    binary, a mode alone) are left out. No content can imitate a header: a hunk is as long as its header says."""
    path: str | None = None
    hunks: list[Hunk] = []
    position = 0
    while position < len(patch):
        end = patch.index(b"\n", position)
        line, position = patch[position:end], end + 1
        if line.startswith(b"diff --git "):
            if path is not None:
                yield path, tuple(hunks)
            path, hunks = None, []
        elif line.startswith(b"+++ "):
            path = _parse_path(line[4:])
        elif (hunk := _HUNK.match(line)) is not None:
            old, first, new = int(hunk[1] or 1), int(hunk[2]), int(hunk[3] or 1)
            end = _end_of_hunk(patch, position, old, new)
            hunks.append(Hunk(first, first + new - 1, patch[position:end]))
            position = end
    if path is not None:
        yield path, tuple(hunks)


def _end_of_hunk(patch: bytes, position: int, old: int, new: int) -> int:
    """Return the end of the hunk that begins at `position`, by the number of its lines on both sides."""
    while old > 0 or new > 0:
        sign = patch[position : position + 1]
        old -= sign in (b" ", b"-")
        new -= sign in (b" ", b"+")
        position = patch.index(b"\n", position) + 1
    return position


def _parse_path(quoted: bytes) -> str | None:
    """Return the path of a `+++` line, which git quotes as C does where it holds quotes or control characters; None
    where there is no new file."""
    if quoted.startswith(b'"') and quoted.endswith(b'"'):
        quoted = _ESCAPE.sub(_unescape, quoted[1:-1])
    else:
        quoted = quoted.removesuffix(b"\t")  # after a name with blanks
    return os.fsdecode(quoted[2:]) if quoted.startswith(b"b/") else None


def _unescape(match: re.Match[bytes]) -> bytes:
    """Return the byte for which one C escape (three octal digits or a character) stands."""
    code = match[1]
    return bytes([int(code, 8)]) if len(code) == 3 else _ESCAPED.get(code, code)
