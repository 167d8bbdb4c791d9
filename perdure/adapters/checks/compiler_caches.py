"""Compilers' caches: filled when the tests run on a base commit, and copied for each run of a change on that base
(docs/workspaces.md). `perdure.adapters.checks.tests` lends and takes back the copies around each command.

They lie in the store `seeds`, by the key of the base and its environment, as `<variable>/`. Nothing but code of the
base and its toolchain has written one, and no command is shown one: each gets a copy of its own, which is removed when
it has ended. A small one lies there as an archive too, `<variable>.tar`, and its copies are unpacked in memory: Go
alone makes 256 directories, which takes longer on some disks than all it then compiles.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.adapters.checks.runners import RUNNERS
from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.environment import UNPACKED
from perdure.adapters.system.directories import UnsupportedFileType, copy_entries, discard, list_entries
from perdure.adapters.system.files import sync_all
from perdure.adapters.system.keyed_store import KeyedStore

_COPIES = "caches"

SEED_BYTES = 1024**3
"""Bytes that are kept of what one base's run has compiled, as each run of a change copies as much."""

SEED_ARCHIVED_BYTES = 128 * 1024**2
"""Bytes beyond which copies are on the disk: a change that compiles eight times as much would fill the sandbox's
memory. Go's standard library, which Go 1.20 and newer compile for each cache, is 58 MB in a thousand files: copied on a
disk they took longer than the tests."""


@dataclass(frozen=True)
class CompilerCache:
    """The compiler caches of one base.

    store        where those of all bases are kept
    key          hash of the base and its environment
    is_base_run  the base itself runs, and what it leaves is stored
    """

    store: KeyedStore
    key: str
    is_base_run: bool = False

    def lend_copies(self, command: SandboxCommand) -> SandboxCommand:
        """Copy the caches below the command's own directory `results`, and return the command with the environment
        variables that name the copies; variables that the command sets itself win.

        Copies of a small cache are archives that the sandbox unpacks in memory, except in the base's own run. In that
        run a cache that does not exist yet begins as an empty directory; in other runs its variable is not set. What
        cannot be copied is left out without an error: it saves time, and nothing depends on it.
        """
        assert command.results is not None
        copies, shown_at = command.results / _COPIES, (command.results_at or command.results) / _COPIES
        variables, unpacked = dict[str, str](), dict[str, Path]()
        with self.store.use_newest(self.key) as kept:
            for runner in RUNNERS:
                if not (name := runner.cache_variable):
                    continue
                source, archive = kept / name if kept else None, f"{name}.tar"
                with contextlib.suppress(OSError, UnsupportedFileType):  # it saves time, and nothing depends on it
                    if kept and not self.is_base_run and (kept / archive).is_file():
                        copies.mkdir(exist_ok=True)
                        shutil.copyfile(kept / archive, copies / archive)
                        variables[name] = f"{UNPACKED}/{name}"
                        unpacked[name] = shown_at / archive
                        continue
                    (copies / name).mkdir(parents=True)
                    if source and source.is_dir():
                        entries = list_entries(source, os.listdir(source), frozenset(), digests=False)
                        copy_entries(source, copies / name, entries, ())
                    elif not self.is_base_run:
                        continue
                    variables[name] = str(shown_at / name)
        return replace(command, env={**variables, **command.env}, unpacked=unpacked)

    def reclaim_copies(self, results: Path, *, ended: bool) -> None:
        """Remove the copies below `results`. Where this is the base's own run and it `ended` by itself, store them
        first, in the place of what was stored for this base.

        What cannot be stored (nothing compiled, links in it, more than SEED_BYTES, errors of the disk) is only removed;
        no error is raised.
        """
        if self.is_base_run and ended:
            with contextlib.suppress(OSError, UnsupportedFileType):
                self._store_copies(results / _COPIES)
        discard(results / _COPIES)

    def _store_copies(self, copies: Path) -> None:
        """Move the caches in `copies` into the store, as a new entry of this base's key, with archives of small ones
        beside them.

        Nothing is stored where no file was compiled. Test results that a compiler keeps in its cache are marked as
        expired, so that each run runs its own tests. Raises UnsupportedFileType for links, and for more than
        SEED_BYTES; OSError for errors of the disk.
        """
        if copies.is_symlink():
            raise UnsupportedFileType(f"{copies} is a link")
        entries = list(list_entries(copies, os.listdir(copies), frozenset(), digests=False))
        size = sum(entry.size for entry in entries)
        if size > SEED_BYTES or any(entry.kind == "l" for entry in entries):
            raise UnsupportedFileType(f"{copies} is too much, or has links")
        filled = {entry.path.partition("/")[0] for entry in entries if entry.kind == "f"}
        if not filled:
            return
        with self.store.stage_entry(self.key) as staging:
            for runner in RUNNERS:
                if runner.cache_variable in filled:
                    (copies / runner.cache_variable).rename(staging / runner.cache_variable)
                    if runner.expiry_file:  # each run runs its own tests
                        (staging / runner.cache_variable / runner.expiry_file).write_text(f"{time.time_ns()}\n")
                    if size <= SEED_ARCHIVED_BYTES:
                        with tarfile.open(staging / f"{runner.cache_variable}.tar", "w") as archive:
                            archive.add(staging / runner.cache_variable, ".")
            sync_all(staging)
