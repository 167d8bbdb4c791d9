"""Compilers' caches: filled by a base's own run, copied for each run of a change (docs/workspaces.md).

Below `seeds/<key of the base and its environment>/<variable>/`. Nothing but code of the base and its toolchain has
written one, and no command is shown one: each gets a copy of its own, which is gone when it has ended. A small one lies
there as an archive too, `<variable>.tar`, and its copies are unpacked in memory: Go alone makes 256 directories, which
takes longer on some disks than all it then compiles.
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
from perdure.adapters.sandbox.base import Command
from perdure.adapters.sandbox.environment import UNPACKED
from perdure.adapters.system.copies import NotPlain, listing, put
from perdure.adapters.system.files import sync_all
from perdure.adapters.system.removal import discard

_ROOM = "caches"

SEED_BYTES, SEEDS_BYTES = 1024**3, 4 * 1024**3
"""Of what one base's run has compiled, for each run of a change copies as much; and of all that is kept."""

SEED_ARCHIVED_BYTES = 16 * 1024**2
"""Beyond this copies are on the disk: a change that compiles sixty times as much would fill the sandbox's memory."""

SEED_KEPT = timedelta(days=7)
"""As long as a base's results are believed: by then its own run comes again."""

SEED_MADE_S = 3600.0
"""A half-made one this old was left by a death: to move it takes a moment."""


@dataclass(frozen=True)
class Seed:
    """That of one base. `root`: of all of them; `made`: the base itself runs, and what it leaves is kept."""

    root: Path
    key: str
    made: bool = False

    def lend(self, command: Command) -> Command:
        """The command with copies, below its own `results` or in memory, and with the variables that name them."""
        assert command.results is not None
        ours, seen = command.results / _ROOM, (command.results_at or command.results) / _ROOM
        variables, unpacked = dict[str, str](), dict[str, Path]()
        for runner in RUNNERS:
            if not (name := runner.cache):
                continue
            source, archive = self.root / self.key / name, f"{name}.tar"
            with contextlib.suppress(OSError, NotPlain):  # it saves time, and nothing depends on it
                if not self.made and source.with_name(archive).is_file():
                    ours.mkdir(exist_ok=True)
                    shutil.copyfile(source.with_name(archive), ours / archive)
                    variables[name] = f"{UNPACKED}/{name}"
                    unpacked[name] = seen / archive
                else:
                    (ours / name).mkdir(parents=True)
                    if source.is_dir():
                        put(source, ours / name, listing(source, os.listdir(source), frozenset(), digests=False), ())
                    elif not self.made:
                        continue
                    variables[name] = str(seen / name)
                if source.is_dir():
                    os.utime(source.parent)
        return replace(command, env={**variables, **command.env}, unpacked=unpacked)

    def take_back(self, results: Path, *, ended: bool) -> None:
        """Remove the copies; those of a base's run that came to its end are kept in the place of what was there."""
        if self.made and ended:
            fresh = self.root / f".new-{uuid.uuid4().hex}"
            with contextlib.suppress(OSError, NotPlain):
                self._keep(results / _ROOM, fresh)
            discard(fresh)
        discard(results / _ROOM)

    def _keep(self, room: Path, fresh: Path) -> None:
        if room.is_symlink():
            raise NotPlain(f"{room} is a link")
        found = list(listing(room, os.listdir(room), frozenset(), digests=False))
        size = sum(one.size for one in found)
        if size > SEED_BYTES or any(one.kind == "l" for one in found):
            raise NotPlain(f"{room} is too much, or has links")
        filled = {one.path.partition("/")[0] for one in found if one.kind == "f"}
        if not filled:
            return
        fresh.mkdir(parents=True)
        for runner in RUNNERS:
            if runner.cache in filled:
                (room / runner.cache).rename(fresh / runner.cache)
                if runner.believed:  # each run runs its own tests
                    (fresh / runner.cache / runner.believed).write_text(f"{time.time_ns()}\n")
                if size <= SEED_ARCHIVED_BYTES:
                    with tarfile.open(fresh / f"{runner.cache}.tar", "w") as archive:
                        archive.add(fresh / runner.cache, ".")
        sync_all(fresh)
        with contextlib.suppress(FileNotFoundError):
            (self.root / self.key).rename(self.root / f".gone-{uuid.uuid4().hex}")
        fresh.rename(self.root / self.key)
        sweep(self.root)


def sweep(root: Path, older_than_s: float = SEED_KEPT.total_seconds()) -> None:
    """Remove what nobody has used for so long, what a death has left, and beyond the limit what was not used for
    longest. A run that is copying one then does without it."""
    found = list[tuple[float, Path]]()
    for path in root.glob("*"):
        with contextlib.suppress(OSError):
            used = path.stat().st_mtime
            if time.time() - used > older_than_s or path.name.startswith(".gone-"):
                discard(path)
            elif not path.name.startswith(".") or time.time() - used > SEED_MADE_S:
                found.append((used if path.name[0] != "." else 0.0, path))
    size = 0
    for _, path in sorted(found, reverse=True):
        with contextlib.suppress(OSError, NotPlain):
            size += sum(one.size for one in listing(path, os.listdir(path), frozenset(), digests=False))
        if size > SEEDS_BYTES or path.name.startswith("."):
            discard(path)
