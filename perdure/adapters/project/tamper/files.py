"""The files of two commits in the vault, and which of them differ: few git processes, however many files."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from perdure.adapters.git.contents import Contents
from perdure.adapters.git.repository import Repository
from perdure.models.policy import (
    TAMPER_DEPTH,
    TAMPER_FILE_BYTES,
    TAMPER_HERE_BYTES,
    TAMPER_HERE_FILE_BYTES,
    TAMPER_TOTAL_BYTES,
)

_LINK, _MODULE = "120000", "160000"
_T = TypeVar("_T")

Entry: TypeAlias = tuple[str, str]
"""Mode and object."""


class TooLarge(Exception):
    """More is to be read than is read in this process: see `apart`."""


class Files:
    """One commit of a repository, beside another one: see `pair`.

    commit   what `names` and `text` are about
    changed  paths that differ between the two commits, whether or not they are here
    behind   whether what both have in common stands for the base, which has gone on
    """

    def __init__(self, store: _Store, commit: str, changed: Mapping[str, Entry], behind: bool) -> None:
        self._store, self.commit, self.behind = store, commit, behind
        self._here = {path: found for path, found in changed.items() if set(found[0]) != {"0"}}
        self.changed = frozenset(changed)

    @classmethod
    def pair(cls, repository: Repository, base: str, head: str, *, apart: bool = False) -> tuple[Files, Files]:
        """(before, after). Where `head` does not contain `base`, before is what they have in common: what others did
        on the base meanwhile was not taken away by this change. `apart`: this process has limits of its own, and large
        files may be read in it. Raises GitError for names that are no commits."""
        common = repository.merge_base(base, head)
        listed = repository.git.run("diff-tree", "-r", "-z", "--no-renames", "--end-of-options", common, head).stdout
        parts = listed.split(b"\0")[:-1]
        old: dict[str, Entry] = {}
        new: dict[str, Entry] = {}
        for line, name in zip(parts[::2], parts[1::2], strict=True):
            before_mode, after_mode, before_oid, after_oid, _ = line.decode().lstrip(":").split(" ")
            path = os.fsdecode(name)
            old[path], new[path] = (before_mode, before_oid), (after_mode, after_oid)
        store = _Store(repository, base, head, apart)
        return cls(store, common, old, common != base), cls(store, head, new, common != base)

    def pair_of(self) -> dict[str, Any]:
        """The arguments that `pair` was given."""
        return self._store.pair

    @cached_property
    def names(self) -> frozenset[str]:
        """Every path of the commit."""
        return frozenset((self._store.tree.keys() - self.changed) | self._here.keys())

    def has(self, path: str) -> bool:
        """Whether the commit has this path; free for one that differs."""
        return self._entry(path) is not None

    def blob(self, path: str) -> str:
        """What holds the same bytes has the same one; empty when the path is not here."""
        found = self._entry(path)
        return found[1] if found else ""

    def is_link(self, path: str) -> bool:
        found = self._entry(path)
        return found is not None and found[0] == _LINK

    def text(self, path: str) -> str | None:
        """A file's text; None when it is absent, no text in UTF-8, too large, or a link out of the tree."""
        for _ in range(TAMPER_DEPTH):
            found = self._entry(path)
            text = self._store.text(found[1]) if found and found[0] != _MODULE else None
            if found is None or found[0] != _LINK:
                return text
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), text or ""))
        return None

    def mentioning(self, pattern: str) -> list[str]:
        """Text files of the commit that hold this (an extended regular expression of POSIX): one process."""
        key = self.commit, pattern
        if key not in self._store.found:
            listed = self._store.run("grep", "-l", "-z", "-I", "-E", "-e", pattern, self.commit, "--").split(b"\0")
            self._store.found[key] = [os.fsdecode(name).partition(":")[2] for name in listed[:-1]]
        return self._store.found[key]

    def once(self, path: str, make: Callable[[str, str | None], _T]) -> _T:
        """`make(path, text)`, made once for both commits where a file holds the same bytes on them."""
        if self.is_link(path):
            return make(path, self.text(path))
        key = make, path, self.blob(path)
        if key not in self._store.made:
            self._store.made[key] = make(path, self.text(path))
        found: _T = self._store.made[key]
        return found

    def load(self, paths: Iterable[str]) -> None:
        """Read many at once, on the other commit as well."""
        found = map(self._entry, paths)
        self._store.load(entry[1] for entry in found if entry and entry[0] != _MODULE)

    def close(self) -> None:
        """End what reads, of the other commit as well; who reads on begins it anew."""
        self._store.close()

    def _entry(self, path: str) -> Entry | None:
        return self._here.get(path) if path in self.changed else self._store.tree.get(path)


class _Store:
    """Objects of a repository, each read once; paths of one commit, which the other has too where they do not differ.
    However many are asked for, and however often: one process."""

    def __init__(self, repository: Repository, base: str, commit: str, apart: bool) -> None:
        self._git, self._commit, self._apart = repository.git, commit, apart
        self.pair = {"repository": repository.path, "base": base, "head": commit}
        self.found: dict[tuple[str, str], list[str]] = {}
        self.made: dict[tuple[Callable[..., Any], str, str], Any] = {}
        self._texts: dict[str, str | None] = {}
        self._left = TAMPER_TOTAL_BYTES
        self._contents = Contents(repository.git)

    def run(self, *words: str) -> bytes:
        return self._git.run(*words, ok=(0, 1)).stdout

    @cached_property
    def tree(self) -> dict[str, Entry]:
        found = {}
        for entry in self._git.run("ls-tree", "-r", "-z", "--end-of-options", self._commit).stdout.split(b"\0")[:-1]:
            head, _, name = entry.partition(b"\t")
            mode, _, oid = head.decode().split(" ")
            found[os.fsdecode(name)] = (mode, oid)
        return found

    def text(self, oid: str) -> str | None:
        self.load((oid,))
        return self._texts[oid]

    def load(self, oids: Iterable[str]) -> None:
        wanted = sorted({oid for oid in oids if oid not in self._texts})
        self._texts |= dict.fromkeys(wanted)
        for oid, data in self._contents.read(wanted, TAMPER_FILE_BYTES, self._left):
            if data is not None:
                self._left -= len(data)
                read = TAMPER_TOTAL_BYTES - self._left
                if not self._apart and (len(data) > TAMPER_HERE_FILE_BYTES or read > TAMPER_HERE_BYTES):
                    raise TooLarge
                self._texts[oid] = _decoded(data)

    def close(self) -> None:
        self._contents.close()


def _decoded(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return re.sub(r"\r\n?", "\n", data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return None
