"""What a test does to its checkout is not there in the next."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from any_trees import TREES, grow
from git_pictures import Node, fresh, picture
from hypothesis import HealthCheck, given, settings

from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import kept_results
from tests.examples import examples
from tests.repositories import git, make_origin


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
    commits: tuple[Vault, str, str], kept: CheckoutPool, tmp_path: Path, harm: object, to: int
) -> None:
    vault, commit = commits[0], commits[to]
    kept.check_out(commits[1], tmp_path / "one")
    there = (tmp_path / "one").stat().st_ino
    assert callable(harm)
    harm(tmp_path / "one")
    kept.put_away(tmp_path / "one")
    kept.check_out(commit, tmp_path / "two")
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
    vault = Vault.open_or_create(Home(root / "home"), str(root / "o.git"))
    vault.fetch()
    kept = CheckoutPool(vault, kept_results(Home(root), "checkouts"), min_files=0)
    kept.check_out(made[0], root / "one")
    grow(root / "one", harm)
    kept.put_away(root / "one")
    kept.check_out(made[1], root / "two")
    assert picture(root / "two") == fresh(vault, made[1], root / "fresh")


def _fills_it(tree: Path, outside: Path) -> None:
    (tree / "libs" / "sub" / "left").write_text("x")
    git(tree / "libs" / "sub", "init", "-q")


def _leads_elsewhere(tree: Path, outside: Path) -> None:
    (outside / "sub").mkdir()
    (outside / "sub" / "precious").write_text("x")
    shutil.rmtree(tree / "libs")
    (tree / "libs").symlink_to(outside)


@pytest.mark.parametrize("harm", [_fills_it, _leads_elsewhere])
def test_the_directory_of_a_submodule_is_empty_again_and_nothing_elsewhere_is_removed(
    home: Home, tmp_path: Path, harm: object
) -> None:
    origin = make_origin(tmp_path / "with.git", {"a.py": b"x\n"})
    git(tmp_path, "clone", "-q", str(origin), "clone")
    clone, outside = tmp_path / "clone", tmp_path / "outside"
    outside.mkdir()
    git(clone, "update-index", "--add", "--cacheinfo", f"160000,{git(clone, 'rev-parse', 'HEAD')},libs/sub")
    git(clone, "commit", "-q", "-m", "a submodule")
    git(clone, "push", "-q")
    vault = Vault.open_or_create(home, str(origin))
    commit, kept = vault.fetch()[1], CheckoutPool(vault, kept_results(home, "checkouts"), min_files=1)
    kept.check_out(commit, tmp_path / "one")
    there = (tmp_path / "one").stat().st_ino
    assert callable(harm)
    harm(tmp_path / "one", outside)
    kept.put_away(tmp_path / "one")
    kept.check_out(commit, tmp_path / "two")
    assert (tmp_path / "two").stat().st_ino == there
    assert picture(tmp_path / "two") == fresh(vault, commit, tmp_path / "fresh")
    assert [path.name for path in outside.rglob("precious")] == (["precious"] if harm is _leads_elsewhere else [])
