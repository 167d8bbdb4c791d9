"""A commit's files as a checkout writes them, byte for byte: told from its objects, never from what lies in a worktree.

A worktree is no witness: a power cut can empty a file that a checkout has just written, and whoever then asks the
files what the base was, ships the damage.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.door import Git
from perdure.adapters.git.objects import ObjectStore
from perdure.adapters.git.repository import REMEMBERED, Repository

_CHANGE_BYTES = ("eol", "crlf", "ident", "working-tree-encoding")
"""Attributes that make a checkout write other bytes than the commit holds; filters are not run."""

_GITLINK = "160000"


@dataclass(frozen=True)
class _File:
    mode: str
    sha: str
    path: str


def exact_tree(repository: Repository, commit: str) -> str:
    """The tree of the files that a checkout of `commit` makes; the commit's own where no attribute changes bytes."""
    files = _files(repository, commit)
    if not any(os.path.basename(file.path) == ".gitattributes" for file in files):
        return repository.tree_of(commit)
    with tempfile.TemporaryDirectory(prefix="perdure-exact-") as scratch:
        tree = Path(scratch, "tree")
        tree.mkdir()
        git = Git(repository.path, tree, repository.path, Path(scratch, "index"))
        git.run("read-tree", commit)
        rewritten = _rewritten(git, files)
        if not rewritten:
            return repository.tree_of(commit)
        _check_out(git, [*rewritten, *(file for file in files if file.path.endswith(".gitattributes"))])
        store = ObjectStore(repository.path / "objects")
        exact = [_File(file.mode, store.blob((tree / file.path).read_bytes()), file.path) for file in rewritten]
        git.run("read-tree", commit)
        _put(git, exact)
        return git.text("write-tree")


@functools.lru_cache(REMEMBERED)
def links(repository: Repository, tree: str) -> tuple[str, ...]:
    """Return the links to other repositories (submodules): directories that a checkout makes and leaves empty."""
    return tuple(file.path for file in _files(repository, tree) if file.mode == _GITLINK)


def _files(repository: Repository, tree: str) -> list[_File]:
    return [_File(mode, sha, path) for path, mode, sha in repository.files(tree)]


def _rewritten(git: Git, files: Iterable[_File]) -> list[_File]:
    """The regular files for which one of the attributes is set."""
    regular = {file.path: file for file in files if file.mode.startswith("100")}
    asked = b"".join(os.fsencode(path) + b"\0" for path in regular)
    told = git.run("check-attr", "-z", "--stdin", "--cached", *_CHANGE_BYTES, stdin=asked).names
    unset = ("unspecified", "unset")
    return [
        regular[path] for path in dict.fromkeys(p for p, v in zip(told[::3], told[2::3], strict=True) if v not in unset)
    ]


def _check_out(git: Git, files: Iterable[_File]) -> None:
    """Write these files alone, the way a checkout of all of them would."""
    git.run("read-tree", "--empty")
    _put(git, files)
    few = git.text("write-tree")
    git.run("read-tree", "--empty")
    git.run("read-tree", "--reset", "-u", few)


def _put(git: Git, files: Iterable[_File]) -> None:
    lines = b"".join(f"{file.mode} {file.sha}\t".encode() + os.fsencode(file.path) + b"\0" for file in files)
    git.run("update-index", "-z", "--index-info", stdin=lines)
