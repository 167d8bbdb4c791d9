"""Files are copied only from inside to inside, and only those that git ignores."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from perdure.adapters.repository.setup import copy_files
from perdure.models.errors import SetupFailed
from tests.project_files import Files


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
