"""The attacks of a hostile worktree (A1 to A8) planted together: nothing of them runs on the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_command import canary, plant

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git import publish
from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from tests.repositories import git

__all__ = ["canary"]


def work_through_everything(workspace: Workspace, vault: Vault, out: Path) -> None:
    """Each command the engine ever gives to git around a worktree."""
    base = workspace.record().base_sha
    (workspace.path / "new.x").write_text("changed\n")
    first = cp.snapshot_worktree(workspace, parent=None, turn={}, transcript=[])
    (workspace.path / "README.md").write_text("changed\n")
    second = cp.snapshot_worktree(workspace, parent=first, turn={}, transcript=[])
    cp.is_at_checkpoint(workspace, second)
    cp.restore_checkpoint(workspace, second)
    vault.diff(first + ":tree", second + ":tree")
    vault.diff_stat(base, second + ":tree")
    commit, _ = publish.commit_checkpoint(
        workspace, checkpoint=second, parent=base, message="feat: x\n\nPerdure-Step: y"
    )
    workspace.advance_head(commit)
    CheckoutPool.for_vault(workspace.home, vault).check_out(commit, out, admin=workspace.record().admin)
    publish.push_commit(vault, vault.url, commit, "perdure/demo-1", None)
    vault.fetch()
    vault.repack()
    workspace.find_problems()
    assert workspace.remove() == ""


def attributes(root: Path) -> None:
    (root / ".gitattributes").write_text("* filter=x diff=x text=auto merge=x\n")


def test_a_hostile_pointer_file_attributes_and_nested_configuration_run_nothing(
    workspace: Workspace, vault: Vault, tmp_path: Path, canary: Path
) -> None:
    evil = tmp_path / "evil"
    attributes(workspace.path)
    git(tmp_path, "init", "-q", "attacker")
    plant(tmp_path / "attacker" / ".git" / "config", evil)
    hooks = tmp_path / "attacker" / ".git" / "hooks"
    for name in ("pre-commit", "post-checkout", "pre-push", "reference-transaction", "post-index-change"):
        (hooks / name).symlink_to(evil)
    (workspace.path / ".git").write_text(f"gitdir: {tmp_path}/attacker/.git\n")
    work_through_everything(workspace, vault, tmp_path / "out")
    assert not list(canary.iterdir())


def test_a_rewritten_commondir_runs_nothing(workspace: Workspace, vault: Vault, tmp_path: Path, canary: Path) -> None:
    git(tmp_path, "init", "-q", "attacker")
    plant(tmp_path / "attacker" / ".git" / "config", tmp_path / "evil")
    (Path(workspace.record().admin) / "commondir").write_text(f"{tmp_path}/attacker/.git\n")
    attributes(workspace.path)
    work_through_everything(workspace, vault, tmp_path / "out")
    assert not list(canary.iterdir())


def test_the_persons_own_files_of_git_settings_are_not_read_for_worktrees(
    workspace: Workspace, vault: Vault, tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the owner's configuration in force for the push, hooks, fsmonitor and signing stay dead on our side.

    (A local origin's own side of a push is its owner's, with its owner's hooks, as for any push.)
    """
    person = tmp_path / "person"
    (person / ".config" / "git").mkdir(parents=True)
    plant(person / ".gitconfig", tmp_path / "evil")
    config = (person / ".gitconfig").read_text()
    (person / ".gitconfig").write_text(config.split('[url "ext::')[0])
    (tmp_path / "hooks").mkdir()
    for name in ("pre-push", "post-checkout", "post-index-change"):
        (tmp_path / "hooks" / name).symlink_to(tmp_path / "evil")
    (person / ".config" / "git" / "attributes").write_text("* filter=x\n")
    (person / ".config" / "git" / "ignore").write_text("*.x\n")
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    work_through_everything(workspace, vault, tmp_path / "out")
    assert not list(canary.iterdir())
    assert (tmp_path / "out" / "new.x").exists(), "a person's own ignore file hides nothing"


def test_a_url_that_the_owners_settings_turn_into_a_command_is_not_run(
    vault: Vault, tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = tmp_path / "person"
    person.mkdir()
    plant(person / ".gitconfig", tmp_path / "evil")
    monkeypatch.setenv("HOME", str(person))
    with pytest.raises(Exception, match="not allowed"):
        vault.fetch()
    assert not list(canary.iterdir())
