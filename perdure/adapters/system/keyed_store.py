"""Stores of results that are kept for later deliveries, in directories of PERDURE_HOME, with the limits of age, number
and size by which their entries are removed. Checkouts, environments, packages, compiler caches and tests' results of
base commits lie in such stores.

A store is a directory of entries. An entry is a directory `<key>~<made at, µs>-<bytes>-<id>` that nobody changes; one
whose name is only its key (packages) is filled in place. Its time says when it was used last. What begins with a dot is
no entry: `.new-…` is being made, `.gone-…` is being removed, `.lock-…` is locked by whoever makes something. Everybody
who makes, uses or removes something holds a flock on it, which dies with its holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from perdure.adapters.system.directories import discard, remove_path
from perdure.adapters.system.home import Home
from perdure.models import limits

_LEFTOVER_S = 600.0
"""The age at which something unfinished that nobody holds was left by a death: its maker takes its lock at once."""

_STAMPED = re.compile(r"(?P<key>.+)~(?P<made>\d+)-(?P<size>\d+)-[0-9a-f]{32}")


@dataclass(frozen=True)
class KeptLimits:
    """The limits of a store; None: there is no such limit.

    unused       the time after which an entry that nobody has used is removed
    age          the time after which an entry is removed although it is used
    per_key      the most entries of one key; the newest stay
    total_bytes  of all entries; those that were not used for longest are removed first
    free_bytes   of the disk: where less is free, nothing is kept
    """

    unused: timedelta | None = None
    age: timedelta | None = None
    per_key: int | None = None
    total_bytes: int | None = None
    free_bytes: int = 0


KEPT_RESULTS: Mapping[str, KeptLimits] = {
    "baselines": KeptLimits(age=limits.KEPT_AGE, per_key=1),
    "checkouts": KeptLimits(
        unused=limits.KEPT_UNUSED, per_key=limits.KEPT_CHECKOUTS, free_bytes=limits.KEPT_CHECKOUTS_FREE_BYTES
    ),
    "environments": KeptLimits(
        age=limits.KEPT_AGE, per_key=limits.KEPT_ENVIRONMENTS, total_bytes=int(limits.DEFAULTS.environment_gb * 1e9)
    ),
    "packages": KeptLimits(),  # for `perdure gc` alone to remove: a delivery that waits needs them offline
    "seeds": KeptLimits(unused=limits.KEPT_UNUSED, per_key=1, total_bytes=limits.KEPT_SEEDS_BYTES),
}
"""The stores of a home, by the names of their directories."""


@dataclass(frozen=True)
class _StoreEntry:
    """An entry of a store. Times in seconds since 1970; `made_at` is None for one that is filled in place."""

    path: Path
    key: str
    made_at: float | None
    size: int
    used_at: float


@dataclass(frozen=True)
class KeyedStore:
    """A store in the directory `root`, which is made when something is kept there."""

    root: Path
    limits: KeptLimits
    clock: Callable[[], float] = time.time

    def list_entries(self, key: str) -> list[Path]:
        """Return the paths of the entries of a key that are not too old, the newest first."""
        return [entry.path for entry in self._list_entries() if entry.key == key and self._is_young(entry)]

    @contextmanager
    def hold_entry(self, entry: Path) -> Iterator[bool]:
        """Keep an entry from being removed while the block runs. Yields False where it is gone, or going."""
        with _try_flock(entry, fcntl.LOCK_SH) as is_held:
            yield is_held

    @contextmanager
    def use_newest(self, key: str) -> Iterator[Path | None]:
        """Yield the newest entry of a key that is not being removed, marked as used, and keep it from being removed
        while the block runs; None: there is none."""
        for entry in self.list_entries(key):
            with self.hold_entry(entry) as is_held:
                if is_held:
                    self.mark_used(entry)
                    yield entry
                    return
        yield None

    def mark_used(self, entry: Path) -> None:
        """Set the time of an entry to now: it counts as used."""
        os.utime(entry)

    def move_out(self, key: str, into: Path) -> bool:
        """Move the newest entry of a key that can be moved out of the store to the path `into`, and return True; False
        where there is none, or none can be moved, as when somebody else took it first."""
        for entry in self.list_entries(key):
            with contextlib.suppress(OSError):
                entry.rename(into)
                return True
        return False

    @contextmanager
    def stage_entry(self, key: str) -> Iterator[Path]:
        """Yield a new directory, which becomes an entry of `key` when the block ends, then remove entries beyond the
        limits. Where the block raises, the directory is removed.

        The block syncs what has to survive a power cut.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        number = uuid.uuid4().hex
        staging = self.root / f".new-{number}"
        staging.mkdir()
        with _try_flock(staging, fcntl.LOCK_EX):
            try:
                yield staging
                size = _count_bytes(staging) if self.limits.total_bytes is not None else 0
                staging.rename(self.root / f"{key}~{int(self.clock() * 1e6):016}-{size}-{number}")
            except BaseException:
                discard(staging)
                raise
        self.remove_surplus()

    def has_room(self, key: str) -> bool:
        """Return whether one more entry of a key would stay: there are fewer than the most, and the disk is not nearly
        full."""
        return not self._is_disk_full() and (
            self.limits.per_key is None or len(self.list_entries(key)) < self.limits.per_key
        )

    def make_in_place(self, key: str) -> Path:
        """Return the directory of a key that is filled in place, marked as used; make it where it is missing."""
        path = self.root / key
        path.mkdir(parents=True, exist_ok=True)
        self.mark_used(path)
        return path

    def lock_path(self, name: str) -> Path:
        """Return the file to lock for whoever makes what `name` stands for, while others wait."""
        return self.root / f".lock-{name}"

    def remove_entry(self, entry: Path) -> str:
        """Move an entry out of the way at once and delete it; do nothing where somebody holds it or it is gone. Returns
        a line about what went wrong; empty: nothing."""
        try:
            with _try_flock(entry, fcntl.LOCK_EX) as is_held:
                if is_held:
                    removed_path = self.root / f".gone-{uuid.uuid4().hex}"
                    entry.rename(removed_path)
                    remove_path(removed_path)
        except FileNotFoundError:  # somebody has taken it
            return ""
        except OSError as error:
            return f"{entry}: {error.strerror}"
        return ""

    def remove_surplus(self, older_than: timedelta | None = None, needed: Container[str] = ()) -> list[str]:
        """Remove the entries that nobody holds and that were unused for too long, are too old, too many of their key,
        or beyond the store's bytes, all of them where the disk has too little room, and unfinished ones whose maker
        died.

        older_than  the time after which unused entries are removed, where that is shorter than the limit's
        needed      keys whose entries stay

        Returns a line about each entry that could not be removed.
        """
        self._remove_leftovers()
        unused = min((time for time in (older_than, self.limits.unused) if time is not None), default=None)
        now, is_disk_full = self.clock(), self._is_disk_full()
        counts, problems = Counter[str](), []
        kept = list[_StoreEntry]()
        for entry in self._list_entries():
            counts[entry.key] += 1
            if entry.key in needed:
                continue
            is_unused = unused is not None and now - entry.used_at >= unused.total_seconds()
            is_surplus = self.limits.per_key is not None and counts[entry.key] > self.limits.per_key
            if is_unused or is_surplus or is_disk_full or not self._is_young(entry):
                problems.append(self.remove_entry(entry.path))
            else:
                kept.append(entry)
        size = 0
        for entry in sorted(kept, key=lambda entry: entry.used_at, reverse=True):
            size += entry.size
            if self.limits.total_bytes is not None and size > self.limits.total_bytes:
                problems.append(self.remove_entry(entry.path))
        return [problem for problem in problems if problem]

    def _list_entries(self) -> list[_StoreEntry]:
        """Return all entries, the newest first, those that are filled in place last; what begins with a dot or is gone
        meanwhile is none."""
        entries = []
        for path in self._children():
            with contextlib.suppress(FileNotFoundError):
                used_at, match = path.stat().st_mtime, _STAMPED.fullmatch(path.name)
                if path.name.startswith("."):
                    continue
                if match is None:
                    entries.append(_StoreEntry(path, path.name, None, 0, used_at))
                else:
                    made_at = int(match["made"]) / 1e6
                    entries.append(_StoreEntry(path, match["key"], made_at, int(match["size"]), used_at))
        return sorted(entries, key=lambda entry: (entry.made_at or 0.0, entry.path.name), reverse=True)

    def _children(self) -> list[Path]:
        return list(self.root.iterdir()) if self.root.is_dir() else []

    def _is_young(self, entry: _StoreEntry) -> bool:
        """Return whether an entry is younger than the limit of its age; not where it was made in the future: a clock
        that was set back proves nothing."""
        age = self.limits.age
        return age is None or entry.made_at is None or 0 <= self.clock() - entry.made_at < age.total_seconds()

    def _is_disk_full(self) -> bool:
        """Return whether the store's disk has less free space than the limit."""
        if not self.limits.free_bytes:
            return False
        return shutil.disk_usage(self.existing_directory).free < self.limits.free_bytes

    @property
    def existing_directory(self) -> Path:
        """Return the store's directory, or the nearest one above it that exists."""
        return next(path for path in (self.root, *self.root.parents) if path.exists())

    def _remove_leftovers(self) -> None:
        """Remove unfinished or half removed entries and lock files, when they are older than _LEFTOVER_S and nobody
        holds them; what cannot be removed stays."""
        for path in self._children():
            with contextlib.suppress(FileNotFoundError):
                if path.name.startswith(".") and time.time() - path.stat().st_mtime >= _LEFTOVER_S:
                    with _try_flock(path, fcntl.LOCK_EX) as is_held:
                        if is_held:
                            discard(path)


