"""Clean checkouts: those of large repositories are used again, and nobody can tell."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from any_trees import TREES, grow
from git_pictures import Node, picture
from git_repositories import git, make_origin
from hypothesis import HealthCheck, given, settings

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git.branch import commit_tree
from perdure.adapters.git.checkouts import LARGE, MOST, Checkouts, sweep
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from tests.examples import examples

FILES = {"a.py": b"x = 1\n", "src/b.py": b"y = 1\n", "src/deep/c.sh": b"#!/bin/sh\n"}


@pytest.fixture
def commits(home: Home, tmp_path: Path) -> tuple[Vault, str, str]:
    """A vault with two commits: the second changes, adds and removes a file."""
    origin = make_origin(tmp_path / "two.git", FILES)
    first = Vault.open(home, str(origin)).fetch()[1]
    git(tmp_path, "clone", "-q", str(origin), "clone")
    clone = tmp_path / "clone"
    (clone / "a.py").write_text("x = 2\n")
    (clone / "new.py").write_text("z = 1\n")
    (clone / "src" / "deep" / "c.sh").unlink()
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "second")
    git(clone, "push", "-q")
    return Vault.open(home, str(origin)), first, Vault.open(home, str(origin)).fetch()[1]


@pytest.fixture
def kept(commits: tuple[Vault, str, str], tmp_path: Path) -> Checkouts:
    return Checkouts(commits[0], tmp_path / "kept", large=1)


def fresh(vault: Vault, commit: str, at: Path) -> dict[str, Node]:
    """The files of a checkout that no other has been before."""
    Checkouts(vault, at.with_name("none"), keeps=False).make(commit, at)
    return picture(at)


def test_a_checkout_is_clean_and_can_know_its_repository(workspace: Workspace, tmp_path: Path) -> None:
    base, out = workspace.record().base_sha, tmp_path / "out"
    (workspace.path / "untracked").write_text("x")
    out.mkdir()
    (out / "of another attempt").write_text("x")
    Checkouts.of(workspace.home, workspace.vault).make(base, out, admin=workspace.record().admin)
    assert sorted(path.name for path in out.iterdir()) == [".git", "README.md", "src"]
    assert (out / ".git").read_text() == (workspace.path / ".git").read_text()
    assert stat.S_IMODE((out / "README.md").stat().st_mode) == 0o644
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_what_does_not_differ_is_not_written_again_and_the_rest_is(
    commits: tuple[Vault, str, str], kept: Checkouts, tmp_path: Path
) -> None:
    vault, first, second = commits
    one, two = tmp_path / "one", tmp_path / "two"
    kept.make(first, one)
    was = (one / "src" / "b.py").stat().st_ino
    kept.put_away(one)
    assert not one.exists()
    kept.make(second, two)
    assert (two / "src" / "b.py").stat().st_ino == was
    assert picture(two) == fresh(vault, second, tmp_path / "fresh")
    kept.put_away(two)
    kept.make(first, one)
    assert picture(one) == fresh(vault, first, tmp_path / "fresh again")


def _same_size_and_time(tree: Path) -> None:
    before = (tree / "a.py").stat()
    (tree / "a.py").write_text("x = 9\n")
    os.utime(tree / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))


def _another_repository(tree: Path) -> None:
    git(tree / "src", "init", "-q")
    (tree / "src" / "inner").write_text("x")
    git(tree / "src", "add", "inner")


def _a_link_in_the_way(tree: Path) -> None:
    shutil.rmtree(tree / "src")
    (tree / "src").symlink_to(tree.parent)


def _marks(tree: Path) -> None:
    os.setxattr(tree / "src", "user.seen", b"1")
    os.setxattr(tree / "a.py", "user.seen", b"1")
    (tree / "src").chmod(0o2777)


def _never_read(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    (tree / "a.py").unlink()
    os.mkfifo(tree / "a.py")


def _second_name(tree: Path) -> None:
    (tree / "a.py").unlink()
    os.link(tree / "src" / "b.py", tree / "a.py")


def _ignored(tree: Path) -> None:
    (tree / ".gitignore").write_text("*\n")
    (tree / ".venv").mkdir()
    (tree / ".venv" / "secret").write_text("x")
    (tree / "src" / "__pycache__").mkdir(mode=0o500)


HARM = (
    *(_same_size_and_time, _another_repository, _a_link_in_the_way, _marks, _never_read, _second_name, _ignored),
    lambda tree: (tree / ".git").mkdir(),
    lambda tree: shutil.rmtree(tree / "src"),
    lambda tree: (tree / "a.py").chmod(0o4755),
    lambda tree: (tree / "a.py").chmod(0o4644),
    lambda tree: (tree / "a.py").chmod(0o600),
    lambda tree: tree.chmod(0o2700),
)


@pytest.mark.parametrize("harm", HARM, ids=lambda harm: harm.__name__.strip("_"))
@pytest.mark.parametrize("to", [1, 2])
def test_nothing_that_a_test_does_to_its_checkout_is_there_in_the_next(
    commits: tuple[Vault, str, str], kept: Checkouts, tmp_path: Path, harm: object, to: int
) -> None:
    vault, commit = commits[0], commits[to]
    kept.make(commits[1], tmp_path / "one")
    there = (tmp_path / "one").stat().st_ino
    assert callable(harm)
    harm(tmp_path / "one")
    kept.put_away(tmp_path / "one")
    kept.make(commit, tmp_path / "two")
    assert (tmp_path / "two").stat().st_ino == there, "it is the same directory"
    assert picture(tmp_path / "two") == fresh(vault, commit, tmp_path / "fresh")
    assert stat.S_IMODE((tmp_path / "two").stat().st_mode) == 0o755
    assert not [path for path in (tmp_path / "two").rglob("*") if not path.is_symlink() and os.listxattr(path)]


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=TREES, after=TREES, harm=TREES)
def test_a_kept_checkout_becomes_any_other_commit_whatever_was_done_to_it(
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[tuple[str, ...], Node],
    after: dict[tuple[str, ...], Node],
    harm: dict[tuple[str, ...], Node],
) -> None:
    root = tmp_path_factory.mktemp("any")
    seed = root / "seed"
    seed.mkdir()
    git(seed, "init", "-q", "-b", "main")
    made = []
    for tree in (before, after):
        for path in seed.iterdir():
            if path.name != ".git":
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        grow(seed, tree)
        git(seed, "add", "-A", "-f")
        git(seed, "commit", "-q", "--allow-empty", "-m", "one")
        made.append(git(seed, "rev-parse", "HEAD"))
    git(root, "clone", "-q", "--bare", str(seed), "o.git")
    vault = Vault.open(Home(root / "home"), str(root / "o.git"))
    vault.fetch()
    kept = Checkouts(vault, root / "kept", large=0)
    kept.make(made[0], root / "one")
    grow(root / "one", harm)
    kept.put_away(root / "one")
    kept.make(made[1], root / "two")
    assert picture(root / "two") == fresh(vault, made[1], root / "fresh")


def test_other_attributes_write_all_files_anew(home: Home, tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "crlf.git", {"run.bat": b"one\n", "sub/.gitattributes": b"*.bat text\n"})
    git(tmp_path, "clone", "-q", str(origin), "clone")
    (tmp_path / "clone" / ".gitattributes").write_text("*.bat text eol=crlf\n")
    git(tmp_path / "clone", "add", "-A")
    git(tmp_path / "clone", "commit", "-q", "-m", "line endings")
    vault = Vault.open(home, str(origin))
    first = vault.fetch()[1]
    git(tmp_path / "clone", "push", "-q")
    second, kept = vault.fetch()[1], Checkouts(vault, tmp_path / "kept", large=1)
    kept.make(first, tmp_path / "one")
    assert (tmp_path / "one" / "run.bat").read_bytes() == b"one\n"
    kept.put_away(tmp_path / "one")
    kept.make(second, tmp_path / "two")
    assert (tmp_path / "two" / "run.bat").read_bytes() == b"one\r\n"


def test_of_twenty_who_want_the_same_one_each_gets_a_checkout_of_his_own(
    commits: tuple[Vault, str, str], kept: Checkouts, tmp_path: Path
) -> None:
    vault, first, second = commits
    kept.make(first, tmp_path / "0")
    kept.put_away(tmp_path / "0")
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda n: kept.make(second, tmp_path / f"{n}"), range(20)))
    expected = fresh(vault, second, tmp_path / "fresh")
    assert [picture(tmp_path / f"{n}") == expected for n in range(20)] == [True] * 20
    assert len({(tmp_path / f"{n}" / "src" / "b.py").stat().st_ino for n in range(20)}) == 20
    for n in range(20):
        kept.put_away(tmp_path / f"{n}")
    assert len(list(kept.kept.iterdir())) == MOST


def _of_another_boot(one: Path) -> None:
    (one / "boot").write_text("another")
    (one / "tree" / "a.py").write_text("")  # as a power cut leaves it


@pytest.mark.parametrize(
    "damage",
    [_of_another_boot, lambda one: (one / "index").write_bytes(b"DIRC"), lambda one: shutil.rmtree(one / "tree")],
    ids=["power cut", "index", "gone"],
)
def test_one_that_cannot_be_believed_is_not_used(
    commits: tuple[Vault, str, str], kept: Checkouts, tmp_path: Path, damage: object
) -> None:
    vault, first, _ = commits
    kept.make(first, tmp_path / "one")
    kept.put_away(tmp_path / "one")
    (one,) = kept.kept.iterdir()
    assert callable(damage)
    damage(one)
    kept.make(first, tmp_path / "two")
    assert picture(tmp_path / "two") == fresh(vault, first, tmp_path / "fresh")


def test_small_ones_and_those_of_strangers_are_removed(
    commits: tuple[Vault, str, str], kept: Checkouts, tmp_path: Path
) -> None:
    for checkouts in (Checkouts(commits[0], kept.kept), Checkouts(commits[0], kept.kept, keeps=False, large=1)):
        checkouts.make(commits[1], tmp_path / "one")
        checkouts.put_away(tmp_path / "one")
        assert not (tmp_path / "one").exists()
        assert not kept.kept.exists()


KILLED = """
import sys
from pathlib import Path
from perdure.adapters.git.checkouts import Checkouts
from perdure.adapters.git.vault import Vault
root, vault, *commits = sys.argv[1:]
kept = Checkouts(Vault.at(Path(vault)), Path(root, "kept"), large=1)
print("on", flush=True)
while True:
    for commit in commits:
        kept.make(commit, Path(root, "one"))
        Path(root, "one", "left").write_text("x")
        kept.put_away(Path(root, "one"))
