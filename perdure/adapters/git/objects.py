"""Git objects written without a git process: 1 ms each instead of 5, and synced (feasibility.md §6.1)."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
import zlib
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.door import IDENTITY
from perdure.adapters.system.files import sync_directory

FILE, TREE = "100644", "40000"


@dataclass(frozen=True)
class TreeEntry:
    """One line of a tree object."""

    name: str
    sha: str
    mode: str = FILE


@dataclass(frozen=True)
class ObjectStore:
    """Writes loose objects into an `objects` directory; each is durable when its method returns."""

    path: Path

    def blob(self, data: bytes, known: Container[str] = ()) -> str:
        """`known`: blobs that are in the repository for certain, packed ones too, and need no writing."""
        return self._write("blob", data, known)

    def tree(self, entries: Iterable[TreeEntry]) -> str:
        """Names need no order here: git's own (a directory sorts as if it ended in `/`) is applied."""
        ordered = sorted(entries, key=lambda e: os.fsencode(e.name + ("/" if e.mode == TREE else "")))
        lines = (f"{e.mode} ".encode() + os.fsencode(e.name) + b"\0" + bytes.fromhex(e.sha) for e in ordered)
        return self._write("tree", b"".join(lines))

    def commit(self, tree: str, parents: Iterable[str], message: str, *, at: int | None = None) -> str:
        """`at`: seconds since 1970, where the commit is not to depend on when it is made."""
        when = int(time.time()) if at is None else at
        who = f"{IDENTITY['GIT_AUTHOR_NAME']} <{IDENTITY['GIT_AUTHOR_EMAIL']}> {when} +0000"
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}"]
        return self._write("commit", ("\n".join(lines) + f"\n\n{message.strip()}\n").encode(errors="replace"))

    def written_commit(self, data: bytes) -> str:
        """A commit as it stands in the object, headers and all."""
        return self._write("commit", data)

    def _write(self, kind: str, data: bytes, known: Container[str] = ()) -> str:
        stored = f"{kind} {len(data)}".encode() + b"\0" + data
        sha = hashlib.sha1(stored, usedforsecurity=False).hexdigest()
        if sha in known:
            return sha
        directory = self.path / sha[:2]
        target = directory / sha[2:]
        if target.exists() and target.stat().st_size:  # a power cut can leave an empty file under a good name
            os.utime(target)  # somebody is about to refer to it: not to be dropped for being old
            return sha
        if not directory.exists():
            directory.mkdir(exist_ok=True)
            sync_directory(self.path)
        handle, temporary = tempfile.mkstemp(prefix="tmp_obj_", dir=directory)  # git's own name for unfinished ones
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(zlib.compress(stored, 1))
                file.flush()
                os.fchmod(file.fileno(), 0o444)
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        sync_directory(directory)
        return sha
