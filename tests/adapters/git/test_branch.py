"""Commits hold normal forms and only what was changed; a push is repeatable and never overwrites others' work."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git import publish
from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.remote import fetch_branch_commits, remote_tip
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from tests.repositories import changed, git, make_origin

TRAILERS = {"Perdure-Delivery": "demo-1", "Perdure-Step": "implement 1"}
MESSAGE = "feat: x\n\nWhy.\n\n" + "\n".join(f"{name}: {value}" for name, value in TRAILERS.items()) + "\n"
SHIP = "perdure/demo-1"


def commit(workspace: Workspace, parent: str | None = None) -> tuple[str, str]:
    checkpoint = cp.snapshot_worktree(workspace, parent=None, turn={}, transcript=[])
    base = parent or workspace.record().base_sha
    return publish.commit_checkpoint(workspace, checkpoint=checkpoint, parent=base, message=MESSAGE)


def test_a_commit_holds_the_change_its_trailers_and_nothing_of_the_engine(workspace: Workspace) -> None:
    (workspace.path / "src" / "new.py").write_text("y = 1\n")
    (workspace.path / ".ports.env").write_text("P=1\n")
    (workspace.path / ".venv").mkdir()
    (workspace.path / ".venv" / "x").write_text("x")
    (workspace.path / ".gitignore").write_text("!.venv\n!.ports.env\n")
    made, tree = commit(workspace)
    vault = workspace.vault
    assert vault.tree_of(made) == tree
    assert changed(vault.path, workspace.record().base_sha, made) == [
        ".gitignore",
        "src/new.py",
    ]
    assert git(vault.path, "log", "-1", "--format=%an <%ae>%n%s", made) == "Perdure <perdure@localhost>\nfeat: x"
    workspace.advance_head(made)
    assert git(workspace.path, "rev-parse", "HEAD") == made
    assert git(workspace.path, "status", "--porcelain", "--", "src", "README.md") == ""


def test_a_tree_equal_to_its_parents_is_no_commit(workspace: Workspace) -> None:
    made, tree = commit(workspace)
    assert made == ""
    assert tree == workspace.vault.tree_of(workspace.record().base_sha)


def test_a_commit_uses_the_repositorys_line_endings_and_touches_no_other_file(home: Home, tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "o.git", {"old.txt": b"one\r\ntwo\r\n", "a.py": b"a\n"})
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(origin), "clone")
    (clone / ".gitattributes").write_text("*.txt text\n*.bat text eol=crlf\n")
    git(clone, "add", ".gitattributes")
    git(clone, "commit", "-q", "-m", "attributes, without renormalising what was there")
    git(clone, "push", "-q")
    vault = Vault.open_or_create(home, str(origin))
    workspace = Workspace.create(home, vault, "demo-1", vault.fetch()[1])
    (workspace.path / "run.bat").write_bytes(b"echo\r\n")
    made, _ = commit(workspace)
    assert changed(vault.path, workspace.record().base_sha, made) == ["run.bat"]
    assert vault.read_file(made, "run.bat") == b"echo\n"

    CheckoutPool.for_vault(home, vault).check_out(made, tmp_path / "out")
    assert (tmp_path / "out" / "run.bat").read_bytes() == b"echo\r\n", "as a clone would have it"
    assert (tmp_path / "out" / "old.txt").read_bytes() == b"one\r\ntwo\r\n"


def test_a_commit_is_made_of_the_checkpoint_not_of_what_lies_around(workspace: Workspace) -> None:
    (workspace.path / "a.py").write_text("a\n")
    checkpoint = cp.snapshot_worktree(workspace, parent=None, turn={}, transcript=[])
    (workspace.path / "later.py").write_text("a test wrote this\n")
    base = workspace.record().base_sha
    made, _ = publish.commit_checkpoint(workspace, checkpoint=checkpoint, parent=base, message="m")
    assert changed(workspace.vault.path, base, made) == ["a.py"]


def test_a_second_commit_builds_on_the_first_also_after_stale_locks_and_damage(workspace: Workspace) -> None:
    (workspace.path / "a.py").write_text("a\n")
    first, _ = commit(workspace)
    (workspace.path / "a.py").write_text("b\n")
    (workspace.path / "README.md").unlink()
    for name, data in (("commit.index.lock", b""), ("commit.index", b"damaged")):
        (workspace.private / name).write_bytes(data)
    second, _ = commit(workspace, first)
    assert changed(workspace.vault.path, first, second) == [
        "README.md",
        "a.py",
    ]


def test_files_links_and_directories_may_change_places(workspace: Workspace) -> None:
    root = workspace.path
    (root / "README.md").unlink()
    (root / "README.md").mkdir()
    (root / "README.md" / "-x").write_text("now a directory")
    (root / "src" / "app.py").unlink()
    (root / "src").rmdir()
    (root / "src").symlink_to("README.md")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    first, _ = commit(workspace)
    listed = git(workspace.vault.path, "ls-tree", "-r", "--format=%(objectmode) %(path)", first).splitlines()
    assert listed == ["100644 README.md/-x", "100755 run", "120000 src"]
    cp.restore_checkpoint(workspace, cp.snapshot_worktree(workspace, parent=None, turn={}, transcript=[]))
    (root / "src").unlink()
    (root / "run").unlink()
    second, _ = commit(workspace, first)
    assert changed(workspace.vault.path, first, second) == [
        "run",
        "src",
    ]


def test_a_commit_made_by_a_killed_attempt_is_found_by_parent_and_trailers(workspace: Workspace) -> None:
    vault, base = workspace.vault, workspace.record().base_sha
    (workspace.path / "a.py").write_text("a\n")
    made, _ = commit(workspace)
    ref = f"refs/heads/{SHIP}"
    assert publish.find_commit(vault, ref, base, TRAILERS) is None
    vault.move_ref(ref, made, None)
    assert publish.find_commit(vault, ref, base, TRAILERS) == made
    assert publish.find_commit(vault, ref, base, TRAILERS | {"Perdure-Step": "fix_tests 1"}) is None
    assert publish.find_commit(vault, ref, made, TRAILERS) is None


@pytest.fixture
def pushed(workspace: Workspace) -> str:
    (workspace.path / "a.py").write_text("a\n")
    made, _ = commit(workspace)
    publish.push_commit(workspace.vault, workspace.vault.url, made, SHIP, None)
    return made


def test_a_push_can_be_repeated_and_moves_on_from_what_was_pushed(workspace: Workspace, pushed: str) -> None:
    vault = workspace.vault
    publish.push_commit(vault, vault.url, pushed, SHIP, None)
    assert remote_tip(vault.url, SHIP) == pushed
    (workspace.path / "a.py").write_text("b\n")
    second, _ = commit(workspace, pushed)
    publish.push_commit(vault, vault.url, second, SHIP, pushed)
    publish.push_commit(vault, vault.url, second, SHIP, pushed)
    assert remote_tip(vault.url, SHIP) == second


def test_a_branch_somebody_else_moved_is_not_overwritten(
    workspace: Workspace, pushed: str, origin: Path, tmp_path: Path
) -> None:
    theirs = git(origin, "commit-tree", "-p", pushed, "-m", "theirs", f"{pushed}^{{tree}}")
    git(origin, "update-ref", f"refs/heads/{SHIP}", theirs)
    (workspace.path / "a.py").write_text("b\n")
    second, _ = commit(workspace, pushed)
    for expected in (pushed, None):
        with pytest.raises(ForgeRefused, match="commits that Perdure did not make"):
            publish.push_commit(workspace.vault, workspace.vault.url, second, SHIP, expected)
    assert remote_tip(str(origin), SHIP) == theirs


@pytest.mark.parametrize(("existing", "named"), [("perdure", "perdure"), (f"{SHIP}/x", f"{SHIP}/x")])
def test_a_branch_in_the_way_of_the_name_is_named_with_the_way_out(
    workspace: Workspace, origin: Path, existing: str, named: str
) -> None:
    git(origin, "branch", existing, "main")
    (workspace.path / "a.py").write_text("a\n")
    made, _ = commit(workspace)
    with pytest.raises(ForgeRefused, match=f"has a branch {named}") as caught:
        publish.push_commit(workspace.vault, workspace.vault.url, made, SHIP, None)
    assert "rename" in caught.value.fix


def test_a_remote_that_declines_is_quoted(workspace: Workspace, origin: Path) -> None:
    hook = origin / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho no pushes on Fridays >&2\nexit 1\n")
    hook.chmod(0o755)
    (workspace.path / "a.py").write_text("a\n")
    made, _ = commit(workspace)
    with pytest.raises(ForgeRefused, match="no pushes on Fridays"):
        publish.push_commit(workspace.vault, workspace.vault.url, made, SHIP, None)


def test_an_unreachable_remote_is_worth_another_try(workspace: Workspace) -> None:
    base = workspace.record().base_sha
    with pytest.raises(ForgeUnavailable) as caught:
        publish.push_commit(workspace.vault, "http://ada:hunter2@127.0.0.1:1/x.git", base, SHIP, None)
    assert "hunter2" not in str(caught.value)


def test_a_folded_trailer_of_somebodys_commit_is_one_value(origin: Path) -> None:
    tree = git(origin, "rev-parse", "main^{tree}")
    message = "theirs\n\nPerdure-Delivery: calc-sub\n and more\n"
    theirs = git(origin, "commit-tree", "-p", "main", "-m", message, tree)
    git(origin, "update-ref", "refs/heads/theirs", theirs)
    newest, *_ = fetch_branch_commits(str(origin), "theirs", 5)
    assert (newest.sha, newest.delivery) == (theirs, "calc-sub and more")
