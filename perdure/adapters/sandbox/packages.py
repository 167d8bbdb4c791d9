"""Packages that setup fetches, kept for the next setup, and shown to later commands below a layer in memory.

Maven, Gradle, Deno and others write locks and notes beside the packages that they only read. What a command writes
there lies in the layer and is gone with it; where the host allows none, packages are read-only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.sandbox.environment import HOME
from perdure.adapters.system.home import Home

FETCHED = (
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

PLACES = (*FETCHED, ".npm")
"""Those that are kept; the last one for setup alone, as what it installs from there lies in the worktree."""

_INSTALLED_FROM = {".cache": frozenset({"pip", "uv"})}
"""By place, what counts for nothing: the same is true of it."""


@dataclass(frozen=True)
class Shown:
    """Package caches as one command sees them. `layers`: those whose files are memory when they are written."""

    options: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()


def cache(home: Home, name: str) -> Path | None:
    """The package caches of that name, made if need be, and used from now on; None without a name.

    Whoever writes there decides what all others install who read it: a name is never shared by two repositories.
    """
    if not name:
        return None
    root = home.caches / name
    root.mkdir(parents=True, exist_ok=True)
    os.utime(root)
    return root


def for_setup(home: Home, name: str) -> Iterator[str]:
    """bwrap's options for setup, which fills the caches."""
    if (root := cache(home, name)) is not None:
        for place in PLACES:
            (root / place).mkdir(parents=True, exist_ok=True)
            yield from ("--bind", str(root / place), f"{HOME}/{place}")


def for_commands(home: Home, name: str, *, layered: bool) -> Shown:
    """bwrap's options for every other command. Places that hold nothing are left out."""
    root = home.caches / name
    filled = [place for place in FETCHED if name and _filled(root / place, place)]
    shown = [(str(root / place), f"{HOME}/{place}") for place in filled]
    if not layered:
        return Shown(tuple(word for kept, seen in shown for word in ("--ro-bind", kept, seen)))
    options = (word for kept, seen in shown for word in ("--overlay-src", kept, "--tmp-overlay", seen))
    return Shown(tuple(options), tuple(seen for _, seen in shown))


def _filled(kept: Path, place: str) -> bool:
    try:
        with os.scandir(kept) as entries:  # setup may have left millions
            return any(entry.name not in _INSTALLED_FROM.get(place, ()) for entry in entries)
    except OSError:
        return False
