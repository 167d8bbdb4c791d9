"""Directories that setup made, in the checkouts that tests run in: mounted, or a link where nothing can be mounted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from perdure.adapters.sandbox.base import Command

_CACHES = (".cache", ".vite", ".vite-temp", ".vitest")
"""Below node_modules, made again by the tools that keep something there; ava, and vitest before 3, fail where they
cannot write to them."""


def caches(modules: Path) -> Iterator[Path]:
    """Yield those directories of a `node_modules`, made where they are missing; none where it has something else."""
    for name in _CACHES:
        cache = modules / name
        with contextlib.suppress(OSError):
            cache.mkdir(exist_ok=True)
        if not cache.is_symlink() and cache.is_dir():
            yield cache


def linked(command: Command) -> Iterator[Path]:
    """Put a link to each directory that setup made into the checkout, and yield what commands may write to in them.

    Tools find what they load beside the checkout's own files; without it no suite with a dependency would start.
    """
    for name in command.shared if command.source else ():
        real = unlinked(command.worktree, name)
        if real is None or command.source is None:
            continue
        if not os.path.lexists(command.source / name):
            mount_point(command.source, str(Path(name).parent), directory=True)
            (command.source / name).symlink_to(real)
        yield from caches(real) if real.name == "node_modules" else ()


def unlinked(root: Path, name: str) -> Path | None:
    """The path, unless it is absent or any part of it is a link: an agent's link would mount the host's files."""
    path = root
    for part in Path(name).parts:
        path = path / part
        if part == ".." or path.is_symlink() or not path.exists():
            return None
    return path if path != root and not Path(name).is_absolute() else None


def mount_point(source: Path, name: str, directory: bool) -> None:
    """bwrap cannot make one in a read-only tree, and must not follow a link that the checkout has in its place."""
    point = source
    for part in Path(name).parts:
        point = point / part
        if point.is_symlink():
            point.unlink()
    if directory:
        point.mkdir(parents=True, exist_ok=True)
    elif not point.exists():
        point.parent.mkdir(parents=True, exist_ok=True)
        point.touch()
