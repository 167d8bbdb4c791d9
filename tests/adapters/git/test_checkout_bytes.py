"""A delivery begins with its base commit's files, byte for byte, whatever happened to the worktree meanwhile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from git_pictures import picture

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git.checkouts import exact_tree
from perdure.adapters.git.publish import commit_checkpoint
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from tests.repositories import PERSON, git, make_origin

REWRITTEN = {
    ".gitattributes": b"*.bat text eol=crlf\n*.id ident\n*.u working-tree-encoding=UTF-16LE\n*.lfs filter=lfs -text\n",
    "deep/.gitattributes": b"*.c text eol=crlf\nraw.c -text -eol\n",
    "run.bat": b"one\ntwo\n",
    "deep/x.c": b"int x;\n",
    "deep/raw.c": b"int y;\n",
    "v.id": b"$Id$\n",
    "wide.u": "größer\n".encode("utf-16-le"),
    "big.lfs": b"version https://git-lfs.github.com/spec/v1\n",
    "two\nlines.bat": b"a\n",
    "plain.txt": b"x\n",
}


def made_of(origin: Path, home: Home) -> Workspace:
    vault = Vault.open_or_create(home, str(origin))
    return Workspace.create(home, vault, "demo-1", vault.fetch()[1])


def damage(root: Path) -> None:
    """Damage that a power cut, or somebody with an editor, can do."""
    for path in [*root.rglob("*.txt"), *root.rglob("*.md"), *root.rglob("*.bat")]:
        os.truncate(path, 0)
    (root / "stray.txt").write_text("nobody's")
    (root / ".stray").mkdir()
    (root / ".stray" / "f").write_text("nobody's")


@pytest.fixture
def tricky(tmp_path: Path) -> Path:
    """An origin whose checkout differs from its commits, with links of both kinds."""
    origin = make_origin(tmp_path / "tricky.git", REWRITTEN)
    seed = tmp_path / "tricky.git-seed"
    (seed / "link").symlink_to("plain.txt")
    sub = git(seed, "rev-parse", "HEAD")
    git(seed, "add", "link")
    git(seed, "update-index", "--add", "--cacheinfo", f"160000,{sub},vendor/lib")
    git(seed, "commit", "-qm", "links")
    git(seed, "push", "-q", str(origin), "main")
    return origin


def test_the_exact_tree_is_what_a_clone_writes_byte_for_byte(tricky: Path, home: Home, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(tricky), "clone")
    workspace = made_of(tricky, home)
    listed = git(workspace.vault.path, "ls-tree", "-r", "-z", workspace.record().exact_base)
    files = {path: about.split() for about, _, path in (line.partition("\t") for line in listed.split("\0") if line)}
    assert files["vendor/lib"][0] == "160000"
    assert files["link"][0] == "120000"
    regular = {path: sha for path, (mode, _, sha) in files.items() if mode.startswith("100")}
    assert regular.keys() == REWRITTEN.keys()
    for path, sha in regular.items():
        show = ["git", "-C", str(workspace.vault.path), "cat-file", "blob", sha]
        ours = subprocess.run(show, env=PERSON, capture_output=True, check=True).stdout
        assert ours == (tmp_path / "clone" / path).read_bytes(), path
    assert (tmp_path / "clone" / "run.bat").read_bytes() == b"one\r\ntwo\r\n", "this repository is rewritten"


def test_a_commit_that_no_attribute_rewrites_is_its_own_exact_tree(vault: Vault) -> None:
    _, base = vault.fetch()
    assert exact_tree(vault, base) == vault.tree_of(base)


def test_the_first_checkpoint_is_the_base_whatever_lies_in_the_worktree(tricky: Path, home: Home) -> None:
    workspace = made_of(tricky, home)
    before = picture(workspace.path)
    cp.restore_checkpoint(workspace, cp.write_initial_checkpoint(workspace, {"summary": "prepared"}))
    assert picture(workspace.path) == before, "a fresh checkout is what it holds already"
    damage(workspace.path)
    first = cp.write_initial_checkpoint(workspace, {"summary": "prepared"})
    cp.restore_checkpoint(workspace, first)
    assert picture(workspace.path) == before
    assert cp.worktree_tree(workspace.vault, first) == workspace.record().exact_base
    base = workspace.record().base_sha
    assert commit_checkpoint(workspace, checkpoint=first, parent=base, message="x")[0] == "", "nothing has changed"


def test_a_worktree_is_put_back_to_its_base_with_what_setup_made_in_it(workspace: Workspace) -> None:
    before = picture(workspace.path)
    damage(workspace.path)
    cp.restore_base(workspace)
    assert picture(workspace.path) == before, "before setup is done, nothing is its"
    (workspace.path / "made").write_text("by setup")
    workspace.finish_setup()
    damage(workspace.path)
    cp.restore_base(workspace)
    assert picture(workspace.path).keys() - before.keys() == {"made"}


def test_what_setup_did_to_tracked_files_is_undone_with_an_index_a_power_cut_has_emptied(workspace: Workspace) -> None:
    before = picture(workspace.path)
    for index in (Path(workspace.record().admin) / "index", workspace.shadow / "index"):
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_bytes(b"")
    (workspace.path / "README.md").write_text("rewritten")
    workspace.reset_tracked_files()
    assert picture(workspace.path) == before
