"""The files that setup made, kept for the next delivery whose setup would make the same (docs/adr/0010).

Below `environments/<question>/<number>/` lie `files/`, `files.json` (all of them, with digests) and `entry.json`. A
question is all that is known before setup runs: whose commands, on which toolchain. An answer names the files of the
checkout that setup opened, with what they held: it is right for every commit in which they hold the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic import Field, ValidationError

from perdure.adapters.git.vault import Vault
from perdure.adapters.sandbox.packages import FETCHED
from perdure.adapters.sandbox.toolchain import Binds
from perdure.adapters.system.boot import boot
from perdure.adapters.system.copies import Copied, NotPlain, differs, listing, put
from perdure.adapters.system.files import write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.system.opened import OpenedFiles
from perdure.adapters.system.removal import discard, remove
from perdure.models.base import Recorded

ENVIRONMENT_KEPT = timedelta(days=7)
"""After this long setup runs again although the repository is the same: what no lock file pins is renewed."""

ENVIRONMENT_MADE_S = 3600.0
"""A half-made environment this old was left by a death: to link and sync 300 MB takes seconds."""


_LINK, _SUBMODULE = "120000", "160000"


class Inputs(Recorded):
    """The parts of a commit that setup has depended on. `tree`: all of its files; else the other fields.

    commit       its history, too, where setup looked for it
    files        relative path → mode and blob of each file that was opened
    directories  relative path → digest of the names in each directory that was listed or had a file opened
    links        digest of every symbolic link and submodule: following one opens nothing that could be seen
    """

    tree: str = ""
    commit: str = ""
    files: dict[str, str] = Field(default_factory=dict)
    directories: dict[str, str] = Field(default_factory=dict)
    links: str = ""


class KeptEnvironment(Recorded):
    """One kept environment.

    names      relative paths at which setup made something
    files      digest of files.json
    boot       of the machine, when all bytes were compared last: only a power cut damages what has reached the disk
    elsewhere  the package caches, which it needs beside it
    """

    inputs: Inputs
    names: tuple[str, ...]
    binds: Binds
    size: int
    files: str
    boot: str
    made_at: float
    elsewhere: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Commit:
    """The files of a commit: relative path → (mode, blob), and the names in each directory."""

    sha: str
    tree: str
    files: Mapping[str, tuple[str, str]]
    names: Mapping[str, tuple[str, ...]]

    @classmethod
    def read(cls, vault: Vault, commit: str) -> Commit:
        files: dict[str, tuple[str, str]] = {}
        names: dict[str, set[str]] = {"": set()}
        for path, mode, blob in vault.files(commit):
            files[path] = mode, blob
            mark = mode
            while path:
                above, _, name = path.rpartition("/")
                known = names.setdefault(above, set())
                if (named := f"{mark} {name}") in known:
                    break
                known.add(named)
                path, mark = above, "directory"
        return cls(commit, vault.tree_of(commit), files, {path: tuple(sorted(found)) for path, found in names.items()})

    def inputs(self, opened: OpenedFiles | None) -> Inputs:
        """The parts of this commit that were opened; all of it where that is None, or was not seen completely."""
        commit = self.sha if opened and ".git" in opened.files else ""
        if opened is None or not opened.all_seen:
            return Inputs(tree=self.tree, commit=commit)
        files = {path: " ".join(self.files[path]) for path in opened.files if path in self.files}
        directories = {"", *opened.directories, *(path.rpartition("/")[0] for path in files)}
        names = {path: self._directory(path) for path in directories}
        return Inputs(commit=commit, files=files, directories=names, links=self._links())

    def has(self, inputs: Inputs) -> bool:
        """True when setup would find here all that it found there."""
        if inputs.commit not in ("", self.sha):
            return False
        if inputs.tree:
            return inputs.tree == self.tree
        return (
            all(" ".join(self.files.get(path, ())) == held for path, held in inputs.files.items())
            and all(self._directory(path) == held for path, held in inputs.directories.items())
            and self._links() == inputs.links
        )

    def _directory(self, path: str) -> str:
        return digest(self.names.get(path))

    def _links(self) -> str:
        return digest(sorted((path, *about) for path, about in self.files.items() if about[0] in (_LINK, _SUBMODULE)))


class Environments:
    """Those of one home. `limit`: bytes that are kept; beyond it the least recently used go first."""

    def __init__(self, home: Home, limit: int) -> None:
        self._home, self._limit = home, limit
        self._root = home.root / "environments"

    @property
    def on(self) -> bool:
        return self._limit > 0

    def place(self, question: str, commit: Commit, tree: Path) -> Binds | None:
        """Put what setup made for the same inputs into a fresh worktree; None: there is nothing, or it was damaged."""
        for path in self._entries(question):
            with _held(path, fcntl.LOCK_SH) as held:
                entry = _read(path) if held else None
                if entry is None or not commit.has(entry.inputs) or entry.elsewhere != self._elsewhere(entry.binds):
                    continue
                kept = _files(path, entry)
                if kept is None or _too_old(entry) or differs(path / "files", kept, bytes_too=entry.boot != boot()):
                    _drop(path)
                    continue
                try:
                    put(path / "files", tree, kept, entry.names)
                except OSError:
                    for name in entry.names:  # a full disk, most likely: setup will say so in its own words
                        remove(tree / name)
                    return None
                os.utime(path)
                if entry.boot != boot():
                    _write(path, entry.model_copy(update={"boot": boot()}))
                return entry.binds
        return None

    def same(self, question: str, one: Commit, other: Commit) -> bool:
        """True where what is kept for one commit is right for the other, too."""
        kept = filter(None, map(_read, self._entries(question)))
        return any(one.has(entry.inputs) and other.has(entry.inputs) for entry in kept)

    def keep(self, question: str, inputs: Inputs, tree: Path, names: tuple[str, ...], without: frozenset[str]) -> Path:
        """Take what setup made at `names` into a directory of its own; `finish` makes it an answer, once it lasts.

        Raises OSError and NotPlain where it cannot be kept: nothing is left then.
        """
        fresh = self._root / question / f".new-{uuid.uuid4().hex}"
        (fresh / "files").mkdir(parents=True)
        try:
            kept = list(listing(tree, names, without))
            size = sum(one.size for one in kept)
            if size > self._limit:
                raise NotPlain(f"{size} bytes are more than are kept")
            put(tree, fresh / "files", kept, names)
            data = json.dumps(kept, separators=(",", ":")).encode()
            write_whole(fresh / "files.json", data)
            entry = KeptEnvironment(
                inputs=inputs,
                names=names,
                binds=Binds(),
                size=size,
                files=hashlib.sha256(data).hexdigest(),
                boot=boot(),
                made_at=time.time(),
            )
            _write(fresh, entry)
        except BaseException:
            remove(fresh)
            raise
        return fresh

    def finish(self, fresh: Path, binds: Binds) -> None:
        """Make it an answer: call it when its bytes are on the disk. Others go where there are too many."""
        entry = _read(fresh)
        if entry is not None:
            _write(fresh, entry.model_copy(update={"binds": binds, "elsewhere": self._elsewhere(binds)}))
            fresh.rename(fresh.with_name(uuid.uuid4().hex))
            self.sweep()

    def sweep(self) -> None:
        """Remove what is too old, what a death has left, and beyond the limit what was not used for longest."""
        found: list[tuple[float, Path, KeptEnvironment]] = []
        for path in (self._root / "locks").glob("*"):
            with contextlib.suppress(FileNotFoundError):  # at worst two make the same at once
                if time.time() - path.stat().st_mtime > ENVIRONMENT_KEPT.total_seconds():
                    path.unlink()
        for path in self._root.glob("[!l]*/*"):
            with contextlib.suppress(FileNotFoundError):
                entry, used = _read(path), path.stat().st_mtime
                if path.name.startswith("."):
                    if time.time() - used > ENVIRONMENT_MADE_S:
                        remove(path)
                elif entry is None or _too_old(entry):
                    _drop(path)
                elif entry is not None:
                    found.append((used, path, entry))
        size = 0
        for _, path, entry in sorted(found, key=lambda one: one[0], reverse=True):
            size += entry.size
            if size > self._limit:
                with _held(path, fcntl.LOCK_EX) as free:
                    if free:
                        _drop(path)

    def lock(self, question: str, commit: Commit) -> Path:
        """Held by whoever makes an environment for this very commit's files: others wait for it, once."""
        return self._root / "locks" / digest([question, commit.tree])[:32]

    def _entries(self, question: str) -> list[Path]:
        directory = self._root / question
        return [path for path in directory.iterdir() if path.name[0] != "."] if directory.is_dir() else []

    def _elsewhere(self, binds: Binds) -> tuple[tuple[int, int], ...]:
        """Caches that setup fills beside the worktree: an environment is of no use when they were removed."""
        found = [self._home.caches / binds.cache / name for name in FETCHED]
        return tuple((path.stat().st_dev, path.stat().st_ino) if path.is_dir() else (0, 0) for path in found)


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


@contextmanager
def _held(path: Path, how: int) -> Iterator[bool]:
    """A lock on a directory that is in use, or about to go; False when it is gone or somebody else's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        yield os.path.exists(path)
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _drop(path: Path) -> None:
    """Out of the way at once; whoever is reading it has his own descriptor of each file he has opened."""
    gone = path.with_name(f".gone-{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):
        path.rename(gone)
        discard(gone)


def _read(path: Path) -> KeptEnvironment | None:
    with contextlib.suppress(OSError, ValidationError):
        return KeptEnvironment.model_validate_json((path / "entry.json").read_bytes())
    return None


def _write(path: Path, entry: KeptEnvironment) -> None:
    write_whole(path / "entry.json", entry.model_dump_json().encode())


def _files(path: Path, entry: KeptEnvironment) -> list[Copied] | None:
    try:
        data = (path / "files.json").read_bytes()
        return [Copied(*one) for one in json.loads(data)] if hashlib.sha256(data).hexdigest() == entry.files else None
    except (OSError, ValueError, TypeError):
        return None


def _too_old(entry: KeptEnvironment) -> bool:
    return time.time() - entry.made_at > ENVIRONMENT_KEPT.total_seconds()
