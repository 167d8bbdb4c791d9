"""The one door to git: a pinned environment, dead configuration, and nothing of a hostile worktree runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git import publish
from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.command import Git, GitError, redact
from perdure.adapters.git.patch import unified_diff
from perdure.adapters.git.publish import push_commit
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.models.errors import ForgeRefused
from tests.repositories import git


def seen_environment(door: Git) -> dict[str, str]:
    listed = door.text("-c", "alias.look=!env -0", "look")
    return dict(entry.split("=", 1) for entry in listed.split("\0") if entry)


def test_git_sees_neither_keys_nor_a_foreign_git_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "GIT_EXTERNAL_DIFF", "GIT_CONFIG_COUNT", "GIT_DIR"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    for door in (Git(), Git(as_owner=True)):
        seen = seen_environment(door)
        assert "secret" not in seen.values()
        assert seen["GIT_TERMINAL_PROMPT"] == "0"
        assert seen["LC_ALL"] == "C"
    assert not seen_environment(Git()).get("HOME")
    assert not seen_environment(Git()).get("HTTPS_PROXY")
    assert not any(name in seen_environment(Git()) for name in ("GIT_EXTERNAL_DIFF", "GIT_CONFIG_COUNT", "GIT_DIR"))
    assert seen_environment(Git(as_owner=True))["HTTPS_PROXY"] == "http://proxy"
    assert seen_environment(Git())["GIT_CONFIG_GLOBAL"] == "/dev/null"
    assert "GIT_CONFIG_GLOBAL" not in seen_environment(Git(as_owner=True))


def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(GitError) as caught:
        Git().execute("-c", f"alias.nap=!sleep 60 & echo $! > {pid_file}; wait", "nap", timeout_s=1)
    assert caught.value.returncode is None
    child = int(pid_file.read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the child of a timed-out git is still alive")


def test_of_a_damaged_repository_the_error_says_how_to_look(tmp_path: Path) -> None:
    git = Git(git_dir=tmp_path / ".git", cwd=tmp_path)
    Git(cwd=tmp_path).execute("init", "-q", str(tmp_path))
    name = git.execute("hash-object", "-w", "--stdin", stdin=b"words").text
    damaged = tmp_path / ".git" / "objects" / name[:2] / name[2:]
    damaged.chmod(0o644)
    for content in (b"garbage", b""):
        damaged.write_bytes(content)
        with pytest.raises(GitError) as caught:
            git.execute("cat-file", "blob", name)
        assert caught.value.fix == "git fsck --full shows what is damaged there"
    with pytest.raises(GitError) as caught:
        git.execute("cat-file", "blob", "0" * 40)
    assert caught.value.fix == ""


def test_an_ended_command_is_not_waited_for_where_a_helper_has_left_its_group(tmp_path: Path) -> None:
    """Such as the master of a shared ssh connection, which keeps stderr for as long as it lives."""
    pid_file = tmp_path / "pid"
    ended = tmp_path / "ended"
    helper = f"setsid sh -c 'echo $$ > {pid_file}; sleep 30; touch {ended}' & sleep 60"
    with pytest.raises(GitError, match="was ended: no end after"):
        Git().execute("-c", f"alias.nap=!{helper}", "nap", timeout_s=3)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int(pid_file.read_text()), signal.SIGKILL)
    assert not ended.exists(), "the helper was waited for"


def test_a_descriptor_that_is_held_stays_open_in_git(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    try:
        look = ("-c", f"alias.look=!readlink /proc/self/fd/{descriptor}", "look")
        assert Git().execute(*look, lock_fds=(descriptor,)).text == str(tmp_path / "lock")
        with pytest.raises(GitError):
            Git().execute(*look)
    finally:
        os.close(descriptor)


def test_hundreds_of_calls_from_threads_answer_each_their_own_repository(tmp_path: Path) -> None:
    roots = [tmp_path / str(number) for number in range(4)]
    for root in roots:
        git(tmp_path, "init", "-q", "--bare", str(root))

    def ask(number: int) -> bool:
        root = roots[number % 4]
        return Git(root).text("rev-parse", "--absolute-git-dir") == str(root)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(ask, range(120)))


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("fatal: https://ada:pw@host/x.git gone", "fatal: https://***@host/x.git gone"),
        ("https://ghp_abc@host/x", "https://***@host/x"),
        ("ssh://git@host/x", "ssh://git@host/x"),
        ("https://host/x?private_token=abc&y=1", "https://host/x?private_token=***&y=1"),
        ("git@host:me/x.git", "git@host:me/x.git"),
    ],
)
def test_credentials_in_urls_are_redacted(told: str, kept: str) -> None:
    assert redact(told) == kept


def test_an_error_never_shows_the_password_of_a_url() -> None:
    with pytest.raises(GitError) as caught:
        Git(as_owner=True).execute("ls-remote", "--", "http://ada:hunter2@127.0.0.1:1/x.git")
    error = caught.value
    assert "hunter2" not in f"{error} {error.stderr} {error.command} {error.where} {error!r}"
    assert error.__context__ is None or "hunter2" not in str(error.__context__)


HOSTILE = """\
#!/bin/sh
touch {canary}/$(basename "$0")-$$
cat
"""


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A directory that stays empty unless hostile code ran on the host; its script is at `evil`."""
    directory = tmp_path / "ran"
    directory.mkdir()
    evil = tmp_path / "evil"
    evil.write_text(HOSTILE.format(canary=directory))
    evil.chmod(0o755)
    return directory