def kept_results(home: Home, name: str) -> KeyedStore:
    """Return the store of that name in this home, with the limits of KEPT_RESULTS; one of bytes is KEPT_DISK_SHARE of
    the disk where that is less."""
    store = KeyedStore(home.root / name, KEPT_RESULTS[name])
    if store.limits.total_bytes is None:
        return store
    share = int(shutil.disk_usage(store.existing_directory).total * limits.KEPT_DISK_SHARE)
    return replace(store, limits=replace(store.limits, total_bytes=min(store.limits.total_bytes, share)))


def collect_kept_results(home: Home, older_than: timedelta | None = None, needed: Container[str] = ()) -> list[str]:
    """Remove surplus entries from every store of this home, and return a line about each that could not be removed.
    Arguments as of `remove_surplus`."""
    return [problem for name in KEPT_RESULTS for problem in kept_results(home, name).remove_surplus(older_than, needed)]


@contextmanager
def _try_flock(path: Path, operation: int) -> Iterator[bool]:
    """Hold a flock on a file or directory while the block runs: LOCK_SH to use it, LOCK_EX to make or remove it. Yields
    False where it is gone or somebody else's lock is in the way."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        is_held = False
    else:
        is_held = os.path.exists(path)
    try:
        yield is_held
    finally:
        os.close(descriptor)


def _count_bytes(directory: Path) -> int:
    """Return how many bytes the files below a directory hold."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            total += os.lstat(os.path.join(parent, name)).st_size
    return total
