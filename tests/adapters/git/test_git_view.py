"""The vault as commands see it: base and own branch, and nothing that any delivery ever said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git import git_view as views
from perdure.adapters.git import publish
from perdure.adapters.git.git_view import update_view
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.sandbox.base import GitView, SandboxCommand
from perdure.adapters.sandbox.environment import Binds
from perdure.adapters.sandbox.grades import probe, sandbox_for
from perdure.adapters.system import files as boots
from perdure.adapters.system.home import Home
from perdure.models.config.repository import SandboxGrade
from tests.repositories import git

EVERYTHING = "git cat-file --batch-all-objects --batch"
BRANCH = "perdure/demo-1"


def seen(workspace: Workspace) -> GitView:
    return update_view(workspace, "main", workspace.record().base_sha, BRANCH)


def said(workspace: Workspace, words: str) -> str:
    """A checkpoint with a conversation, on its hidden ref."""
    made = cp.snapshot_worktree(workspace, parent=None, turn={}, transcript=[{"role": "assistant", "content": words}])
    workspace.vault.git.execute("update-ref", f"refs/perdure/{workspace.delivery}/run", made)
    return made


def work(workspace: Workspace, name: str, parent: str) -> str:
    (workspace.path / name).write_text(f"{name}\n")
    checkpoint = said(workspace, "I, the author, leave a secret-7d1f here")
    made, _ = publish.commit_checkpoint(workspace, checkpoint=checkpoint, parent=parent, message=f"add {name}")
    workspace.advance_head(made)
    return made


@pytest.fixture
def inside(home: Home, workspace: Workspace, tmp_path: Path) -> Any:
    error = probe().error
    if error is not None:
        pytest.skip(f"BUBBLEWRAP DOES NOT WORK HERE: {error}")
    sandbox = sandbox_for(SandboxGrade.FULL, home, Binds(path=("/usr/bin", "/bin")))

    async def run(script: str, git_dir: Path | GitView) -> str:
        output = tmp_path / "output"
        await sandbox.run_command(SandboxCommand(script, workspace.path, output, 60, git_dir=git_dir))
        return output.read_text(errors="replace")

    return run


async def test_no_conversation_can_be_read_neither_ones_own_nor_anothers(inside, workspace, home, vault):
    other = Workspace.create(home, vault, "other-2", workspace.record().base_sha)
    others = said(other, "another delivery's secret-7d1f")
    work(workspace, "new.py", workspace.record().base_sha)
    unprotected = await inside(EVERYTHING, vault.path)
    assert unprotected.count("secret-7d1f") == 2, "the vault itself shows both"
    told = await inside(
        f"{EVERYTHING}; git for-each-ref; git log -1 {others}; ls -R {vault.path} {home.root}", seen(workspace)
    )
    assert "secret" not in told
    assert "refs/perdure" not in told
    assert "fatal: bad object" in told
    assert "add new.py" in told


async def test_git_works_inside_before_and_after_a_commit(inside, workspace, vault):
    base = workspace.record().base_sha
    look = "git status --short; git log --format=%s; git blame -s README.md | tail -1; git diff --stat"
    (workspace.path / "README.md").write_text("hello\nworld\n")
    assert (await inside(look, seen(workspace))).split("\n")[0:2] == [" M README.md", "first"]
    first = work(workspace, "one.py", base)
    second = work(workspace, "two.py", first)
    told = await inside(f"{look}; git rev-parse HEAD; git diff --stat origin/main..{BRANCH}; git fsck", seen(workspace))
    assert told.split("\n")[:3] == ["add two.py", "add one.py", "first"]
    assert told.split("\n")[3].startswith(first[:8])
    assert "3 files changed" in told
    assert second in told
    assert "missing" not in told
    assert "error" not in told


def test_an_unmoved_view_is_not_made_again_and_a_moved_base_adds_to_the_same_history(
    workspace, vault, origin, monkeypatch
):
    first = seen(workspace)
    monkeypatch.setattr(views, "_write_pack", None)  # would raise
    assert seen(workspace) == first
    monkeypatch.undo()
    later = origin.with_name("later")
    git(origin.parent, "clone", "-q", str(origin), str(later))
    monkeypatch.setattr(views, "GIT_VIEW_PACKS", 3)
    for number in range(6):
        (later / "README.md").write_text(f"{number}\n")
        git(later, "commit", "-q", "-a", "-m", f"number {number}")
        git(later, "push", "-q")
        base = vault.fetch()[1]
        moved = Workspace.create(workspace.home, vault, f"later-{number}", base)
        assert seen(moved).history == first.history
        count = git(moved.path, "-c", f"core.worktree={moved.path}", "rev-list", "--count", base)
        assert count == str(number + 2)
    assert len(list((first.history / "pack").glob("*.pack"))) <= 3
    bare = git(seen(moved).view_path, "log", "--format=%s", "refs/remotes/origin/main")
    assert bare.splitlines() == [*(f"number {number}" for number in range(5, -1, -1)), "first"]


def test_another_base_branch_is_not_in_this_ones_history(workspace, vault, origin):
    later = origin.with_name("later")
    git(origin.parent, "clone", "-q", str(origin), str(later))
    git(later, "checkout", "-q", "-b", "internal")
    git(later, "commit", "-q", "--allow-empty", "-m", "internal secret-7d1f")
    git(later, "push", "-q", "origin", "internal")
    vault.fetch("internal")
    shown = seen(workspace).view_path
    listed = git(shown, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)").splitlines()
    assert [line for line in listed if "commit" in line] == [f"commit {workspace.record().base_sha}"]


def test_a_view_that_a_power_cut_has_emptied_is_filled_again(
    workspace: Workspace, monkeypatch: Any, tmp_path: Path
) -> None:
    shown = seen(workspace).view_path
    names = ("config", "HEAD", "objects/info/alternates")
    whole = [(shown / name).read_text() for name in names]
    work(workspace, "more.py", workspace.record().base_sha)
    seen(workspace)
    packs = {path: path.read_bytes() for path in (shown / "objects/pack").iterdir()}
    assert packs
    for path in (*(shown / name for name in names), shown / "packed-refs", *packs):
        path.chmod(0o600)
        path.write_text("")
    (tmp_path / "boot").write_text("the next start of the machine\n")
    monkeypatch.setattr(boots, "_BOOT_ID", tmp_path / "boot")
    seen(workspace)
    assert [(shown / name).read_text() for name in names] == whole
    assert {path: path.read_bytes() for path in packs} == packs
    assert git(shown, "log", "--format=%s", BRANCH)


def test_half_a_pack_of_one_that_was_cut_off_is_removed(workspace: Workspace) -> None:
    found = seen(workspace)
    torn = [found.view_path / "objects/pack/tmp_pack_Ab12", found.history / "pack/tmp_pack_Cd34"]
    for path in torn:
        path.write_bytes(b"half")
    made = work(workspace, "more.py", workspace.record().base_sha)
    update_view(workspace, "main", made, BRANCH)
    assert [path.exists() for path in torn] == [False, False]