def plant(config: Path, evil: Path) -> None:
    """A2, A3, A4, A5, A7, A8 and diff.external in one configuration file."""
    with config.open("a") as file:
        file.write(
            f"[core]\n\thooksPath = {evil.parent}/hooks\n\tfsmonitor = {evil}\n\tpager = {evil}\n\teditor = {evil}\n"
            f'[filter "x"]\n\tclean = {evil}\n\tsmudge = {evil}\n\tprocess = {evil}\n'
            f'[diff]\n\texternal = {evil}\n[diff "x"]\n\ttextconv = {evil}\n\tcommand = {evil}\n'
            f"[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = {evil}\n[push]\n\tgpgSign = true\n"
            f'[url "ext::{evil} "]\n\tinsteadOf = /\n[credential]\n\thelper = {evil}\n'
        )


def test_the_canary_sings_when_git_is_called_without_the_door(tmp_path: Path, canary: Path) -> None:
    git(tmp_path, "init", "-q", "plain")
    plant(tmp_path / "plain" / ".git" / "config", tmp_path / "evil")
    subprocess.run(["git", "-C", str(tmp_path / "plain"), "status"], capture_output=True, check=False, timeout=30)
    assert list(canary.iterdir())


def test_a_failure_says_what_is_wrong_and_names_the_file_whatever_git_goes_on_to_advise(vault: Vault) -> None:
    _, base = vault.fetch()
    lock = vault.path / "refs" / "heads" / "x.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    with pytest.raises(GitError) as caught:
        vault.git.execute("update-ref", "refs/heads/x", base)
    assert str(caught.value.what).endswith(f"{lock}': File exists.")
    assert "remove the file manually" in caught.value.stderr.splitlines()[-1], "it used to say this alone"


def test_a_remotes_stale_lock_is_named_with_what_to_do(vault: Vault, origin: Path) -> None:
    _, base = vault.fetch()
    lock = origin / "refs" / "heads" / "perdure" / "x.lock"
    lock.parent.mkdir()
    lock.touch()
    with pytest.raises(ForgeRefused) as caught:
        push_commit(vault, str(origin), base, "perdure/x", None)
    assert "x.lock': File exists" in caught.value.what
    assert "remove the lock file" in caught.value.fix


def work_through_everything(workspace: Workspace, vault: Vault, out: Path) -> None:
    """Each command the engine ever gives to git around a worktree."""
    base = workspace.record().base_sha
    (workspace.path / "new.x").write_text("changed\n")
    first = cp.snapshot_worktree(workspace, parent=None, turn={}, transcript=[])
    (workspace.path / "README.md").write_text("changed\n")
    second = cp.snapshot_worktree(workspace, parent=first, turn={}, transcript=[])
    cp.is_at_checkpoint(workspace, second)
    cp.restore_checkpoint(workspace, second)
    unified_diff(vault, first + ":tree", second + ":tree")
    vault.diff_stat(base, second + ":tree")
    commit, _ = publish.commit_checkpoint(
        workspace, checkpoint=second, parent=base, message="feat: x\n\nPerdure-Step: y"
    )
    workspace.advance_head(commit)
    CheckoutPool.for_vault(workspace.home, vault).check_out(commit, out, admin=workspace.record().admin)
    publish.push_commit(vault, vault.url, commit, "perdure/demo-1", None)
    vault.fetch()
    vault.pack_objects()
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


@pytest.mark.parametrize("name", ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"])
def test_a_variable_that_names_a_broken_configuration_ends_no_program_of_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / "broken").write_text("[broken\n")
    code = f"import perdure.adapters.git.command, os; print(os.environ.get({name!r}))"
    env = {**os.environ, name: str(tmp_path / "broken")}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == (f"{tmp_path / 'broken'}\n", "")
