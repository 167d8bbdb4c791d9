"""Trees of commits as path → mode and object, trees written from the files of two, and the texts of files that differ
between two commits: few git processes, however many files. Experiments and the search for tampering read commits by
it."""

from __future__ import annotations

import functools
import os
import posixpath
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.command import Git
from perdure.adapters.git.objects import ObjectReader
from perdure.adapters.git.patch import list_changes
from perdure.adapters.git.repository import Repository, call_cached
from perdure.models.limits import TAMPER_FILE_BYTES, TAMPER_TOTAL_BYTES

TreeEntry = tuple[str, str]
"""Mode and object name of a file."""

_MODULE, _LINK = "160000", "120000"


@functools.lru_cache(3)  # 30 MB for each 100,000 files; every delivery needs its base's
def _read_entries(repository: Repository, commit: str) -> Mapping[str, TreeEntry]:
    """Read path → (mode, object name) of all files of a commit, links and submodules too. Raises GitError when there is
    no such commit. The answers for the last three commits are cached."""
    return {path: (mode, oid) for path, mode, oid in repository.list_files(commit)}


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

        Left out: links, submodules, files over TAMPER_FILE_BYTES, and what is beyond TAMPER_TOTAL_BYTES together.
        Raises GitError when git ends while it reads.
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

    def read_links(self) -> dict[str, str]:
        """Read path → target of the symbolic links to paths inside the tree, as paths from its top."""
        oids = {path: oid for path, (mode, oid) in self.entries.items() if mode == _LINK}
        contents = ObjectReader(self.repository.git)
        try:
            data = dict(contents.read_objects(sorted({*oids.values()}), TAMPER_FILE_BYTES, TAMPER_TOTAL_BYTES))
        finally:
            contents.close()
        targets = {path: os.fsdecode(data.get(oid) or b"") for path, oid in oids.items()}
        inside = {path: posixpath.normpath(posixpath.join(posixpath.dirname(path), t)) for path, t in targets.items()}
        return {path: target for path, target in inside.items() if target[:1] not in ("/", ".")}

    def read_text(self, path: str) -> str:
        """Read the text of one file; empty where read_texts has none."""
        return self.read_texts([path]).get(path, "")


def write_tree(repository: Repository, entries: Mapping[str, TreeEntry]) -> str:
    """Write a tree object of these entries into the repository and return its name. Raises GitError when git refuses
    one."""
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


class DifferingFiles:
    """The files of one commit that another one does not have in the same way: see `between_commits`.

    repository, commit  the commit whose files these are
    changed             paths that differ between the two commits, whether or not this one has them
    """

    def __init__(self, store: _TextStore, commit: str, changed: Mapping[str, TreeEntry]) -> None:
        self._store, self.repository, self.commit = store, store.repository, commit
        self._entries = {path: entry for path, entry in changed.items() if set(entry[0]) != {"0"}}
        self.changed = frozenset(changed)

    @classmethod
    def between_commits(cls, repository: Repository, base: str, head: str) -> tuple[DifferingFiles, DifferingFiles]:
        """Return the files that differ between two commits, as (before, after): those of `base` and those of `head`.

        Where `head` does not contain `base`, before is their merge base: what others did on the base meanwhile was not
        taken away by this change. Raises GitError for names that are no commits.
        """
        merge_base = repository.merge_base(base, head)
        old: dict[str, TreeEntry] = {}
        new: dict[str, TreeEntry] = {}
        for change in list_changes(repository, merge_base, head):
            old[change.path], new[change.path] = (change.was_mode, change.was_sha), (change.mode, change.sha)
        store = _TextStore(repository)
        return cls(store, merge_base, old), cls(store, head, new)

    def has(self, path: str) -> bool:
        """Return whether the commit has this path, and it differs."""
        return path in self._entries

    def object_name(self, path: str) -> str:
        """Return the object name of a path's bytes, the same for the same bytes; empty when the path is not here."""
        return self._entries.get(path, ("", ""))[1]

    def is_link(self, path: str) -> bool:
        """Return whether the path is a symbolic link in this commit."""
        return self._entries.get(path, ("", ""))[0] == _LINK

    def read_text(self, path: str) -> str | None:
        """Read a file's text; None when it is absent, no text in UTF-8, too large, or a link."""
        mode, oid = self._entries.get(path, (_LINK, ""))
        return self._store.read_text(oid) if mode not in (_LINK, _MODULE) else None

    def preload(self, paths: Iterable[str]) -> None:
        """Read the texts of many paths at once, so that read_text finds them in memory."""
        entries = (self._entries[path] for path in paths if path in self._entries)
        self._store.preload(oid for mode, oid in entries if mode not in (_LINK, _MODULE))

    def close(self) -> None:
        """End the git process that reads, for the other commit's files as well; the next reading starts it anew."""
        self._store.close()


class _TextStore:
    """A store of texts out of a repository, each object read once: one process, however many are read, and however
    often."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self._texts: dict[str, str | None] = {}
        self._remaining_bytes = TAMPER_TOTAL_BYTES
        self._contents = ObjectReader(repository.git)

    def read_text(self, oid: str) -> str | None:
        """Read one object's text; None as for preload."""
        self.preload((oid,))
        return self._texts[oid]

    def preload(self, oids: Iterable[str]) -> None:
        """Read these objects, unless they were read before, and keep their texts. None is kept for what is missing, no
        text in UTF-8, over TAMPER_FILE_BYTES, or beyond TAMPER_TOTAL_BYTES of all. Raises GitError when git ends while
        it reads."""
        wanted = sorted({oid for oid in oids if oid not in self._texts})
        self._texts |= dict.fromkeys(wanted)
        for oid, data in self._contents.read_objects(wanted, TAMPER_FILE_BYTES, self._remaining_bytes):
            if data is not None:
                self._remaining_bytes -= len(data)
                self._texts[oid] = _decode_text(data)

    def close(self) -> None:
        self._contents.close()


def _decode_text(data: bytes) -> str | None:
    """Return the text of a file, without a byte order mark and with plain line feeds; None where it is not UTF-8 or
    holds a null byte."""
    if b"\0" in data:
        return None
    try:
        return re.sub(r"\r\n?", "\n", data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return None
