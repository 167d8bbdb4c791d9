"""Setup: commands run in order with their lines shown; files copied only from inside to inside."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from perdure.adapters.repository.setup import copy_files, ignore_dependencies, run_setup
from perdure.adapters.sandbox import base
from perdure.adapters.sandbox.base import Sandbox
from perdure.adapters.worker.attempt import FAILURE_CHARS
from perdure.models.errors import DiskFull, SetupFailed, WorkCutOff
from tests.killed_commands import first_process, killed_once, shell
from tests.sandboxes import Files
from tests.waiting import patient


async def test_commands_run_in_order_and_their_lines_are_shown(sandbox: Sandbox, files: Files, tmp_path: Path) -> None:
    root, said = files({}), list[str]()
    commands = ["echo one > made; printf 'x\\rdownloaded\\n'", "cat made; printf unfinished"]
    await run_setup(sandbox, root, commands, 60, tmp_path / "logs", said.append)
    assert said == [f"$ {commands[0]}", "downloaded", f"$ {commands[1]}", "one", "unfinished"]


@pytest.mark.parametrize("ending", ["exit 3", "true"])
async def test_a_worktree_that_is_removed_while_setup_runs_is_not_the_repositorys_fault(
    sandbox: Sandbox, files: Files, tmp_path: Path, ending: str
) -> None:
    root = files({})
    command = f"touch up; while [ -e up ]; do sleep 0.05; done; {ending}"
    task = asyncio.ensure_future(run_setup(sandbox, root, [command], 60, tmp_path / "logs", lambda _: None))
    async with asyncio.timeout(patient(30)):
        while not (root / "up").exists():
            assert not task.done(), task
            await asyncio.sleep(0.02)
        shutil.rmtree(root)
        with pytest.raises(WorkCutOff, match="is gone"):
            await task


async def test_a_command_that_fails_on_a_full_disk_waits_for_room(
    sandbox: Sandbox, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "DISK_FREE_BYTES", 1 << 60)
    await run_setup(sandbox, files({}), ["true"], 60, tmp_path / "logs", lambda _: None)
    with pytest.raises(DiskFull) as caught:
        await run_setup(sandbox, files({}), ["exit 3"], 60, tmp_path / "logs", lambda _: None)
    assert caught.value.where == "[setup] exit 3"


async def test_a_failing_command_stops_setup_and_shows_its_last_lines(
    sandbox: Sandbox, files: Files, tmp_path: Path
) -> None:
    root = files({})
    with pytest.raises(SetupFailed) as caught:
        await run_setup(sandbox, root, ["seq 1 500; exit 3", "touch never"], 60, tmp_path / "logs", lambda _: None)
    error = caught.value
    lines = error.what.splitlines()
    assert lines[0] == "setup failed: exit code 3"
    assert lines[1:] == [str(n) for n in range(481, 501)]
    assert error.where == "[setup] seq 1 500; exit 3"
    assert "perdure.toml" in error.fix
    assert len(str(error)) <= FAILURE_CHARS
    assert not (root / "never").exists()


@pytest.mark.parametrize("pick", [first_process, shell])
async def test_a_command_that_is_killed_from_outside_is_run_once_more(
    sandbox: Sandbox, files: Files, tmp_path: Path, pick: Callable[[psutil.Process], psutil.Process | None]
) -> None:
    root, lines = files({}), list[str]()
    command = "echo x >> ran.log; sleep 3; true"
    async with killed_once(("sleep", "3"), pick):
        await run_setup(sandbox, root, [command], 60, tmp_path / "logs", lines.append)
    assert (root / "ran.log").read_text().split() == ["x", "x"]
    assert lines == [f"$ {command}", "killed; once more"]


async def test_a_command_that_is_killed_each_time_has_failed(sandbox: Sandbox, files: Files, tmp_path: Path) -> None:
    root = files({})
    with pytest.raises(SetupFailed, match="exit code 137"):
        await run_setup(sandbox, root, ["echo x >> ran.log; kill -9 $$"], 60, tmp_path / "logs", lambda _: None)
    assert (root / "ran.log").read_text().split() == ["x", "x"]


async def test_a_missing_installer_is_named(sandbox: Sandbox, files: Files, tmp_path: Path) -> None:
    with pytest.raises(SetupFailed) as caught:
        await run_setup(sandbox, files({}), ["nosuchtool sync"], 60, tmp_path / "logs", lambda _: None)
    assert caught.value.fix == "install nosuchtool on this host, or change [setup] commands in perdure.toml"


async def test_the_time_is_for_all_commands_together(sandbox: Sandbox, files: Files, tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match="not finished after 1 s") as caught:
        await run_setup(sandbox, files({}), ["sleep 0.2", "sleep 60"], 1, tmp_path / "logs", lambda _: None)
    assert caught.value.where == "[setup] sleep 60"


async def test_what_setup_installed_is_found_and_ignored_by_git(sandbox: Sandbox, files: Files, tmp_path: Path) -> None:
    root = files({"packages/a/x": "", ".venv-docs/x": ""})
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    commands = ["mkdir -p .venv/bin node_modules/x/node_modules packages/a/node_modules/y; touch .venv/bin/python"]
    await run_setup(sandbox, root, commands, 60, tmp_path / "logs", lambda _: None)
    ignore_dependencies(root)
    status = ["git", "-C", str(root), "status", "--porcelain", "-uall"]
    assert sorted(subprocess.check_output(status, text=True).split()[1::2]) == [".venv-docs/x", "packages/a/x"]


def checkout_of(root: Path, but: str = "") -> Path:
    """With a repository in which everything is ignored `but` something."""
    subprocess.run(["git", "init", "-q", str(root)], check=True, timeout=60)
    (root / ".git/info/exclude").write_text("*\n" + but)
    return root


def test_named_files_are_copied_with_their_modes(files: Files, tmp_path: Path) -> None:
    checkout, tree = checkout_of(files({".env.test": "A=1", "config/local.toml": "b"})), tmp_path / "tree"
    tree.mkdir()
    (checkout / ".env.test").chmod(0o640)
    copy_files(checkout, tree, [".env.test", "config/local.toml"])
    assert (tree / "config/local.toml").read_text() == "b"
    assert (tree / ".env.test").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "name",
    [
        "/etc/hostname",
        "../secret",
        "a/../../secret",
        "absent",
        "dir",
        "out",
        "up/secret",
        "",
        "sub/.GIT/config",
        "pipe",
        "known",
    ],
)
def test_a_name_that_leaves_the_checkout_or_is_no_file_copies_nothing(files: Files, tmp_path: Path, name: str) -> None:
    made = files({"good": "1", "dir/x": "", "sub/.GIT/config": "x", "known": "1"})
    checkout, tree = checkout_of(made, "!known\n"), tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "secret").write_text("secret")
    (checkout / "out").symlink_to(tmp_path / "secret")
    (checkout / "up").symlink_to(tmp_path)
    os.mkfifo(checkout / "pipe")
    with pytest.raises(SetupFailed, match="cannot be copied") as caught:
        copy_files(checkout, tree, ["good", name])
    assert caught.value.where == "[setup] copy"
    assert list(tree.iterdir()) == []


def test_a_link_in_the_repository_does_not_lead_the_copy_astray(files: Files, tmp_path: Path) -> None:
    checkout, tree = checkout_of(files({".env": "new", "d/x": "new"})), tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "victim").write_text("old")
    (tree / ".env").symlink_to("../victim")
    (tree / "d").symlink_to("..")
    for name in (".env", "d/x"):
        with pytest.raises(SetupFailed, match="symbolic link"):
            copy_files(checkout, tree, [name])
    assert (tmp_path / "victim").read_text() == "old"


def test_nothing_to_copy_needs_no_checkout(tmp_path: Path) -> None:
    copy_files(tmp_path / "is not there", tmp_path, [])
