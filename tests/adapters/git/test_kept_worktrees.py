"""Files of a worktree whose delivery has ended, and the next worktree of a large repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_pictures import fresh, picture

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git.checkouts import LARGE_CHECKOUT_FILES
from perdure.adapters.git.publish import commit_checkpoint
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from tests.repositories import git, make_origin


@pytest.fixture
def large(home: Home, tmp_path: Path) -> tuple[Vault, str]:
    files = {f"src/{n % 10}/{n}.py": b"x\n" for n in range(LARGE_CHECKOUT_FILES)}
    vault = Vault.open_or_create(home, str(make_origin(tmp_path / "large.git", files)))
    return vault, vault.fetch()[1]


def test_a_worktree_of_a_large_repository_begins_with_the_files_of_one_that_ended(
    home: Home, large: tuple[Vault, str], tmp_path: Path
) -> None:
    vault, base = large
    one = Workspace.create(home, vault, "one", base)
    (one.path / ".env").write_text("secret")
    one.finish_setup(reusable=True)
    expected, inode = fresh(vault, base, tmp_path / "fresh"), one.path.stat().st_ino
    (one.path / "src" / "0" / "0.py").write_text("y\n")
    (one.path / "of the first.py").write_text("z\n")
    checkpoint = cp.snapshot_worktree(one, parent=None, turn={}, transcript=[])
    made, _ = commit_checkpoint(one, checkpoint=checkpoint, parent=base, message="one")
    one.advance_head(made)
    assert one.remove(keeps_files=True) == ""
    assert git(vault.path, "worktree", "list").count("\n") == 0
    assert sorted(path.name for path in one.path.parent.iterdir()) == []

    two = Workspace.create(home, vault, "two", base)
    assert two.path.stat().st_ino == inode
    assert two.find_problems() == []
    assert picture(two.path) == expected
    assert git(two.path, "status", "--porcelain", "--ignored") == ""
    begun = cp.write_initial_checkpoint(two, {})
    cp.restore_checkpoint(two, begun)
    assert cp.is_at_checkpoint(two, begun)
    assert cp.worktree_tree(vault, cp.snapshot_worktree(two, parent=begun, turn={}, transcript=[])) == vault.tree_of(
        base
    )
    two.finish_setup(reusable=False)
    assert two.remove(keeps_files=True) == ""
    assert Workspace.create(home, vault, "three", base).path.stat().st_ino != inode, "this one was not to be kept"


def test_where_somebody_died_over_putting_a_worktree_away_it_is_removed(home: Home, large: tuple[Vault, str]) -> None:
    vault, base = large
    one = Workspace.create(home, vault, "one", base)
    one.finish_setup(reusable=True)
    (one.path.parent / ".one.kept").mkdir()
    assert one.remove(keeps_files=True) == ""
    assert list(one.path.parent.iterdir()) == []
    assert list(home.root.glob("checkouts/*")) == []
