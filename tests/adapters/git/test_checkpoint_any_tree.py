"""Whatever a tree holds and whatever was done to it: a restore brings back what a checkpoint saw."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from git_pictures import Node, picture, take
from git_repositories import make_origin
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git.shadow import HIDDEN, PORTS_FILE
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home

_names = st.one_of(
    st.sampled_from(
        ["a", "b", "-c", "d\ne", "é", ".gitattributes", ".gitignore", "*", "[x]", " y ", "\\z", "!n", "#h"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6).filter(
        lambda name: name not in (".", "..", PORTS_FILE, *HIDDEN) and "git" not in name.lower()
    ),
)
_bytes = st.one_of(
    st.binary(max_size=20), st.sampled_from([b"a\r\nb\r\n", b"* text=auto\n", b"* text eol=crlf\n", b"$Id$\n", b""])
)
_file = st.tuples(st.just("file"), st.sampled_from([0o644, 0o755, 0o600, 0o444, 0o777, 0o000]), _bytes)
_link = st.tuples(st.just("link"), st.just(0), st.sampled_from([b"a", b"/nowhere", b"../b"]))
_directory = st.tuples(st.just("directory"), st.sampled_from([0o755, 0o700, 0o555]), st.just(b""))
_trees = st.dictionaries(
    st.lists(_names, min_size=1, max_size=3).map(tuple), st.one_of(_file, _link, _directory), max_size=7
)


def _grow(root: Path, tree: dict[tuple[str, ...], Node]) -> None:
    modes: list[tuple[Path, int]] = []
    for parts, (kind, mode, data) in tree.items():
        path = root.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink() or path.exists():
                continue
            if kind == "link":
                path.symlink_to(os.fsdecode(data))
            elif kind == "directory":
                path.mkdir()
            else:
                path.write_bytes(data)
        except (NotADirectoryError, FileExistsError, FileNotFoundError, PermissionError):
            continue
        if kind != "link" and root in path.resolve().parents:
            modes.append((path, mode))
    for path, mode in reversed(modes):
        path.chmod(mode)


def _unignored(trees: dict[tuple[str, ...], Node]) -> dict[tuple[str, ...], Node]:
    """Without contents for .gitignore: what it names is in no checkpoint, on purpose."""
    return {p: ((k, m, b"") if p[-1] == ".gitignore" and k == "file" else (k, m, d)) for p, (k, m, d) in trees.items()}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=_trees.map(_unignored), after=_trees.map(_unignored))
def test_any_tree_comes_back_whatever_was_done_to_it(
    tmp_path_factory: pytest.TempPathFactory, before: dict[tuple[str, ...], Node], after: dict[tuple[str, ...], Node]
) -> None:
    root = tmp_path_factory.mktemp("any")
    vault = Vault.open(Home(root / "home"), str(make_origin(root / "o.git", {"a": b"\r\n"})))
    workspace = Workspace.create(Home(root / "home"), vault, "any", vault.fetch()[1])
    _grow(workspace.path, before)
    expected = picture(workspace.path)
    commit = take(workspace)
    assert picture(workspace.path) == expected, "a snapshot changes nothing"
    for entry in list(workspace.path.iterdir())[::2]:
        if entry.name != ".git" and not entry.is_dir():
            entry.unlink()
    _grow(workspace.path, after)
    cp.leave(workspace)
    cp.restore(workspace, commit)
    assert picture(workspace.path) == expected
