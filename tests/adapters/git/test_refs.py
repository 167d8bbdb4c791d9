"""Refs that are read and written without git, beside a git that reads and writes them too."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure.adapters.git import refs
from perdure.adapters.git.vault import RefMoved, Vault
from tests.adapters.git.test_vault import commits
from tests.power_cut import Disk
from tests.repositories import git

OWN = "refs/perdure/demo-1/run"


def test_a_deliverys_own_ref_moves_as_git_would_move_it_and_git_is_not_started(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = commits(vault, 2)
    monkeypatch.setenv("PATH", "/nowhere")
    disk = Disk(monkeypatch)
    vault.move_ref(OWN, a, None)
    vault.move_ref(OWN, b, a)
    assert disk.keeps_content(vault.path / OWN)
    assert vault.read_ref(OWN) == b
    assert vault.list_refs("refs/perdure/demo-1/") == {OWN: b}
    assert not (vault.path / f"{OWN}.lock").exists()
    monkeypatch.undo()
    assert git(vault.path, "rev-parse", OWN) == b
    assert git(vault.path, "for-each-ref", "--format=%(objectname) %(refname)", "refs/perdure") == f"{b} {OWN}"


def test_refs_that_were_packed_are_read_and_moved_without_git(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = commits(vault, 2)
    vault.move_ref(OWN, a, None)
    git(vault.path, "tag", "-a", "-m", "one", "v1", a)
    git(vault.path, "pack-refs", "--all")
    listed = git(vault.path, "for-each-ref", "--format=%(refname) %(objectname)", "refs/tags/")
    assert not (vault.path / OWN).exists()
    monkeypatch.setenv("PATH", "/nowhere")
    assert vault.read_ref(OWN) == a
    assert vault.read_ref("refs/perdure/demo-1/absent") is None
    assert [f"{ref} {sha}" for ref, sha in vault.list_refs("refs/tags/").items()] == [listed]
    vault.move_ref(OWN, b, a)
    assert (vault.read_ref(OWN), vault.list_refs("refs/perdure/")) == (b, {OWN: b})


@pytest.mark.parametrize("expected", [True, False], ids=["elsewhere", "absent"])
def test_a_packed_ref_is_not_taken_for_one_that_is_free(vault: Vault, expected: bool) -> None:
    a, b = commits(vault, 2)
    vault.move_ref(OWN, a, None)
    git(vault.path, "pack-refs", "--all")
    with pytest.raises(RefMoved) as caught:
        vault.move_ref(OWN, b, b if expected else None)
    assert caught.value.actual == a


def test_an_object_that_is_not_there_gets_no_ref(vault: Vault) -> None:
    assert not refs.write_ref(vault.path, OWN, "1" * 40, None)
    assert not (vault.path / OWN).exists()


def test_an_empty_folder_in_the_place_of_a_ref_is_gits_to_remove(vault: Vault) -> None:
    (a,) = commits(vault, 1)
    (vault.path / OWN / "empty").mkdir(parents=True)
    vault.move_ref(OWN, a, None)
    assert git(vault.path, "rev-parse", OWN) == a
    assert not (vault.path / f"{OWN}.lock").exists()


def test_of_us_and_git_at_once_exactly_one_moves_a_ref(vault: Vault) -> None:
    base, *others = commits(vault, 9)
    vault.move_ref(OWN, base, None)

    def move(number: int) -> bool:
        if number % 2:
            return refs.write_ref(vault.path, OWN, others[number], base)
        return vault.git.execute("update-ref", OWN, others[number], base, ok=(0, 128)).returncode == 0

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(move, range(8))) == 1


def test_while_refs_are_packed_none_is_ever_absent(vault: Vault) -> None:
    (a,) = commits(vault, 1)
    names = [f"refs/perdure/demo-1/run{number}" for number in range(40)]
    for name in names:
        vault.move_ref(name, a, None)
    with ThreadPoolExecutor(1) as pool:
        packing = pool.submit(git, vault.path, "pack-refs", "--all")
        while not packing.done():
            assert vault.list_refs("refs/perdure/demo-1/") == dict.fromkeys(sorted(names), a)
            assert vault.read_ref(names[-1]) == a


def test_another_format_of_refs_and_a_linked_worktree_are_left_to_git(vault: Vault, tmp_path: Path) -> None:
    (a,) = commits(vault, 1)
    (vault.path / "reftable").mkdir()
    with pytest.raises(LookupError):
        refs.read_ref(vault.path, OWN)
    assert refs.list_refs(vault.path, "refs/perdure/") is None
    assert not refs.write_ref(vault.path, OWN, a, None)
    shutil.rmtree(vault.path / "reftable")
    git(vault.path, "worktree", "add", "-q", "--detach", str(tmp_path / "tree"), a)
    (admin,) = (vault.path / "worktrees").iterdir()
    assert refs.list_refs(admin, "refs/perdure/") is None
