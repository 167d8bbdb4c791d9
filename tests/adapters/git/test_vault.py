"""The vault collects nothing, moves refs by compare-and-swap, and survives its writers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import perdure
from perdure.adapters.git.objects import TreeEntry
from perdure.adapters.git.patch import unified_diff
from perdure.adapters.git.vault import RefLocked, RefMoved, Vault
from perdure.adapters.system.files import LockBusy, hold_timed_lock
from perdure.adapters.system.home import Home
from perdure.models.errors import ForgeRefused, ForgeUnavailable, InvalidRequest, WorkspaceLost
from perdure.models.ids import artifact_ref
from tests.power_cut import Disk
from tests.repositories import changed, git, make_origin

REF = "refs/perdure/demo-1/run-1"


def commits(vault: Vault, count: int) -> list[str]:
    """A line of commits in the vault, oldest first."""
    made: list[str] = []
    for number in range(count):
        tree = vault.objects.write_tree([])
        made.append(vault.objects.write_commit(tree, made[-1:], f"turn {number}"))
    return made


def test_many_openers_at_once_make_one_whole_vault(home: Home, origin: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: Vault.open_or_create(home, str(origin)), range(16)))
    assert len({vault.path for vault in opened}) == 1
    assert [path.name for path in home.vaults.glob("*.git")] == [opened[0].path.name]
    assert not list(home.vaults.glob(".new-*"))
    assert (opened[0].path / "description").read_text().strip() == str(origin)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gc.auto", "0"),
        ("receive.autogc", "false"),
        ("maintenance.auto", "false"),
        ("gc.pruneExpire", "never"),
        ("gc.worktreePruneExpire", "never"),
    ],
)
def test_the_vault_never_collects_by_itself(vault: Vault, name: str, value: str) -> None:
    assert git(vault.path, "config", "--local", name) == value


def test_a_damaged_vault_is_not_taken_for_a_remote_that_is_away(home: Home, tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "calc.git")
    vault = Vault.open_or_create(home, str(origin))
    vault.fetch()
    for stored in (path for path in (vault.path / "objects").rglob("*") if path.is_file()):
        stored.chmod(0o644)
        stored.write_bytes(b"")
    with pytest.raises(ForgeRefused, match="copy of it is damaged") as refused:
        vault.fetch()
    assert "may be moved away" in refused.value.fix
    vault.path.rename(tmp_path / "away")
    assert Vault.open_or_create(home, str(origin)).fetch()[0] == "main"


def test_an_unreferenced_checkpoint_outlives_a_persons_git_gc(vault: Vault) -> None:
    (lonely,) = commits(vault, 1)
    git(vault.path, "gc", "-q")
    vault.pack_objects()
    assert vault.has_commit(lonely)


def test_a_vault_is_packed_when_it_has_grown_and_loses_nothing_by_it(vault: Vault) -> None:
    def counted(name: str) -> int:
        return int(dict(line.split(": ") for line in git(vault.path, "count-objects", "-v").splitlines())[name])

    kept, lonely = vault.put_artifact("d", b"plan"), vault.objects.write_blob(b"nobody refers to it yet")
    assert not vault.pack_if_large(max_loose=2)
    assert vault.pack_if_large(max_loose=1)
    assert (counted("count"), counted("packs")) == (1, 1)
    for word in (b"one", b"two"):
        vault.put_artifact("d", word)
        vault.pack_objects()
    assert vault.pack_if_large(max_packs=2)
    assert counted("packs") == 1
    assert vault.get_artifact("d", kept) == b"plan"
    assert git(vault.path, "cat-file", "blob", lonely) == "nobody refers to it yet"


def test_an_ended_delivery_is_packed_and_others_keep_their_files(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, (_, base) = Disk(monkeypatch), vault.fetch()
    kept, plan = vault.put_artifact("other", b"kept"), vault.put_artifact("demo-1", b"plan")
    *_, tip = commits(vault, 30)
    vault.move_ref(REF, tip, None)
    loose = {path for path in (vault.path / "objects").glob("??/*") if len(path.parent.name) == 2}
    vault.pack_delivery("demo-1", base)
    left = {path for path in loose if path.exists()}
    assert "kept" in {git(vault.path, "cat-file", "-p", path.parent.name + path.name) for path in left}
    assert len(left) <= len(loose) - 31
    assert disk.syncs_of(vault.path / "objects" / "pack") == 1
    assert vault.find_damage(tip) == ""
    assert (vault.get_artifact("demo-1", plan), vault.get_artifact("other", kept)) == (b"plan", b"kept")
    vault.pack_delivery("demo-1", base)
    assert len(list(vault.path.glob("objects/pack/*.pack"))) <= 2, "nothing new, no pack"
    vault.move_ref(REF, vault.objects.write_commit(vault.tree_of(tip), [tip], "a retry goes on"), tip)


def test_fetching_takes_the_default_branch_as_the_remote_names_it(home: Home, tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "o.git")
    git(origin, "branch", "-m", "main", "trunk")
    git(origin, "branch", "other")
    vault = Vault.open_or_create(home, str(origin))
    name, sha = vault.fetch()
    assert (name, sha) == ("trunk", git(origin, "rev-parse", "trunk"))
    assert vault.fetch("other")[0] == "other"
    assert vault.fetch_branch("nowhere") is None
    assert vault.fetch_branch("*") is None
    assert vault.list_refs("refs/remotes/") == {f"refs/remotes/origin/{n}": sha for n in ("trunk", "other")}


def test_a_branch_that_took_the_place_of_a_directory_of_branches_can_be_fetched(home: Home, tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "o.git")
    vault = Vault.open_or_create(home, str(origin))
    git(origin, "branch", "topic", "main")
    assert vault.fetch_branch("topic")
    git(origin, "branch", "-m", "topic", "topic/a")
    assert vault.fetch_branch("topic/a")
    git(origin, "branch", "-m", "topic/a", "topic")
    assert vault.fetch_branch("topic")


def test_failures_to_fetch_say_whether_trying_again_can_help(home: Home, tmp_path: Path, origin: Path) -> None:
    with pytest.raises(InvalidRequest, match="no branch mian"):
        Vault.open_or_create(home, str(origin)).fetch("mian")
    with pytest.raises(ForgeRefused):
        Vault.open_or_create(home, str(tmp_path / "gone.git")).fetch()
    with pytest.raises(ForgeUnavailable) as caught:
        Vault.open_or_create(home, "http://ada:hunter2@127.0.0.1:1/x.git").fetch()
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in "".join(path.read_text() for path in home.vaults.glob("x-*/description"))


def test_artifacts_come_back_or_are_lost_but_never_wrong(vault: Vault) -> None:
    data = bytes(range(256)) * 10
    with ThreadPoolExecutor(4) as pool:
        names = set(pool.map(lambda _: vault.put_artifact("demo-1", data), range(8)))
    (name,) = names
    assert vault.get_artifact("demo-1", name) == data
    with pytest.raises(WorkspaceLost, match="not in the vault"):
        vault.get_artifact("demo-1", "0" * 64)
    git(vault.path, "update-ref", artifact_ref("demo-1", name), vault.objects.write_blob(b"other"))
    with pytest.raises(WorkspaceLost, match="damaged"):
        vault.get_artifact("demo-1", name)


def test_a_lost_compare_and_swap_says_where_the_ref_is(vault: Vault) -> None:
    a, b, c = commits(vault, 3)
    vault.move_ref(REF, a, None)
    vault.move_ref(REF, a, None)  # a repeat of what worked
    vault.move_ref(REF, b, a)
    for new, old, actual in ((c, a, b), (c, None, b)):
        with pytest.raises(RefMoved) as caught:
            vault.move_ref(REF, new, old)
        assert (caught.value.actual, caught.value.expected) == (actual, old)
    with pytest.raises(RefMoved) as gone:
        vault.move_ref("refs/perdure/demo-1/other", b, a)
    assert gone.value.actual is None
    assert vault.read_ref(REF) == b


def test_of_many_writers_of_one_ref_exactly_one_wins(vault: Vault) -> None:
    base, *others = commits(vault, 9)
    vault.move_ref(REF, base, None)

    def move(new: str) -> bool:
        try:
            vault.move_ref(REF, new, base)
        except RefMoved:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(move, others)) == 1


def test_a_stale_lock_is_told_apart_from_a_lost_race_and_can_be_removed(vault: Vault) -> None:
    a, b = commits(vault, 2)
    vault.move_ref(REF, a, None)
    (vault.path / f"{REF}.lock").touch()
    with pytest.raises(RefLocked):
        vault.move_ref(REF, b, a)
    assert vault.remove_stale_locks(REF)
    assert not vault.remove_stale_locks(REF)
    vault.move_ref(REF, b, a)
    assert vault.read_ref(REF) == b


def test_a_worker_killed_inside_a_ref_update_leaves_a_lock_and_the_next_one_goes_on(vault: Vault, home: Home) -> None:
    a, b = commits(vault, 2)
    vault.move_ref(REF, a, None)
    program = (
        "import sys; from pathlib import Path; from perdure.adapters.git.vault import Vault;"
        "Vault.open_existing(Path(sys.argv[1])).move_ref(*sys.argv[2:5])"
    )
    command = [sys.executable, "-c", program, str(vault.path), REF, b, a]
    environment = os.environ | {
        "PERDURE_CRASH_AT": "inside-ref-update",
        "PERDURE_HOME": str(home.root),
        "PYTHONPATH": str(Path(perdure.__file__).parents[1]),
    }
    first = subprocess.run(command, env=environment, check=False, timeout=60)
    assert first.returncode == -signal.SIGKILL
    assert vault.read_ref(REF) == a
    assert (vault.path / f"{REF}.lock").exists()
    assert vault.remove_stale_locks(REF)
    assert subprocess.run(command, env=environment, check=False, timeout=60).returncode == 0
    assert vault.read_ref(REF) == b
    assert not (vault.path / f"{REF}.lock").exists()


def test_stale_locks_of_shared_files_are_removed_by_whoever_is_alone_with_the_vault(vault: Vault) -> None:
    vault.move_ref(REF, commits(vault, 1)[0], None)
    for name in ("packed-refs.lock", "config.lock"):
        (vault.path / name).touch()
    vault.pack_objects()
    assert not list(vault.path.glob("*.lock.lock"))
    assert not (vault.path / "packed-refs.lock").exists()
    assert REF in (vault.path / "packed-refs").read_text()


def test_the_child_on_the_first_parent_path_is_found_however_far_the_ref_is_ahead(vault: Vault) -> None:
    line = commits(vault, 6)
    assert [vault.first_parent_child(at, line[-1]) for at in line] == [*line[1:], None]
    elsewhere = vault.objects.write_commit(vault.objects.write_tree([]), [], "another history")
    assert vault.first_parent_child(elsewhere, line[-1]) is None
    merge = vault.objects.write_commit(vault.objects.write_tree([]), [line[5], elsewhere], "merge")
    assert vault.first_parent_child(elsewhere, merge) is None
    assert vault.is_ancestor(line[0], line[5])
    assert not vault.is_ancestor(line[5], line[0])


def test_a_broken_tip_is_noticed_and_the_newest_whole_ancestor_found(vault: Vault) -> None:
    good = commits(vault, 2)
    missing = vault.objects.write_blob(b"lost in a power cut")
    tip = vault.objects.write_commit(vault.objects.write_tree([TreeEntry("f", missing)]), good[-1:], "turn 3")
    assert vault.find_damage(tip) == ""
    (vault.path / "objects" / missing[:2] / missing[2:]).unlink()
    assert missing in vault.find_damage(tip)
    assert vault.newest_whole_commit(tip) == good[-1]


def test_changes_are_told_as_text_counts_and_names(vault: Vault) -> None:
    _, base = vault.fetch()
    empty = vault.objects.write_tree([])
    assert "+hello" in unified_diff(vault, empty, base)
    assert vault.diff_stat(empty, base) == (2, 2, 0)
    assert vault.diff_stat(base, empty) == (2, 0, 2)
    assert changed(vault.path, empty, base) == [
        "README.md",
        "src/app.py",
    ]
    assert vault.read_file(base, "README.md") == b"hello\n"
    assert vault.read_file(base, "missing") is None


def test_objects_are_synced_to_the_disk(vault: Vault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted = vault.git.execute("-c", "alias.show-fsync=!git config core.fsync", "show-fsync").text
    assert counted == "objects,derived-metadata,reference"
    disk = Disk(monkeypatch)
    large = vault.objects.write_blob(os.urandom(2 * 1024**2))
    assert disk.keeps(vault.path / "objects" / large[:2] / large[2:], vault.path / "objects")
    assert not (vault.path / "perdure-objects.jsonl").exists(), "not written twice"


def test_a_lock_is_held_until_the_git_of_its_killed_holder_is_gone(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with hold_timed_lock(lock) as held:
        orphan = subprocess.Popen(["sleep", "30"], pass_fds=(held,))
    try:
        with pytest.raises(LockBusy), hold_timed_lock(lock, timeout_s=0.2):
            pass
    finally:
        orphan.kill()
        orphan.wait()
    with hold_timed_lock(lock, timeout_s=5):
        pass


def test_a_lock_excludes_threads_of_the_same_process(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        with hold_timed_lock(tmp_path / "lock"):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert max(most) == 1
