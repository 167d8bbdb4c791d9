"""A commit's files as a checkout writes them, byte for byte: computed from its objects, never from what lies in a
worktree.

A worktree proves nothing: a power cut can empty a file that a checkout has just written, and whoever then takes the
files for the base ships the damage.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.command import Git
from perdure.adapters.git.object_store import ObjectStore
from perdure.adapters.git.repository import CACHED_ANSWERS, Repository

_REWRITING_ATTRIBUTES = ("eol", "crlf", "ident", "working-tree-encoding")
"""Attributes that make a checkout write other bytes than the commit holds. Filters are not run."""

_GITLINK = "160000"


@dataclass(frozen=True)
class _TreeFile:
    """One file, link or submodule of a tree."""

    mode: str
    sha: str
    path: str


def exact_tree(repository: Repository, commit: str) -> str:
    """Return the tree of the files that a checkout of `commit` makes; the commit's own where no attribute changes
    bytes. Any other is written to the repository, from a checkout in a temporary directory."""
    files = _list_files(repository, commit)
    if not any(os.path.basename(file.path) == ".gitattributes" for file in files):
        return repository.tree_of(commit)
    with tempfile.TemporaryDirectory(prefix="perdure-exact-") as scratch:
        tree = Path(scratch, "tree")
        tree.mkdir()
        git = Git(repository.path, tree, repository.path, Path(scratch, "index"))
        git.execute("read-tree", commit)
        rewritten = _files_with_attributes(git, files)
        if not rewritten:
            return repository.tree_of(commit)
        _check_out(git, [*rewritten, *(file for file in files if file.path.endswith(".gitattributes"))])
        store = ObjectStore(repository.path / "objects")
        exact = [
            _TreeFile(file.mode, store.write_blob((tree / file.path).read_bytes()), file.path) for file in rewritten
        ]
        git.execute("read-tree", commit)
        _add_to_index(git, exact)
        return git.text("write-tree")


@functools.lru_cache(CACHED_ANSWERS)
def submodule_paths(repository: Repository, tree: str) -> tuple[str, ...]:
    """Return the paths of links to other repositories (submodules) in a tree: directories that a checkout makes and
    leaves empty. Answers are cached."""
    return tuple(file.path for file in _list_files(repository, tree) if file.mode == _GITLINK)


def _list_files(repository: Repository, tree: str) -> list[_TreeFile]:
    """Return every file, link and submodule of a tree."""
    return [_TreeFile(mode, sha, path) for path, mode, sha in repository.list_files(tree)]


def _files_with_attributes(git: Git, files: Iterable[_TreeFile]) -> list[_TreeFile]:
    """Return the regular files for which one of _REWRITING_ATTRIBUTES is set, by the .gitattributes in git's index."""
    regular = {file.path: file for file in files if file.mode.startswith("100")}
    paths = b"".join(os.fsencode(path) + b"\0" for path in regular)
    fields = git.execute("check-attr", "-z", "--stdin", "--cached", *_REWRITING_ATTRIBUTES, stdin=paths).names
    unset = ("unspecified", "unset")
    return [
        regular[path]
        for path in dict.fromkeys(p for p, v in zip(fields[::3], fields[2::3], strict=True) if v not in unset)
    ]


def _check_out(git: Git, files: Iterable[_TreeFile]) -> None:
    """Write these files alone to the work tree, the way a checkout of all of them would. Git's index then holds only
    them."""
    git.execute("read-tree", "--empty")
    _add_to_index(git, files)
    partial_tree = git.text("write-tree")
    git.execute("read-tree", "--empty")
    git.execute("read-tree", "--reset", "-u", partial_tree)


def _add_to_index(git: Git, files: Iterable[_TreeFile]) -> None:
    """Add files to git's index by their hashes, without looking at the work tree."""
    lines = b"".join(f"{file.mode} {file.sha}\t".encode() + os.fsencode(file.path) + b"\0" for file in files)
    git.execute("update-index", "-z", "--index-info", stdin=lines)