"""


def test_a_worker_killed_at_any_moment_leaves_nothing_that_the_next_would_take_for_a_checkout(
    commits: tuple[Vault, str, str], kept: Checkouts, tmp_path: Path
) -> None:
    vault, first, second = commits
    expected = fresh(vault, second, tmp_path / "fresh")
    for seed in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path), str(vault.path), first, second], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(random.Random(seed).random() / 10)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kept.make(second, tmp_path / "one")
        assert picture(tmp_path / "one") == expected
        kept.put_away(tmp_path / "one")
    assert sorted(path.name for path in tmp_path.glob(".*")) == [], "nothing beside it"
    shutil.move(kept.kept, tmp_path / "home" / "checkouts" / "two")
    sweep(Home(tmp_path / "home"), older_than_s=0.0)
    for half in (tmp_path / "home" / "checkouts" / "two").iterdir():
        os.utime(half, (0, 0))
    sweep(Home(tmp_path / "home"), older_than_s=0.0)
    assert list((tmp_path / "home" / "checkouts" / "two").iterdir()) == []


@pytest.fixture
def large(home: Home, tmp_path: Path) -> tuple[Vault, str]:
    files = {f"src/{n % 10}/{n}.py": b"x\n" for n in range(LARGE)}
    vault = Vault.open(home, str(make_origin(tmp_path / "large.git", files)))
    return vault, vault.fetch()[1]


def test_a_worktree_of_a_large_repository_begins_with_the_files_of_one_that_ended(
    home: Home, large: tuple[Vault, str], tmp_path: Path
) -> None:
    vault, base = large
    one = Workspace.create(home, vault, "one", base)
    (one.path / ".env").write_text("secret")
    one.finish_setup(keeps=True)
    expected, inode = fresh(vault, base, tmp_path / "fresh"), one.path.stat().st_ino
    (one.path / "src" / "0" / "0.py").write_text("y\n")
    (one.path / "of the first.py").write_text("z\n")
    checkpoint = cp.snapshot(one, parent=None, turn={}, transcript=[])
    made, _ = commit_tree(one, checkpoint=checkpoint, parent=base, message="one")
    one.advance(made)
    assert one.remove() == ""
    assert git(vault.path, "worktree", "list").count("\n") == 0
    assert sorted(path.name for path in one.path.parent.iterdir()) == []

    two = Workspace.create(home, vault, "two", base)
    assert two.path.stat().st_ino == inode
    assert two.validate() == []
    assert picture(two.path) == expected
    assert git(two.path, "status", "--porcelain", "--ignored") == ""
    begun = cp.begin(two, {})
    cp.restore(two, begun)
    assert cp.is_at(two, begun)
    assert cp.worktree_tree(vault, cp.snapshot(two, parent=begun, turn={}, transcript=[])) == vault.tree_of(base)
    two.finish_setup(keeps=False)
    assert two.remove() == ""
    assert Workspace.create(home, vault, "three", base).path.stat().st_ino != inode, "this one was not to be kept"


def test_where_somebody_died_over_putting_a_worktree_away_it_is_removed(home: Home, large: tuple[Vault, str]) -> None:
    vault, base = large
    one = Workspace.create(home, vault, "one", base)
    one.finish_setup(keeps=True)
    (one.path.parent / ".one.kept").mkdir()
    assert one.remove() == ""
    assert list(one.path.parent.iterdir()) == []
    assert list(home.checkouts.glob("*/*")) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("ONLY ROOT MAY MOUNT A SMALL DISK")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_on_a_disk_that_is_nearly_full_none_is_kept_and_those_that_are_go(
    commits: tuple[Vault, str, str], small_disk: Path
) -> None:
    home = Home(small_disk)
    kept = Checkouts(commits[0], home.checkouts / "two", large=1)
    kept.make(commits[1], small_disk / "one")
    kept.put_away(small_disk / "one")
    assert list(home.checkouts.glob("*/*")) == []
    (home.checkouts / "two" / "of yesterday").mkdir()
    sweep(home)
    assert list(home.checkouts.glob("*/*")) == []
