"""The one door: a pinned environment, dead configuration, errors that keep secrets, and an end to every command."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure.adapters.git.command import Git, GitError, redact
from perdure.adapters.git.publish import push_commit
from perdure.adapters.git.vault import Vault
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
