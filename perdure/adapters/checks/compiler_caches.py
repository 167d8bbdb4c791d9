"""Compilers' caches: filled by a base's own run, copied for each run of a change (docs/workspaces.md).

They lie below `seeds/<key of the base and its environment>/<variable>/`. Nothing but code of the base and its toolchain
has written one, and no command is shown one: each gets a copy of its own, which is gone when it has ended. A small one
lies there as an archive too, `<variable>.tar`, and its copies are unpacked in memory: Go alone makes 256 directories,
which takes longer on some disks than all it then compiles.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
import time
import uuid
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from perdure.adapters.checks.runners import RUNNERS
from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.environment import UNPACKED
from perdure.adapters.system.directories import UnsupportedFileType, copy_entries, discard, list_entries
from perdure.adapters.system.files import sync_all

_COPIES = "caches"

SEED_BYTES, SEEDS_BYTES = 1024**3, 4 * 1024**3
"""Bytes that are stored of what one base's run has compiled, as each run of a change copies as much; and of all bases
together."""

SEED_ARCHIVED_BYTES = 16 * 1024**2
"""Bytes beyond which copies are on the disk: a change that compiles sixty times as much would fill the sandbox's
memory."""

SEED_KEPT = timedelta(days=7)
"""The time after which an unused cache is removed: as long as a base's results are used, as then its own run comes
again."""

SEED_MADE_S = 3600.0
"""Seconds after which a half-made cache must have been left by a death: to move one takes a moment."""


@dataclass(frozen=True)
class CompilerCache:
    """The compiler caches of one base.

    root         the directory of those of all bases
    key          hash of the base and its environment
    is_base_run  the base itself runs, and what it leaves is stored
    """

    root: Path
    key: str
    is_base_run: bool = False

    def lend_copies(self, command: SandboxCommand) -> SandboxCommand:
        """Copy the caches below the command's own `results`, and return the command with the variables that name the
        copies.

        Copies of a small cache are unpacked in memory by the sandbox, except in the base's own run. In that run a cache
        that does not exist yet begins as an empty directory; elsewhere its variable is not set. What cannot be copied
        is left out: it saves time, and nothing depends on it. A cache that is used is marked as such by its time.
        """
        assert command.results is not None
        copies, shown_at = command.results / _COPIES, (command.results_at or command.results) / _COPIES
        variables, unpacked = dict[str, str](), dict[str, Path]()
        for runner in RUNNERS:
            if not (name := runner.cache_variable):
                continue
            source, archive = self.root / self.key / name, f"{name}.tar"
            with contextlib.suppress(OSError, UnsupportedFileType):  # it saves time, and nothing depends on it
                if not self.is_base_run and source.with_name(archive).is_file():
                    copies.mkdir(exist_ok=True)
                    shutil.copyfile(source.with_name(archive), copies / archive)
                    variables[name] = f"{UNPACKED}/{name}"
                    unpacked[name] = shown_at / archive
                else:
                    (copies / name).mkdir(parents=True)
                    if source.is_dir():
                        copy_entries(
                            source,
                            copies / name,
                            list_entries(source, os.listdir(source), frozenset(), digests=False),
                            (),
                        )
                    elif not self.is_base_run:
                        continue
                    variables[name] = str(shown_at / name)
                if source.is_dir():
                    os.utime(source.parent)
        return replace(command, env={**variables, **command.env}, unpacked=unpacked)

    def reclaim_copies(self, results: Path, *, ended: bool) -> None:
        """Remove the copies below `results`; those of the base's own run, if it came to its end, are stored in the
        place of what was there."""
        if self.is_base_run and ended:
            staging = self.root / f".new-{uuid.uuid4().hex}"
            with contextlib.suppress(OSError, UnsupportedFileType):
                self._store_copies(results / _COPIES, staging)
            discard(staging)
        discard(results / _COPIES)

    def _store_copies(self, copies: Path, staging: Path) -> None:
        """Move the caches in `copies` into `staging`, write archives of small ones, and put it in the place of this
        base's stored caches.

        Afterwards caches that are unused or too many are removed. Nothing is stored where no file was compiled. Test
        results that a compiler keeps in its cache are marked as expired: each run runs its own tests. Raises NotPlain
        for links, and for more than SEED_BYTES.
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
        staging.mkdir(parents=True)
        for runner in RUNNERS:
            if runner.cache_variable in filled:
                (copies / runner.cache_variable).rename(staging / runner.cache_variable)
                if runner.expiry_file:  # each run runs its own tests
                    (staging / runner.cache_variable / runner.expiry_file).write_text(f"{time.time_ns()}\n")
                if size <= SEED_ARCHIVED_BYTES:
                    with tarfile.open(staging / f"{runner.cache_variable}.tar", "w") as archive:
                        archive.add(staging / runner.cache_variable, ".")
        sync_all(staging)
        with contextlib.suppress(FileNotFoundError):
            (self.root / self.key).rename(self.root / f".gone-{uuid.uuid4().hex}")
        staging.rename(self.root / self.key)
        remove_unused_caches(self.root)


def remove_unused_caches(root: Path, older_than_s: float = SEED_KEPT.total_seconds()) -> None:
    """Remove caches that nobody has used for so long, what a death has left, and, beyond SEEDS_BYTES, those not used
    for longest.

    A run that is copying one of them then does without it.
    """
    caches = list[tuple[float, Path]]()
    for path in root.glob("*"):
        with contextlib.suppress(OSError):
            used_at = path.stat().st_mtime
            if time.time() - used_at > older_than_s or path.name.startswith(".gone-"):
                discard(path)
            elif not path.name.startswith(".") or time.time() - used_at > SEED_MADE_S:
                caches.append((used_at if path.name[0] != "." else 0.0, path))
    size = 0
    for _, path in sorted(caches, reverse=True):
        with contextlib.suppress(OSError, UnsupportedFileType):
            size += sum(entry.size for entry in list_entries(path, os.listdir(path), frozenset(), digests=False))
        if size > SEEDS_BYTES or path.name.startswith("."):
            discard(path)
