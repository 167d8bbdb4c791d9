"""The shadow: a git directory for checkpoints, on the vault's objects, that changes no byte of a file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from perdure.adapters.git.door import Git, GitError
from perdure.adapters.system.boot import boot

HIDDEN = (".venv", "node_modules", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
"""Names that are in no checkpoint and no commit, at any depth, whatever the repository's .gitignore says."""

PORTS_FILE = ".ports.env"

_ATTRIBUTES = "* -text -eol -crlf -ident -filter -working-tree-encoding\n"
_EXACT = (
    *("core.fileMode=true", "core.symlinks=true", "core.ignoreCase=false", "core.precomposeUnicode=false"),
    *("core.protectNTFS=false", "core.protectHFS=false", "core.autocrlf=false", "core.untrackedCache=false"),
    "core.fsync=objects,reference",  # the index is not believed after a power cut anyway
)
"""Any name and mode that this host's file system can hold."""


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


def git_for(worktree: _Worktree, exact_base: str, held: int, known: Path | None = None) -> Git:
    """The shadow's git, made when it cannot be trusted; call it while alone.

    known  an index of these very files, which git has just written them with: none of them has to be read then
    """
    path = worktree.shadow
    git = Git(path, worktree.path, path, path / "index", worktree.vault.path / "objects", settings=_EXACT)
    if not is_whole(path):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        Git(cwd=path).run("init", "--quiet", "--bare", "--template=", "--initial-branch=none", str(path), hold=(held,))
        (path / "info").mkdir()
        (path / "info" / "attributes").write_text(_ATTRIBUTES)
        # What the base commit tracks stays tracked, even where .gitignore names it; and files that hold its exact
        # bytes are then known to, so that a restore does not write them again.
        if known is not None:
            shutil.copy2(known, path / "index")  # with its time: what was written in the same moment is looked at again
        else:
            git.run("read-tree", exact_base, hold=(held,))
            git.run("update-index", "-q", "--refresh", ok=(0, 1), hold=(held,))
        (path / "boot").write_text(boot())
    return git


def put(git: Git, tree: str, held: int) -> None:
    """Make tracked files those of a tree; what is not tracked stays."""
    try:
        git.run("read-tree", "--reset", "-u", tree, hold=(held,))
    except GitError:  # an index that a power cut has emptied
        assert git.index is not None
        git.index.unlink(missing_ok=True)
        git.run("read-tree", "--reset", "-u", tree, hold=(held,))


def is_whole(path: Path) -> bool:
    """True where a shadow's belief about files can hold: it was made completely, and no power cut since."""
    try:
        return (path / "index").exists() and (path / "boot").read_text() == boot()
    except FileNotFoundError:
        return False


def pathspecs(kept: Iterable[str]) -> list[str]:
    """Everything but HIDDEN names, the ports file and what setup made; no .gitignore of an agent overrules these."""
    names = [pattern for name in HIDDEN for pattern in (f"**/{name}", f"**/{name}/**")]
    return [
        ".",
        *(f":(exclude,glob){name}" for name in names),
        *(f":(exclude,glob){pattern}" for path in (*kept, PORTS_FILE) for pattern in _only(path)),
    ]


def _only(path: str) -> tuple[str, str]:
    """Patterns for a path and what is below it, never literal ones: where .gitignore names a path that is excluded
    literally too, git 2.39's `add` takes that for a wish to add it, and refuses. So the first character is a wildcard
    that matches only itself (of a character beyond ASCII: any of its length).
    """
    first = f"[\\{path[0]}]" if path[0].isascii() else "?" * len(os.fsencode(path[0]))
    rest = "".join(f"\\{character}" if character in "\\*?[" else character for character in path[1:])
    return first + rest, f"{first}{rest}/**"
