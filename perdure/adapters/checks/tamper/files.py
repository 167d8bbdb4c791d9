"""The files that differ between two commits in the vault: few git processes, however many files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from perdure.adapters.git.object_reader import ObjectReader
from perdure.adapters.git.repository import Repository
from perdure.models.limits import TAMPER_FILE_BYTES, TAMPER_TOTAL_BYTES

_LINK, _MODULE = "120000", "160000"

Entry: TypeAlias = tuple[str, str]
"""Mode and object."""


class Files:
    """The files of one commit that another one has otherwise: see `pair`.

    changed  paths that differ between the two commits, whether or not they are here
    """

    def __init__(self, store: _Store, commit: str, changed: Mapping[str, Entry]) -> None:
        self._store, self.commit = store, commit
        self._here = {path: found for path, found in changed.items() if set(found[0]) != {"0"}}
        self.changed = frozenset(changed)

    @classmethod
    def pair(cls, repository: Repository, base: str, head: str) -> tuple[Files, Files]:
        """(before, after). Where `head` does not contain `base`, before is what they have in common: what others did
        on the base meanwhile was not taken away by this change. Raises GitError for names that are no commits."""
        common = repository.merge_base(base, head)
        listed = repository.git.execute(
            "diff-tree", "-r", "-z", "--no-renames", "--end-of-options", common, head
        ).stdout
        parts = listed.split(b"\0")[:-1]
        old: dict[str, Entry] = {}
        new: dict[str, Entry] = {}
        for line, name in zip(parts[::2], parts[1::2], strict=True):
            before_mode, after_mode, before_oid, after_oid, _ = line.decode().lstrip(":").split(" ")
            path = os.fsdecode(name)
            old[path], new[path] = (before_mode, before_oid), (after_mode, after_oid)
        store = _Store(repository)
        return cls(store, common, old), cls(store, head, new)

    def has(self, path: str) -> bool:
        return path in self._here

    def blob(self, path: str) -> str:
        """Return the name of a path's bytes, the same for the same bytes; empty when the path is not here."""
        return self._here.get(path, ("", ""))[1]

    def is_link(self, path: str) -> bool:
        return self._here.get(path, ("", ""))[0] == _LINK

    def text(self, path: str) -> str | None:
        """A file's text; None when it is absent, no text in UTF-8, too large, or a link."""
        mode, oid = self._here.get(path, (_LINK, ""))
        return self._store.text(oid) if mode not in (_LINK, _MODULE) else None

    def load(self, paths: Iterable[str]) -> None:
        """Read many at once."""
        found = (self._here[path] for path in paths if path in self._here)
        self._store.load(oid for mode, oid in found if mode not in (_LINK, _MODULE))

    def close(self) -> None:
        """End what reads, of the other commit as well; who reads on begins it anew."""
        self._store.close()


class _Store:
    """Objects of a repository, each read once: one process, however many are asked for, and however often."""

    def __init__(self, repository: Repository) -> None:
        self._texts: dict[str, str | None] = {}
        self._left = TAMPER_TOTAL_BYTES
        self._contents = ObjectReader(repository.git)

    def text(self, oid: str) -> str | None:
        self.load((oid,))
        return self._texts[oid]

    def load(self, oids: Iterable[str]) -> None:
        wanted = sorted({oid for oid in oids if oid not in self._texts})
        self._texts |= dict.fromkeys(wanted)
        for oid, data in self._contents.read_objects(wanted, TAMPER_FILE_BYTES, self._left):
            if data is not None:
                self._left -= len(data)
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
