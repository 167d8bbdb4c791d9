"""One worktree a delivery: made twenty at a time, checked three ways, rebuilt, removed, swept, kept."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from git_pictures import fresh, picture

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git.checkouts import LARGE_CHECKOUT_FILES
from perdure.adapters.git.publish import commit_checkpoint
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace, remove_old_worktrees
from perdure.adapters.system.home import Home
from perdure.models.errors import Superseded, WorkspaceLost
from tests.repositories import git, make_origin


def test_twenty_workspaces_at_once_are_twenty_valid_workspaces(home: Home, vault: Vault) -> None:
    _, base = vault.fetch()
    with ThreadPoolExecutor(20) as pool:
        made = list(pool.map(lambda n: Workspace.create(home, vault, f"demo-{n}", base), range(20)))
    assert [workspace.find_problems() for workspace in made] == [[]] * 20
    assert all((workspace.path / "src" / "app.py").read_text() == "x = 1\n" for workspace in made)
    assert git(vault.path, "worktree", "list").count("detached HEAD") == 20
    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(lambda workspace: workspace.remove(), made)) == [""] * 20
    assert "detached" not in git(vault.path, "worktree", "list")
    assert not any(workspace.path.exists() for workspace in made)


def test_a_valid_workspace_is_used_again(home: Home, vault: Vault, workspace: Workspace) -> None:
    (workspace.path / "new").write_text("still here")
    workspace.finish_setup()
    again, problems = Workspace.open_or_rebuild(home, vault, "demo-1", workspace.record().base_sha)
    assert problems == []
    assert (again.path / "new").read_text() == "still here"
    assert again.record().setup_done


def _replace_tree(workspace: Workspace) -> None:
    moved = workspace.path.with_name("moved")
    workspace.path.rename(moved)
    shutil.copytree(moved, workspace.path, symlinks=True)


def _swap_for_link(workspace: Workspace) -> None:
    workspace.path.rename(workspace.path.with_name("moved"))
    workspace.path.symlink_to("/tmp")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda w: shutil.rmtree(w.path), "is not there"),
        (_replace_tree, "another directory"),
        (_swap_for_link, "is not there"),
        (lambda w: (w.path / ".git").write_text("gitdir: /tmp/evil\n"), "does not point into the vault"),
        (lambda w: (w.path / ".git").unlink(), "does not point into the vault"),
        (lambda w: shutil.rmtree(w.record().admin), "git does not know"),
        (lambda w: Path(w.record().admin, "gitdir").write_text("/elsewhere/.git\n"), "git does not know"),
        (lambda w: Path(w.record().admin, "HEAD").write_text("1" * 40 + "\n"), "git does not know"),
    ],
)
def test_each_way_to_be_invalid_is_named_and_rebuilt(
    home: Home, vault: Vault, workspace: Workspace, harm: object, says: str
) -> None:
    base = workspace.record().base_sha
    assert callable(harm)
    harm(workspace)
    again, problems = Workspace.open_or_rebuild(home, vault, "demo-1", base)
    assert says in problems[0]
    assert again.find_problems() == []
    assert not again.record().setup_done
    assert (again.path / "README.md").read_text() == "hello\n"


def test_a_damaged_record_is_as_good_as_none(home: Home, vault: Vault, workspace: Workspace) -> None:
    base = workspace.record().base_sha
    (home.workspace("demo-1") / "record.json").write_text('{"delivery":')
    assert "no readable record" in workspace.find_problems()[0]
    with pytest.raises(WorkspaceLost):
        Workspace.open(home, "demo-1")
    again, _ = Workspace.open_or_rebuild(home, vault, "demo-1", base)
    assert again.find_problems() == []


def test_a_creation_cut_off_before_its_record_is_begun_again(home: Home, vault: Vault, workspace: Workspace) -> None:
    base = workspace.record().base_sha
    (home.workspace("demo-1") / "record.json").unlink()
    (workspace.path / "README.md").unlink()
    again, _ = Workspace.open_or_rebuild(home, vault, "demo-1", base)
    assert (again.path / "README.md").exists()


def test_a_later_generation_lives_in_a_directory_of_its_own(home: Home, vault: Vault, workspace: Workspace) -> None:
    second = Workspace.create(home, vault, "demo-1", workspace.record().base_sha, generation=2)
    assert second.path.name == "demo-1~2"
    assert second.find_problems() == []
    assert workspace.path.exists(), "a writer that could not be shown to be gone may still be in it"
    assert (second.shadow, second.private) != (workspace.shadow, workspace.private)
    assert second.remove() == ""
    assert not second.path.exists()
    assert not workspace.path.exists()


def test_a_commit_the_vault_does_not_have_is_workspace_lost(home: Home, vault: Vault) -> None:
    with pytest.raises(WorkspaceLost):
        Workspace.create(home, vault, "demo-1", "1" * 40)
    assert not home.tree("demo-1").exists()


def test_removal_takes_closed_directories_too_and_never_raises(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace.path / "closed" / "deep").mkdir(parents=True)
    (workspace.path / "closed" / "deep" / "f").write_text("x")
    (workspace.path / "closed").chmod(0)
    (workspace.vault.path / "worktrees").rename(workspace.vault.path / "worktrees-away")
    (workspace.vault.path / "worktrees").write_text("in the way")
    assert "could not be removed" in workspace.remove() or not workspace.path.exists()
    (workspace.vault.path / "worktrees").unlink()
    (workspace.vault.path / "worktrees-away").rename(workspace.vault.path / "worktrees")
    assert workspace.remove() == ""
    assert not workspace.path.exists()


def test_a_failing_removal_is_a_message(workspace: Workspace) -> None:
    shutil.rmtree(workspace.vault.path / "objects")
    assert workspace.remove().startswith(str(workspace.path))


def test_only_workspaces_that_ended_long_ago_are_swept(home: Home, vault: Vault) -> None:
    _, base = vault.fetch()
    old, fresh, running = (Workspace.create(home, vault, name, base) for name in ("old", "fresh", "running"))
    fresh.mark_ended()
    long_ago = datetime.now(UTC) - timedelta(days=8)
    old.write_record(old.record().model_copy(update={"ended_at": long_ago}))
    assert remove_old_worktrees(home) == []
    assert [w.path.exists() for w in (old, fresh, running)] == [False, True, True]
    assert remove_old_worktrees(home, timedelta(0)) == []
    assert [w.path.exists() for w in (fresh, running)] == [False, True]


def test_setup_is_remembered_with_what_it_made(workspace: Workspace) -> None:
    (workspace.path / "build" / "x").mkdir(parents=True)
    (workspace.path / "build" / "x" / "y.o").write_text("o")
    (workspace.path / ".ports.env").write_text("P=1\n")
    assert workspace.finish_setup().setup_paths == ("build",)
    assert os.stat(workspace.path).st_ino == workspace.record().inode


@pytest.mark.parametrize("name", ["HEAD", "index", "ORIG_HEAD", "config", "config.worktree", "logs/HEAD", "info/x"])
def test_no_lock_file_of_a_dead_writer_stops_anything_in_a_worktree(workspace: Workspace, name: str) -> None:
    admin, base = Path(workspace.record().admin), workspace.record().base_sha
    cp.restore_base(workspace)
    places = [directory / f"{name}.lock" for directory in (admin, workspace.shadow)]

    def died() -> None:
        for lock in places:
            lock.parent.mkdir(exist_ok=True)
            lock.touch()

    died()
    cp.restore_base(workspace)
    died()
    workspace.reset_tracked_files()
    died()
    first = cp.write_initial_checkpoint(workspace, {"summary": "prepared"})
    cp.restore_checkpoint(workspace, first)
    died()
    (workspace.path / "new").write_text("new")
    second = cp.snapshot_worktree(workspace, parent=first, turn={"summary": "x"}, transcript=[])
    died()
    commit, _ = commit_checkpoint(workspace, checkpoint=second, parent=base, message="new")
    died()
    workspace.advance_head(commit)
    assert git(workspace.path, "log", "-1", "--format=%s") == "new"
    died()
    workspace.finish_setup()
    assert workspace.find_problems() == []
    died()
    assert workspace.remove() == ""


def test_a_later_generation_leaves_the_locks_of_one_that_may_be_alive(workspace: Workspace) -> None:
    living = Path(workspace.record().admin) / "index.lock"
    living.touch()
    Workspace.create(workspace.home, workspace.vault, "demo-1", workspace.record().base_sha, generation=1)
    assert living.exists()


def test_a_worktree_whose_making_was_cut_off_is_made_again(home: Home, vault: Vault, workspace: Workspace) -> None:
    """git holds its place locked until it is whole: neither removing nor pruning it takes that away."""
    record = workspace.record()
    (home.workspace("demo-1") / "record.json").unlink()
    (Path(record.admin) / "locked").write_text("initializing")
    (workspace.path / ".git").unlink()
    again, _ = Workspace.open_or_rebuild(home, vault, "demo-1", record.base_sha)
    assert again.find_problems() == []
    assert not (Path(again.record().admin) / "locked").exists()


def places_of(home: Home, vault: Vault) -> list[str]:
    """What is left of worktrees: their directories, what lies beside them, and what git knows of them."""
    return sorted(path.name for top in (home.root / "trees", vault.path / "worktrees") for path in top.glob("*"))


def test_the_end_takes_a_directory_whose_making_was_cut_off(home: Home, vault: Vault, workspace: Workspace) -> None:
    """Of a later generation, which nobody makes again: git holds it locked, with or without its directory."""
    base = workspace.record().base_sha
    for generation, gone in ((1, (".git",)), (2, ("", "gitdir"))):
        cut_off = Workspace.create(home, vault, "demo-1", base, generation=generation)
        admin = Path(cut_off.record().admin)
        (admin / "locked").write_text("initializing")
        for name in gone:
            shutil.rmtree(cut_off.path) if not name else (
                (admin / name) if name == "gitdir" else cut_off.path / name
            ).unlink()
    for name in (".demo-1~3.new", ".demo-1~3.kept"):
        (home.root / "trees" / name).mkdir()
    assert Workspace.open(home, "demo-1").remove() == ""
    assert places_of(home, vault) == []


def test_a_writer_that_was_overtaken_while_it_made_a_directory_takes_it_away(
    home: Home, vault: Vault, workspace: Workspace
) -> None:
    base = workspace.record().base_sha
    assert Workspace.create(home, vault, "demo-1", base, generation=2).remove() == "", "a newer one has come and ended"
    with pytest.raises(Superseded):
        Workspace.create(home, vault, "demo-1", base, generation=1)
    assert places_of(home, vault) == []


def test_what_came_back_after_the_end_and_what_has_no_record_is_swept(home: Home, vault: Vault) -> None:
    _, base = vault.fetch()
    ended = Workspace.create(home, vault, "ended", base)
    ended.mark_ended()
    assert ended.remove() == ""
    (home.root / "trees" / "ended~1").mkdir()
    Workspace.create(home, vault, "lost", base)
    (home.workspace("lost") / "record.json").unlink()
    running = Workspace.create(home, vault, "running", base)
    assert remove_old_worktrees(home) == []
    assert {"ended~1", "lost"} <= {*places_of(home, vault)}, "a moment old: somebody may be making it"
    assert remove_old_worktrees(home, timedelta(0)) == []
    assert places_of(home, vault) == ["running", "running"]
    assert running.find_problems() == []


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
