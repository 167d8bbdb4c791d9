"""The shadow: a second git directory of a worktree, for its checkpoints, on the vault's objects; it changes no byte of
a file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from perdure.adapters.git.command import Git, GitError
from perdure.adapters.system.boot import boot_id

HIDDEN = (".venv", "node_modules", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
"""Names that are in no checkpoint and no commit, at any depth, whatever the repository's .gitignore says."""

PORTS_FILE = ".ports.env"

_ATTRIBUTES = "* -text -eol -crlf -ident -filter -working-tree-encoding\n"
_EXACT = (
    *("core.fileMode=true", "core.symlinks=true", "core.ignoreCase=false", "core.precomposeUnicode=false"),
    *("core.protectNTFS=false", "core.protectHFS=false", "core.autocrlf=false", "core.untrackedCache=false"),
    "core.fsync=objects,reference",  # the index is not believed after a power cut anyway
)
"""Settings for any name and mode that this host's file system can hold."""


class _Vault(Protocol):
    @property
    def path(self) -> Path: ...


class _Worktree(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def shadow(self) -> Path: ...
    @property
    def vault(self) -> _Vault: ...


def open_shadow(worktree: _Worktree, exact_base: str, lock_fd: int, fresh_index: Path | None = None) -> Git:
    """Return the shadow's git; its directory is made anew where it cannot be trusted. The caller holds the worktree's
    lock, `lock_fd`.

    fresh_index  an index of these very files, which git has just written them with: none of them has to be read then
    """
    path = worktree.shadow
    git = Git(path, worktree.path, path, path / "index", worktree.vault.path / "objects", settings=_EXACT)
    if not is_intact(path):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        Git(cwd=path).execute(
            "init", "--quiet", "--bare", "--template=", "--initial-branch=none", str(path), lock_fds=(lock_fd,)
        )
        (path / "info").mkdir()
        (path / "info" / "attributes").write_text(_ATTRIBUTES)
        # What the base commit tracks stays tracked, even where .gitignore names it; and files that hold its exact
        # bytes are then known to, so that a restore does not write them again.
        if fresh_index is not None:
            shutil.copy2(fresh_index, path / "index")  # keeps its time: files of the same moment are compared again
        else:
            git.execute("read-tree", exact_base, lock_fds=(lock_fd,))
            git.execute("update-index", "-q", "--refresh", ok=(0, 1), lock_fds=(lock_fd,))
        (path / "boot").write_text(boot_id())
    return git


def reset_files(git: Git, tree: str, lock_fd: int) -> None:
    """Set the tracked files, and git's index, to those of a tree; what is not tracked stays. An index that a power cut
    has emptied is made anew."""
    try:
        git.execute("read-tree", "--reset", "-u", tree, lock_fds=(lock_fd,))
    except GitError:  # an index that a power cut has emptied
        assert git.index is not None
        git.index.unlink(missing_ok=True)
        git.execute("read-tree", "--reset", "-u", tree, lock_fds=(lock_fd,))


def is_intact(path: Path) -> bool:
    """Return True where what a shadow believes about files can hold: it was made completely, and the host has not
    restarted since."""
    try:
        return (path / "index").exists() and (path / "boot").read_text() == boot_id()
    except FileNotFoundError:
        return False


def checkpoint_pathspecs(excluded: Iterable[str]) -> list[str]:
    """Return pathspecs for everything but HIDDEN names, the ports file and the `excluded` paths, such as what setup
    made. No .gitignore of an agent overrules them."""
    names = [pattern for name in HIDDEN for pattern in (f"**/{name}", f"**/{name}/**")]
    return [
        ".",
        *(f":(exclude,glob){name}" for name in names),
        *(f":(exclude,glob){pattern}" for path in (*excluded, PORTS_FILE) for pattern in _exclude_patterns(path)),
    ]


def _exclude_patterns(path: str) -> tuple[str, str]:
    """Return the patterns for a path and for what is below it. They are never literal: where .gitignore names a path
    that is excluded literally too, git 2.39's `add` takes that for a wish to add it, and refuses. So the first
    character is a wildcard that matches only itself (for a character beyond ASCII: any of its length)."""
    first = f"[\\{path[0]}]" if path[0].isascii() else "?" * len(os.fsencode(path[0]))
    rest = "".join(f"\\{character}" if character in "\\*?[" else character for character in path[1:])
    return first + rest, f"{first}{rest}/**"
