"""Clean checkouts: byte for byte the base, used again, and no test of one is there in the next."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from any_trees import TREES, grow
from git_pictures import Node, fresh, picture
from hypothesis import HealthCheck, given, settings

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git.checkouts import CheckoutPool, exact_tree
from perdure.adapters.git.publish import commit_checkpoint
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import kept_results
from perdure.models.limits import KEPT_CHECKOUTS
from tests.costs import examples
from tests.disks import small_disk
from tests.repositories import PERSON, git, make_origin


def test_a_checkout_is_clean_and_can_know_its_repository(workspace: Workspace, tmp_path: Path) -> None:
    base, out = workspace.record().base_sha, tmp_path / "out"
    (workspace.path / "untracked").write_text("x")
    out.mkdir()
    (out / "of another attempt").write_text("x")
    CheckoutPool.for_vault(workspace.home, workspace.vault).check_out(base, out, admin=workspace.record().admin)
    assert sorted(path.name for path in out.iterdir()) == [".git", "README.md", "src"]
    assert (out / ".git").read_text() == (workspace.path / ".git").read_text()
    assert stat.S_IMODE((out / "README.md").stat().st_mode) == 0o644
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_what_does_not_differ_is_not_written_again_and_the_rest_is(
    commits: tuple[Vault, str, str], kept: CheckoutPool, tmp_path: Path
) -> None:
    vault, first, second = commits
    one, two = tmp_path / "one", tmp_path / "two"
    kept.check_out(first, one)
    was = (one / "src" / "b.py").stat().st_ino
    kept.put_away(one, time.time_ns())  # a checkout this small is written in one tick of the clock, index and all
    assert not one.exists()
    kept.check_out(second, two)
    assert (two / "src" / "b.py").stat().st_ino == was
    assert picture(two) == fresh(vault, second, tmp_path / "fresh")
    kept.put_away(two)
    kept.check_out(first, one)
    assert picture(one) == fresh(vault, first, tmp_path / "fresh again")


def test_other_attributes_write_all_files_anew(home: Home, tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "crlf.git", {"run.bat": b"one\n", "sub/.gitattributes": b"*.bat text\n"})
    git(tmp_path, "clone", "-q", str(origin), "clone")
    (tmp_path / "clone" / ".gitattributes").write_text("*.bat text eol=crlf\n")
    git(tmp_path / "clone", "add", "-A")
    git(tmp_path / "clone", "commit", "-q", "-m", "line endings")
    vault = Vault.open_or_create(home, str(origin))
    first = vault.fetch()[1]
    git(tmp_path / "clone", "push", "-q")
    second, kept = vault.fetch()[1], CheckoutPool(vault, kept_results(home, "checkouts"), min_files=1)
    kept.check_out(first, tmp_path / "one")
    assert (tmp_path / "one" / "run.bat").read_bytes() == b"one\n"
    kept.put_away(tmp_path / "one")
    kept.check_out(second, tmp_path / "two")
    assert (tmp_path / "two" / "run.bat").read_bytes() == b"one\r\n"


def test_of_twenty_who_want_the_same_one_each_gets_a_checkout_of_his_own(
    commits: tuple[Vault, str, str], kept: CheckoutPool, tmp_path: Path
) -> None:
    vault, first, second = commits
    kept.check_out(first, tmp_path / "0")
    kept.put_away(tmp_path / "0")
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda n: kept.check_out(second, tmp_path / f"{n}"), range(20)))
    expected = fresh(vault, second, tmp_path / "fresh")
    assert [picture(tmp_path / f"{n}") == expected for n in range(20)] == [True] * 20
    assert len({(tmp_path / f"{n}" / "src" / "b.py").stat().st_ino for n in range(20)}) == 20
    for n in range(20):
        kept.put_away(tmp_path / f"{n}")
    assert len(list(kept.store.root.iterdir())) == KEPT_CHECKOUTS


def _of_another_boot(one: Path) -> None:
    (one / "boot").write_text("another")
    (one / "tree" / "a.py").write_text("")  # as a power cut leaves it


@pytest.mark.parametrize(
    "damage",
    [_of_another_boot, lambda one: (one / "index").write_bytes(b"DIRC"), lambda one: shutil.rmtree(one / "tree")],
    ids=["power cut", "index", "gone"],
)
def test_one_that_cannot_be_believed_is_not_used(
    commits: tuple[Vault, str, str], kept: CheckoutPool, tmp_path: Path, damage: object
) -> None:
    vault, first, _ = commits
    kept.check_out(first, tmp_path / "one")
    kept.put_away(tmp_path / "one")
    (one,) = kept.store.root.iterdir()
    assert callable(damage)
    damage(one)
    kept.check_out(first, tmp_path / "two")
    assert picture(tmp_path / "two") == fresh(vault, first, tmp_path / "fresh")


def test_small_ones_and_those_of_strangers_are_removed(
    commits: tuple[Vault, str, str], kept: CheckoutPool, tmp_path: Path
) -> None:
    for checkouts in (
        CheckoutPool(commits[0], kept.store),
        CheckoutPool(commits[0], kept.store, keeps_new=False, min_files=1),
    ):
        checkouts.check_out(commits[1], tmp_path / "one")
        checkouts.put_away(tmp_path / "one")
        assert not (tmp_path / "one").exists()
        assert not kept.store.root.exists()


KILLED = """
import sys
from pathlib import Path
from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import kept_results
root, vault, *commits = sys.argv[1:]
kept = CheckoutPool(Vault.open_existing(Path(vault)), kept_results(Home(Path(root)), "checkouts"), min_files=1)
print("on", flush=True)
while True:
    for commit in commits:
        kept.check_out(commit, Path(root, "one"))
        Path(root, "one", "left").write_text("x")
        kept.put_away(Path(root, "one"))
"""


def test_a_worker_killed_at_any_moment_leaves_nothing_that_the_next_would_take_for_a_checkout(
    commits: tuple[Vault, str, str], kept: CheckoutPool, tmp_path: Path
) -> None:
    vault, first, second = commits
    expected = fresh(vault, second, tmp_path / "fresh")
    for seed in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path), str(vault.path), first, second], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        time.sleep(random.Random(seed).random() / 10)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kept.check_out(second, tmp_path / "one")
        assert picture(tmp_path / "one") == expected
        kept.put_away(tmp_path / "one")
    assert sorted(path.name for path in tmp_path.glob(".*")) == [], "nothing beside it"
    for half in kept.store.root.iterdir():
        os.utime(half, (0, 0))
    assert kept.store.remove_surplus() == []
    assert list(kept.store.root.iterdir()) == []


def test_on_a_disk_that_is_nearly_full_none_is_kept_and_those_that_are_go(
    commits: tuple[Vault, str, str], tmp_path: Path
) -> None:
    with small_disk(tmp_path / "small") as place:
        kept = CheckoutPool(commits[0], kept_results(Home(place), "checkouts"), min_files=1)
        kept.check_out(commits[1], place / "one")
        kept.put_away(place / "one")
        assert list(place.glob("checkouts/*")) == []
        kept.store.make_in_place("of yesterday")
        assert kept.store.remove_surplus() == []
        assert list(place.glob("checkouts/*")) == []


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
