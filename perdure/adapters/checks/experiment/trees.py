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

Entry = tuple[str, str]
"""Mode and object."""

_MODULE, _LINK = "160000", "120000"


@functools.lru_cache(3)  # 30 MB each of 100,000 files: the base's is asked for by every delivery
def _entries(repository: Repository, commit: str) -> Mapping[str, Entry]:
    listed = repository.git.execute("ls-tree", "-r", "-z", "--end-of-options", commit).stdout
    found = {}
    for line in listed.split(b"\0")[:-1]:
        head, _, name = line.partition(b"\t")
        mode, _, oid = head.decode().split(" ")
        found[os.fsdecode(name)] = (mode, oid)
    return found


@dataclass(frozen=True)
class Tree:
    """The paths of a commit."""

    repository: Repository
    entries: Mapping[str, Entry]

    @classmethod
    def of(cls, repository: Repository, commit: str) -> Tree:
        """Raises GitError when there is no such commit."""
        return cls(repository, call_cached(_entries, repository, commit))

    def texts(self, paths: Iterable[str]) -> dict[str, str]:
        """Path → text of those that are here, are files, no larger than the engine reads, and text in UTF-8."""
        wanted = {path: self.entries[path] for path in paths if path in self.entries}
        oids = {oid for mode, oid in wanted.values() if mode not in (_MODULE, _LINK)}
        contents = ObjectReader(self.repository.git)
        try:
            data = dict(contents.read_objects(sorted(oids), TAMPER_FILE_BYTES, TAMPER_TOTAL_BYTES))
        finally:
            contents.close()
        found = {}
        for path, (_, oid) in wanted.items():
            text = _text(data.get(oid))
            if text is not None:
                found[path] = text
        return found

    def text(self, path: str) -> str:
        """Empty where there is none."""
        return self.texts([path]).get(path, "")


def write(repository: Repository, entries: Mapping[str, Entry]) -> str:
    """A tree object of these entries, which git can check out."""
    lines = (f"{mode} {oid}\t".encode() + os.fsencode(path) + b"\0" for path, (mode, oid) in entries.items())
    with tempfile.TemporaryDirectory() as scratch:
        git = Git(git_dir=repository.path, index=Path(scratch) / "index")
        git.execute("update-index", "--replace", "-z", "--index-info", stdin=b"".join(lines))
        return git.text("write-tree").strip()


def _text(data: bytes | None) -> str | None:
    try:
        return data.decode() if data is not None else None
    except UnicodeDecodeError:
        return None
