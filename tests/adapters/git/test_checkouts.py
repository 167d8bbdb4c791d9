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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from git_pictures import fresh, picture

from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import kept_results
from perdure.models.limits import KEPT_CHECKOUTS
from tests.disks import small_disk
from tests.repositories import git, make_origin


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
