"""A change between two commits as data: which paths differ, their contents, their hunks and lines, read a bounded
number of bytes at a time. The engine's findings and the texts that agents are shown are made of it. Nothing is
applied."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from perdure.adapters.git.command import Git
from perdure.adapters.git.repository import Repository, ask_about_objects
from perdure.models.limits import PATCH_FILE_BYTES
from perdure.models.patch import Hunk, read_files, readable_patch

PATCH_BATCH_BYTES = 48 * 1024**2
PATCH_BATCH_FILES = 500
"""The most bytes and files compared by one git command, so that a change of any size needs some 200 MB at once, and its
paths fit into argv."""


LINK, SUBMODULE, FILES = "120000", "160000", ("100644", "100755")

_RAW = ("diff-tree", "-r", "--no-renames", "--full-index", "--no-ext-diff", "--no-textconv")


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


def list_changes(repository: Repository, a: str, b: str) -> list[ChangedPath]:
    """Return every path that differs between two commits or trees, with modes and hashes, without sizes; a rename is a
    path that goes and one that comes. Raises GitError when a commit is missing."""
    listed = ask_about_objects(repository.git, *_RAW, "-z", "--end-of-options", objects=[a, b]).split(b"\0")[:-1]
    changes = []
    for header, name in zip(listed[::2], listed[1::2], strict=True):
        was_mode, mode, was_sha, sha, _ = header.decode().removeprefix(":").split(" ")
        changes.append(ChangedPath(os.fsdecode(name), was_mode, mode, was_sha, sha))
    return changes


def changed_paths(repository: Repository, a: str, b: str) -> list[ChangedPath]:
    """Return list_changes with the sizes of the files."""
    changes = list_changes(repository, a, b)
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


def unified_diff(repository: Repository, a: str, b: str, *paths: str) -> str:
    """Return the change, of these paths alone where there are any, as a unified diff for a reader, with names as
    readable_patch writes them. What is not UTF-8 is replaced, and files over PATCH_FILE_BYTES are named, not shown.
    Raises GitError when a commit is missing."""
    command = ("diff", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none", "--end-of-options")
    limits = [f":(literal,top){path}" for path in paths]
    return readable_patch(ask_about_objects(size_limited_git(repository), *command, objects=[a, b], paths=limits))


def binary_paths(repository: Repository, a: str, b: str) -> set[str]:
    """Return the paths whose content is not text to git. A file that is too large to be compared (PATCH_FILE_BYTES) is
    among them."""
    return {path for path, added, _ in line_counts(repository, a, b) if added == "-"}


def line_counts(repository: Repository, a: str, b: str) -> list[tuple[str, str, str]]:
    """Return (path, lines added, lines deleted) of each file that differs, as git writes the numbers: `-` where the
    file is binary or over PATCH_FILE_BYTES. Raises GitError when a commit is missing."""
    command = (*_RAW, "--numstat", "-z", "--end-of-options")
    listed = ask_about_objects(size_limited_git(repository), *command, objects=[a, b])
    lines = (line.split(b"\t", 2) for line in listed.split(b"\0")[:-1])
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
        text = ask_about_objects(git, *_RAW, "-p", "-U3", "--end-of-options", objects=[a, b], paths=paths)
        for file in read_files(text):
            path = os.fsdecode(file.path)
            if file.exists and file.hunks and path in expected_paths:  # one that is a directory now matches more
                expected_paths.discard(path)
                yield path, file.hunks


def size_limited_git(repository: Repository) -> Git:
    """Return git that takes a file over PATCH_FILE_BYTES for binary, and quotes every name that is not plain ASCII."""
    return replace(repository.git, settings=(f"core.bigFileThreshold={PATCH_FILE_BYTES}", "core.quotePath=true"))


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
