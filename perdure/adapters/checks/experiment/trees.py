"""Trees of commits, and trees made of the files of two."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.command import Git
from perdure.adapters.git.object_reader import ObjectReader
from perdure.adapters.git.repository import Repository, call_cached
from perdure.models.limits import TAMPER_FILE_BYTES, TAMPER_TOTAL_BYTES

TreeEntry = tuple[str, str]
"""Mode and object name of a file."""

_MODULE, _LINK = "160000", "120000"


@functools.lru_cache(3)  # 30 MB for each 100,000 files; every delivery needs its base's
def _read_entries(repository: Repository, commit: str) -> Mapping[str, TreeEntry]:
    """Read from git the path → mode and object of all files of a commit, links and submodules too. Raises GitError when
    there is no such commit."""
    listed = repository.git.execute("ls-tree", "-r", "-z", "--end-of-options", commit).stdout
    entries = {}
    for line in listed.split(b"\0")[:-1]:
        head, _, name = line.partition(b"\t")
        mode, _, oid = head.decode().split(" ")
        entries[os.fsdecode(name)] = (mode, oid)
    return entries


@dataclass(frozen=True)
class CommitTree:
    """The files of a commit, or of a tree made of two: path → mode and object."""

    repository: Repository
    entries: Mapping[str, TreeEntry]

    @classmethod
    def from_commit(cls, repository: Repository, commit: str) -> CommitTree:
        """Return the files of a commit. Raises GitError when there is no such commit."""
        return cls(repository, call_cached(_read_entries, repository, commit))

    def read_texts(self, paths: Iterable[str]) -> dict[str, str]:
        """Read path → text of those of these paths that are files of the tree, and text in UTF-8.

        Without links and submodules, files over TAMPER_FILE_BYTES, and what is beyond TAMPER_TOTAL_BYTES together.
        """
        chosen = {path: self.entries[path] for path in paths if path in self.entries}
        oids = {oid for mode, oid in chosen.values() if mode not in (_MODULE, _LINK)}
        contents = ObjectReader(self.repository.git)
        try:
            data = dict(contents.read_objects(sorted(oids), TAMPER_FILE_BYTES, TAMPER_TOTAL_BYTES))
        finally:
            contents.close()
        texts = {}
        for path, (_, oid) in chosen.items():
            text = _decode_utf8(data.get(oid))
            if text is not None:
                texts[path] = text
        return texts

    def read_text(self, path: str) -> str:
        """Read the text of one file; empty where read_texts has none."""
        return self.read_texts([path]).get(path, "")


def write_tree(repository: Repository, entries: Mapping[str, TreeEntry]) -> str:
    """Write a tree of these entries into the repository and return its name."""
    lines = (f"{mode} {oid}\t".encode() + os.fsencode(path) + b"\0" for path, (mode, oid) in entries.items())
    with tempfile.TemporaryDirectory() as scratch:
        git = Git(git_dir=repository.path, index=Path(scratch) / "index")
        git.execute("update-index", "--replace", "-z", "--index-info", stdin=b"".join(lines))
        return git.text("write-tree").strip()


def _decode_utf8(data: bytes | None) -> str | None:
    """Return the data as text; None where there is none, or it is not UTF-8."""
    try:
        return data.decode() if data is not None else None
    except UnicodeDecodeError:
        return None
