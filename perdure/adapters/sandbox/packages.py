"""Package caches: packages that setup fetches, kept for the next setup, and shown to later commands below a layer in
memory.

Maven, Gradle, Deno and others write locks and notes beside the packages that they only read. What a command writes
there lies in the layer and is gone with it; where the host allows no layer, packages are read-only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.sandbox.environment import HOME
from perdure.adapters.system.home import Home

DEPENDENCY_PLACES = (
    *(
        ".cache",
        ".cargo/registry",
        ".cargo/git",
        "go/pkg/mod",
        ".m2/repository",
        ".m2/wrapper",
        ".gradle/caches",
        ".gradle/wrapper",
    ),
    *(".nuget/packages", ".yarn/berry", ".pub-cache", ".ivy2/cache"),
)
"""Places below the home where tools leave dependencies: not in the worktree, yet needed by every later command.

None lies in another: setup may put a link into what is mounted for it, and never in place of it, so that no mount of a
later sandbox leads to where the link does. Nor is one a place of credentials, like all of ~/.m2 or ~/.gradle.
"""

CACHE_PLACES = (*DEPENDENCY_PLACES, ".npm")
"""All places that are kept; the last one for setup alone, because what it installs from there lies in the worktree."""

_FOR_SETUP_ONLY = {".cache": frozenset({"pip", "uv"})}
"""Entries that only setup needs, by their place: what it installs from there lies in the worktree."""


@dataclass(frozen=True)
class PackageMounts:
    """Package caches as one command sees them.

    options  bwrap's options that mount them
    layers   paths inside that have a layer: files written there are memory
    """

    options: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


def ensure_package_cache(home: Home, name: str) -> Path | None:
    """Return the directory of the package caches of that name; make it if need be, and mark it as used now. None
    without a name.

    Whoever writes there decides what all others install who read it: a name is never shared by two repositories.
    """
    if not name:
        return None
    root = home.caches / name
    root.mkdir(parents=True, exist_ok=True)
    os.utime(root)
    return root


def setup_mounts(home: Home, name: str) -> Iterator[str]:
    """Yield bwrap's options that mount the package caches writable, for setup, which fills them. Their directories are
    made; nothing without a name."""
    if (root := ensure_package_cache(home, name)) is not None:
        for place in CACHE_PLACES:
            (root / place).mkdir(parents=True, exist_ok=True)
            yield from ("--bind", str(root / place), f"{HOME}/{place}")


def command_mounts(home: Home, name: str, *, layered: bool) -> PackageMounts:
    """Return how every command but setup sees the package caches: below a layer in memory where `layered`, else
    read-only. Places that hold no package are left out."""
    root = home.caches / name
    places = [place for place in DEPENDENCY_PLACES if name and _has_packages(root / place, place)]
    mounts = [(str(root / place), f"{HOME}/{place}") for place in places]
    if not layered:
        return PackageMounts(tuple(word for source, target in mounts for word in ("--ro-bind", source, target)))
    options = (word for source, target in mounts for word in ("--overlay-src", source, "--tmp-overlay", target))
    return PackageMounts(tuple(options), tuple(target for _, target in mounts))


def _has_packages(directory: Path, place: str) -> bool:
    """Return whether a cache directory holds anything that commands need; False when it does not exist."""
    try:
        with os.scandir(directory) as entries:  # setup may have left millions
            return any(entry.name not in _FOR_SETUP_ONLY.get(place, ()) for entry in entries)
    except OSError:
        return False
