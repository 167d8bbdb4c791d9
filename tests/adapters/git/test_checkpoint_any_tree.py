"""Whatever a tree holds and whatever was done to it: a restore brings back what a checkpoint saw."""

from __future__ import annotations

import pytest
from any_trees import TREES, grow
from git_pictures import Node, picture, take
from hypothesis import HealthCheck, given, settings

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from tests.repositories import make_origin


def _unignored(trees: dict[tuple[str, ...], Node]) -> dict[tuple[str, ...], Node]:
    """Without contents for .gitignore: what it names is in no checkpoint, on purpose."""
    return {p: ((k, m, b"") if p[-1] == ".gitignore" and k == "file" else (k, m, d)) for p, (k, m, d) in trees.items()}


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=TREES.map(_unignored), after=TREES.map(_unignored))
def test_any_tree_comes_back_whatever_was_done_to_it(
    tmp_path_factory: pytest.TempPathFactory, before: dict[tuple[str, ...], Node], after: dict[tuple[str, ...], Node]
) -> None:
    root = tmp_path_factory.mktemp("any")
    vault = Vault.open_or_create(Home(root / "home"), str(make_origin(root / "o.git", {"a": b"\r\n"})))
    workspace = Workspace.create(Home(root / "home"), vault, "any", vault.fetch()[1])
    grow(workspace.path, before)
    expected = picture(workspace.path)
    commit = take(workspace)
    assert picture(workspace.path) == expected, "a snapshot changes nothing"
    for entry in list(workspace.path.iterdir())[::2]:
        if entry.name != ".git" and not entry.is_dir():
            entry.unlink()
    grow(workspace.path, after)
    cp.mark_dirty(workspace)
    cp.restore_checkpoint(workspace, commit)
    assert picture(workspace.path) == expected
