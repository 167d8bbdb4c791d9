"""Directories that setup made, in the checkouts that tests run in: mounted, or a link where nothing can be mounted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from perdure.adapters.sandbox.base import SandboxCommand

_TOOL_CACHES = (".cache", ".vite", ".vite-temp", ".vitest")
"""Directories below node_modules, made again by the tools that keep something there; ava, and vitest before 3, fail
where they cannot write to them."""


def ensure_tool_caches(modules: Path) -> Iterator[Path]:
    """Make the cache directories of tools in a `node_modules` where they are missing, and yield them. What is no
    directory, or a link, is left out."""
    for name in _TOOL_CACHES:
        cache = modules / name
        with contextlib.suppress(OSError):
            cache.mkdir(exist_ok=True)
        if not cache.is_symlink() and cache.is_dir():
            yield cache


def link_setup_directories(command: SandboxCommand) -> Iterator[Path]:
    """Put a link to each directory that setup made into the checkout, and yield what commands may write to in them.
    Nothing is done without a checkout.

    Tools look for what they load beside the checkout's own files; without it no suite with a dependency would start.
    """
    for name in command.shared if command.source else ():
        made = path_without_links(command.worktree, name)
        if made is None or command.source is None:
            continue
        if not os.path.lexists(command.source / name):
            make_mount_point(command.source, str(Path(name).parent), directory=True)
            (command.source / name).symlink_to(made)
        yield from ensure_tool_caches(made) if made.name == "node_modules" else ()


def path_without_links(root: Path, name: str) -> Path | None:
    """Return the path of `name` below `root`; None when it is absent, leads above `root`, or any part of it is a link:
    an agent's link would mount the host's files."""
    path = root
    for part in Path(name).parts:
        path = path / part
        if part == ".." or path.is_symlink() or not path.exists():
            return None
    return path if path != root and not Path(name).is_absolute() else None


def make_mount_point(source: Path, name: str, directory: bool) -> None:
    """Make an empty directory or file in a checkout for bwrap to mount at, because bwrap cannot make it in a read-only
    tree. Links that the checkout has in its place are removed: bwrap must not follow them."""
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
