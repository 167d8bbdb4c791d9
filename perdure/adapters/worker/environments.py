"""A cache of the files that setup made, for the next delivery whose setup would make the same (docs/adr/0010). Used by
`workspace_setup`, which places and stores them; `host` makes it from the configuration.

An entry of the store `environments` has `files/`, `files.json` (all of them, with digests) and `entry.json`. The key is
a digest of all that is known before setup runs: whose commands, on which toolchain. An entry names the files of the
checkout that setup opened, with what they held: it is right for every commit in which they hold the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field, ValidationError

from perdure.adapters.git.vault import Vault
from perdure.adapters.sandbox.environment import Binds
from perdure.adapters.sandbox.setup import DEPENDENCY_PLACES
from perdure.adapters.system.directories import (
    DirectoryEntry,
    UnsupportedFileType,
    copy_entries,
    first_difference,
    list_entries,
    remove_path,
)
from perdure.adapters.system.files import boot_id, sync_all, write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import kept_results
from perdure.adapters.system.opened_files import OpenedFiles
from perdure.models.base import HistoryModel

_LINK, _SUBMODULE = "120000", "160000"


class SetupInputs(HistoryModel):
    """The parts of a commit that setup has depended on. `tree`: all of its files; else the other fields.

    commit       its history, and the tags there, where setup looked for git
    files        relative path → mode and blob of each file that was opened
    directories  relative path → digest of the names in each directory that was listed or had a file opened
    links        digest of every symbolic link and submodule: following one opens nothing that could be seen
    """

    tree: str = ""
    commit: str = ""
    files: dict[str, str] = Field(default_factory=dict)
    directories: dict[str, str] = Field(default_factory=dict)
    links: str = ""


class KeptEnvironment(HistoryModel):
    """An entry of the cache, as `entry.json` holds it.

    names      relative paths at which setup made something
    files      digest of files.json
    boot       of the machine, when all bytes were compared last: only a power cut damages what has reached the disk
    elsewhere  the package caches that the files need beside them, each as (device, inode)
    """

    inputs: SetupInputs
    names: tuple[str, ...]
    binds: Binds
    files: str
    boot: str
    elsewhere: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class CommitFiles:
    """The files of a commit: relative path → (mode, blob), and the names in each directory; `history` is the digest of
    all that git tells of it there, the tags too."""

    history: str
    tree: str
    files: Mapping[str, tuple[str, str]]
    names: Mapping[str, tuple[str, ...]]

    @classmethod
    def load(cls, vault: Vault, commit: str) -> CommitFiles:
        """Read from the vault which files a commit has, and which names each of its directories has."""
        files: dict[str, tuple[str, str]] = {}
        names: dict[str, set[str]] = {"": set()}
        for path, mode, blob in vault.list_files(commit):
            files[path] = mode, blob
            kind = mode
            while path:
                parent, _, name = path.rpartition("/")
                children = names.setdefault(parent, set())
                if (child := f"{kind} {name}") in children:
                    break
                children.add(child)
                path, kind = parent, "directory"
        return cls(
            json_digest([commit, vault.reachable_tags(commit)]),
            vault.tree_of(commit),
            files,
            {path: tuple(sorted(children_of_path)) for path, children_of_path in names.items()},
        )

    def setup_inputs(self, opened: OpenedFiles | None) -> SetupInputs:
        """Return the parts of this commit that setup has depended on: the files it opened, the names in the root, in
        their directories and in those it listed, and all links; the whole tree where `opened` is None or incomplete.
        The commit counts, too, where setup opened `.git`."""
        commit = self.history if opened and ".git" in opened.files else ""
        if opened is None or not opened.all_seen:
            return SetupInputs(tree=self.tree, commit=commit)
        files = {path: " ".join(self.files[path]) for path in opened.files if path in self.files}
        directories = {"", *opened.directories, *(path.rpartition("/")[0] for path in files)}
        names = {path: self._names_digest(path) for path in directories}
        return SetupInputs(commit=commit, files=files, directories=names, links=self._links_digest())

    def satisfies(self, inputs: SetupInputs) -> bool:
        """Return whether setup would find in this commit all that it found in the one these inputs are of, so that it
        would make the same."""
        if inputs.commit not in ("", self.history):
            return False
        if inputs.tree:
            return inputs.tree == self.tree
        return (
            all(" ".join(self.files.get(path, ())) == digest for path, digest in inputs.files.items())
            and all(self._names_digest(path) == digest for path, digest in inputs.directories.items())
            and self._links_digest() == inputs.links
        )

    def _names_digest(self, path: str) -> str:
        return json_digest(self.names.get(path))

    def _links_digest(self) -> str:
        return json_digest(
            sorted((path, *about) for path, about in self.files.items() if about[0] in (_LINK, _SUBMODULE))
        )


class Environments:
    """The cache of one home. `limit`: bytes that are kept; beyond it the least recently used go first; 0: no cache;
    None: as the store has it."""

    def __init__(self, home: Home, limit: int | None) -> None:
        store = kept_results(home, "environments")
        self._home, self._limit = home, store.limits.total_bytes or 0 if limit is None else limit
        self._store = replace(store, limits=replace(store.limits, total_bytes=self._limit))

    @property
    def is_enabled(self) -> bool:
        return self._limit > 0

    def place_files(self, key: str, commit: CommitFiles, tree: Path) -> Binds | None:
        """Put the files that setup made for the same inputs into a fresh worktree, and return what of the machine its
        sandbox has to show.

        None: no entry fits, or its files could not be put there, and those that were are removed again. Entries found
        damaged are removed; the one that is used counts as used now.
        """
        for path in self._store.list_entries(key):
            with self._store.hold_entry(path) as is_held:
                if not is_held:
                    continue
                entry = _read_entry(path)
                if entry is not None and not self._is_right_for(entry, commit):
                    continue
                files = _read_file_list(path, entry) if entry is not None else None
                is_other_boot = entry is not None and entry.boot != boot_id()
                if entry and files is not None and not first_difference(path / "files", files, bytes_too=is_other_boot):
                    for name in entry.names:  # the empty directory of a submodule stands in its place
                        with contextlib.suppress(OSError):
                            (tree / name).rmdir()
                    try:
                        copy_entries(path / "files", tree, files, entry.names)
                    except OSError:
                        for name in entry.names:  # a full disk, most likely: setup will say so in its own words
                            remove_path(tree / name)
                        return None
                    self._store.mark_used(path)
                    if is_other_boot:
                        _write_entry(path, entry.model_copy(update={"boot": boot_id()}))
                    return entry.binds
            self._store.remove_entry(path)  # it is damaged
        return None

    def _is_right_for(self, entry: KeptEnvironment, commit: CommitFiles) -> bool:
        """Return whether setup would make this entry from a commit, and the package caches beside it are the same."""
        return commit.satisfies(entry.inputs) and entry.elsewhere == self._cache_identities(entry.binds)

    def fits_both(self, key: str, commit: CommitFiles, other: CommitFiles) -> bool:
        """Return whether some readable entry below this key is right for both commits, so that setup makes the same on
        both; False where nothing is kept."""
        entries = filter(None, map(_read_entry, self._store.list_entries(key)))
        return any(commit.satisfies(entry.inputs) and other.satisfies(entry.inputs) for entry in entries)

    def store(
        self, key: str, inputs: SetupInputs, tree: Path, names: tuple[str, ...], without: frozenset[str], binds: Binds
    ) -> None:
        """Link or copy what setup made at `names` in the worktree into a new entry for other deliveries, without the
        paths in `without`, and remove entries beyond the limit. Others find the entry once all its bytes are on the
        disk.

        Raises OSError, or UnsupportedFileType where it is larger than the limit or holds a special file: nothing of it
        is kept then.
        """
        files = list(list_entries(tree, names, without))
        size = sum(file.size for file in files)
        if size > self._limit:
            raise UnsupportedFileType(f"{size} bytes are more than are kept")
        with self._store.stage_entry(key) as staging:
            (staging / "files").mkdir()
            copy_entries(tree, staging / "files", files, names)
            data = json.dumps(files, separators=(",", ":")).encode()
            (staging / "files.json").write_bytes(data)
            entry = KeptEnvironment(
                inputs=inputs,
                names=names,
                binds=binds,
                files=hashlib.sha256(data).hexdigest(),
                boot=boot_id(),
                elsewhere=self._cache_identities(binds),
            )
            _write_entry(staging, entry)
            sync_all(staging)

    def lock_path(self, key: str, commit: CommitFiles) -> Path:
        """Return the file that a delivery locks while it makes an environment for this very commit's files, so that
        others wait for it. Nothing is locked here."""
        return self._store.lock_path(json_digest([key, commit.tree])[:32])

    def _cache_identities(self, binds: Binds) -> tuple[tuple[int, int], ...]:
        """Return (device, inode) of each package cache that setup fills beside the worktree, (0, 0) for a missing one:
        an entry is of no use once its caches were removed."""
        paths = [self._home.caches / binds.cache / name for name in DEPENDENCY_PLACES]
        return tuple((path.stat().st_dev, path.stat().st_ino) if path.is_dir() else (0, 0) for path in paths)


def json_digest(value: object) -> str:
    """Return the SHA-256 in hex of a value as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def _read_entry(path: Path) -> KeptEnvironment | None:
    """Return the entry in a directory; None where it is missing or damaged."""
    with contextlib.suppress(OSError, ValidationError):
        return KeptEnvironment.model_validate_json((path / "entry.json").read_bytes())
    return None


def _write_entry(path: Path, entry: KeptEnvironment) -> None:
    write_whole(path / "entry.json", entry.model_dump_json().encode())


def _read_file_list(path: Path, entry: KeptEnvironment) -> list[DirectoryEntry] | None:
    """Return the files of an entry from its files.json; None where that is missing, damaged, or not the one the entry
    names."""
    try:
        data = (path / "files.json").read_bytes()
        return (
            [DirectoryEntry(*fields) for fields in json.loads(data)]
            if hashlib.sha256(data).hexdigest() == entry.files
            else None
        )
    except (OSError, ValueError, TypeError):
        return None
