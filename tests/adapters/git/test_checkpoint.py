"""A checkpoint is the worktree byte for byte, and a restore leaves no trace of what came after."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile

import pytest
from any_trees import TREES, grow
from git_pictures import Node, picture, take
from hypothesis import HealthCheck, given, settings

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from perdure.models.errors import WorkspaceLost
from tests.adapters.git.test_object_journal import journal_of, lose_what_was_not_synced
from tests.power_cut import Disk
from tests.repositories import git, make_origin


def test_restoring_brings_back_every_byte_mode_link_and_empty_directory(workspace: Workspace) -> None:
    root = workspace.path
    (root / ".gitattributes").write_text(
        "* text=auto eol=lf\n*.bin filter=lfs ident\n*.u working-tree-encoding=UTF-16\n"
    )
    (root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    (root / "a.bin").write_bytes(b"$Id$\0\r\n")
    (root / "b.u").write_bytes(b"not utf-16")
    (root / "secret").write_text("s")
    (root / "secret").chmod(0o600)
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    (root / "link").symlink_to("/etc/passwd")
    (root / "empty" / "deep").mkdir(parents=True)
    (root / "private").mkdir(mode=0o700)
    (root / "private" / "x").write_text("x")
    (root / "-rf").write_text("dash")
    (root / "two\nlines").write_text("newline")
    (root / os.fsdecode(b"latin-\xe9")).write_text("not utf-8")
    (root / "aux.").write_text("a name that Windows would mind")
    before = picture(root)
    commit = take(workspace)

    for path in (root / "dos.txt", root / "secret", root / "link", root / "-rf"):
        path.unlink()
    (root / "link").mkdir()
    (root / "link" / "f").write_text("in the way")
    (root / "src" / "app.py").unlink()
    (root / "src").rmdir()
    (root / "src").symlink_to("/tmp")
    (root / "empty" / "deep").rmdir()
    (root / "private").chmod(0o755)
    (root / "run").chmod(0o644)
    cp.mark_dirty(workspace)
    cp.restore_checkpoint(workspace, commit)

    assert picture(root) == before
    assert git(workspace.vault.path, "fsck", "--strict", "--no-dangling", commit) == ""


def test_a_rolled_back_turn_leaves_no_ignored_special_or_nested_thing_behind(workspace: Workspace) -> None:
    root = workspace.path
    (root / ".gitignore").write_text("*.db\n.venv/\n")
    commit = take(workspace)
    before = picture(root)
    cp.mark_dirty(workspace)
    (root / "state.db").write_text("ignored")
    (root / ".venv" / "lib").mkdir(parents=True)
    (root / "node_modules" / "evil").mkdir(parents=True)
    (root / "__pycache__").mkdir()
    os.mkfifo(root / "fifo")
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as listener:
        os.symlink(root, f"{short}/r")  # the path of a socket must be short
        listener.bind(f"{short}/r/sock")
    git(root, "init", "-q", "nested")
    (root / "closed" / "in").mkdir(parents=True)
    (root / "closed" / "in" / "f").write_text("f")
    (root / "closed").chmod(0)
    (root / "README.md").unlink()
    os.mkfifo(root / "README.md")
    assert not cp.is_at_checkpoint(workspace, commit)
    cp.restore_checkpoint(workspace, commit)
    assert picture(root) == before
    assert cp.is_at_checkpoint(workspace, commit)


def test_what_setup_made_stays_and_is_in_no_checkpoint_even_if_the_agent_says_so(workspace: Workspace) -> None:
    root = workspace.path
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").write_text("interpreter")
    (root / "pkg [x].egg-info").mkdir()
    (root / "pkg [x].egg-info" / "PKG-INFO").write_text("made by setup")
    (root / ".env.test").write_text("SECRET=1")
    (root / ".ports.env").write_text("BACKEND_PORT=9100\n")
    record = workspace.finish_setup(copied=[".env.test"])
    assert record.setup_done
    assert set(record.setup_paths) == {".venv", "pkg [x].egg-info", ".env.test"}

    (root / ".gitignore").write_text("!.venv/\n!.env.test\n!.ports.env\n!*.egg-info\n")
    (root / "src" / "new.py").write_text("y = 2\n")
    commit = take(workspace)
    names = git(workspace.vault.path, "ls-tree", "-r", "--name-only", f"{commit}:tree").splitlines()
    assert names == [".gitignore", "README.md", "src/app.py", "src/new.py"]

    (root / "src" / "new.py").unlink()
    cp.restore_checkpoint(workspace, commit)
    assert (root / ".venv" / "bin" / "python").read_text() == "interpreter"
    assert (root / "pkg [x].egg-info" / "PKG-INFO").exists()
    assert (root / ".env.test").read_text() == "SECRET=1"
    assert (root / ".ports.env").exists()


@pytest.mark.parametrize("name", [".git", ".GIT"])
def test_a_nested_repository_is_a_typed_error_that_names_it(workspace: Workspace, name: str) -> None:
    git(workspace.path, "init", "-q", "vendor/inner")
    (workspace.path / "vendor" / "inner" / ".git").rename(workspace.path / "vendor" / "inner" / name)
    with pytest.raises(cp.NestedRepository) as caught:
        take(workspace)
    assert caught.value.paths == [f"vendor/inner/{name}"]


@pytest.mark.parametrize("name", ["git~1", "GIT~1", ".git .", ".git::$DATA", "a\\.git", ".g\u200cit"])
def test_a_name_that_git_refuses_is_named_before_git_stumbles_over_it(workspace: Workspace, name: str) -> None:
    commit = take(workspace)
    (workspace.path / "src" / name).write_text("x")
    (workspace.path / ".gitmodules").symlink_to("README.md")
    with pytest.raises(cp.NestedRepository) as caught:
        take(workspace)
    assert sorted(caught.value.paths) == [".gitmodules", f"src/{name}"]
    cp.restore_checkpoint(workspace, commit)
    assert sorted(picture(workspace.path)) == ["README.md", "src", "src/app.py"]


def test_a_file_that_became_a_fifo_does_not_stop_a_snapshot(workspace: Workspace) -> None:
    (workspace.path / "README.md").unlink()
    os.mkfifo(workspace.path / "README.md")
    commit = take(workspace)
    names = git(workspace.vault.path, "ls-tree", "-r", "--name-only", f"{commit}:tree").splitlines()
    assert names == ["src/app.py"]


def test_the_transcript_comes_back_and_known_messages_are_not_written_again(workspace: Workspace) -> None:
    messages = [{"role": "user", "content": f"message {n} \ud800 ü"} for n in range(12)]
    first = cp.snapshot_worktree(workspace, parent=None, turn={"turn": 1}, transcript=messages[:11])
    second = cp.snapshot_worktree(
        workspace, parent=first, turn={"turn": 2, "x": [1]}, transcript=messages, changed=False
    )
    assert cp.read_transcript(workspace.vault, second) == messages
    assert cp.read_transcript(workspace.vault, first) == messages[:11]
    assert cp.read_turn(workspace.vault, second) == {"turn": 2, "x": [1]}
    assert cp.worktree_tree(workspace.vault, first) == cp.worktree_tree(workspace.vault, second)
    one, two = (git(workspace.vault.path, "rev-parse", f"{c}:transcript/0001.json") for c in (first, second))
    assert one == two
    assert workspace.vault.first_parent_child(first, second) == second


def test_a_stale_index_lock_does_not_stop_restore_or_snapshot(workspace: Workspace) -> None:
    commit = take(workspace)
    (workspace.shadow / "index.lock").touch()
    (workspace.path / "README.md").write_text("changed")
    cp.restore_checkpoint(workspace, commit)
    (workspace.shadow / "index.lock").touch()
    assert cp.worktree_tree(workspace.vault, take(workspace, commit)) == cp.worktree_tree(workspace.vault, commit)


def test_a_damaged_index_is_made_again(workspace: Workspace) -> None:
    commit = take(workspace)
    before = picture(workspace.path)
    (workspace.shadow / "index").write_bytes(b"")
    (workspace.path / "README.md").write_text("changed")
    cp.restore_checkpoint(workspace, commit)
    assert picture(workspace.path) == before


def test_after_a_restart_of_the_machine_nothing_is_believed_about_files(workspace: Workspace) -> None:
    commit = take(workspace)
    assert cp.is_at_checkpoint(workspace, commit)
    (workspace.shadow / "boot").write_text("an earlier boot")
    assert not cp.is_at_checkpoint(workspace, commit)
    cp.restore_checkpoint(workspace, commit)
    assert cp.is_at_checkpoint(workspace, commit)


def test_a_write_after_the_snapshot_is_noticed(workspace: Workspace) -> None:
    commit = take(workspace)
    assert cp.is_at_checkpoint(workspace, commit)
    (workspace.path / "new").write_text("x")
    assert not cp.is_at_checkpoint(workspace, commit)
    (workspace.path / "new").unlink()
    assert cp.is_at_checkpoint(workspace, commit)
    (workspace.path / "src" / "app.py").write_text("x = 2\n")
    assert not cp.is_at_checkpoint(workspace, commit)


def test_who_knows_that_nobody_wrote_asks_the_marker_alone(workspace: Workspace) -> None:
    commit = take(workspace)
    (workspace.path / "new").write_text("x")
    assert cp.is_at_checkpoint(workspace, commit, written_by_us_alone=True), "no file was looked at"
    assert not cp.is_at_checkpoint(workspace, "0" * 40, written_by_us_alone=True)
    cp.mark_dirty(workspace)
    assert not cp.is_at_checkpoint(workspace, commit, written_by_us_alone=True)


def test_a_checkpoint_survives_a_power_cut_right_after_it_was_written(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, objects, first = Disk(monkeypatch), workspace.vault.path / "objects", take(workspace)
    before = {path for path in objects.rglob("*") if path.is_file()}
    syncs = disk.syncs_of_file(journal_of(workspace.vault))
    second = cp.snapshot_worktree(
        workspace, parent=first, turn={"turn": 2}, transcript=[{"n": n} for n in range(40)], changed=False
    )
    new = {path for path in objects.rglob("*") if path.is_file()} - before
    assert len(new) == 44, "40 messages, the turn, two trees and the commit"
    assert not any(disk.keeps(path, objects) for path in new), "they are journaled"
    assert disk.syncs_of_file(journal_of(workspace.vault)) == syncs + 1
    lose_what_was_not_synced(disk, workspace.vault.path, new, monkeypatch)
    assert not any(path.exists() for path in new)
    again = Vault.open_existing(workspace.vault.path)
    assert all(path.stat().st_size for path in new)
    assert [message["n"] for message in cp.read_transcript(again, second)] == list(range(40))
    assert again.find_damage(second) == ""


def test_a_restore_waits_for_the_git_of_a_killed_worker(workspace: Workspace) -> None:
    commit = take(workspace)
    with workspace.lock_worktree() as held:
        orphan = subprocess.Popen(["sleep", "0.5"], pass_fds=(held,))
    assert orphan.poll() is None
    cp.restore_checkpoint(workspace, commit)
    assert orphan.poll() == 0, "it was over before the restore began"


def test_a_checkpoint_of_another_host_is_workspace_lost(workspace: Workspace) -> None:
    with pytest.raises(WorkspaceLost, match="is not in the vault"):
        cp.restore_checkpoint(workspace, "1" * 40)
    with pytest.raises(WorkspaceLost):
        cp.read_transcript(workspace.vault, "1" * 40)


def test_a_checkpoint_restored_into_a_new_workspace_is_the_same_tree(workspace: Workspace, vault: Vault) -> None:
    (workspace.path / "dos.bat").write_bytes(b"echo\r\n")
    (workspace.path / "src" / "app.py").chmod(0o640)
    commit = take(workspace)
    before = picture(workspace.path)
    workspace.remove()
    again, _ = Workspace.open_or_rebuild(workspace.home, vault, workspace.delivery, vault.fetch()[1])
    cp.restore_checkpoint(again, commit)
    assert picture(again.path) == before


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


@pytest.mark.parametrize("name", [".venv", "build", "a b", "[x]", "*star", "back\\slash", "éclair", "!bang", "deep/er"])
def test_what_setup_made_is_left_out_also_where_gitignore_names_it(workspace: Workspace, name: str) -> None:
    made = workspace.path / name
    made.mkdir(parents=True)
    (made / "file").write_text("made by setup")
    workspace.finish_setup()
    ignored = "".join(f"\\{c}" if c in "\\*?[]! " else c for c in name)
    (workspace.path / ".gitignore").write_text(f"/{ignored}\n")
    (workspace.path / "x").write_text("kept")
    commit = cp.snapshot_worktree(workspace, parent=None, turn={}, transcript=[])
    listed = workspace.vault.git.execute("ls-tree", "-r", "-z", "--name-only", f"{commit}:tree").names
    assert "x" in listed
    assert not [path for path in listed if path.startswith(name)]
