"""What is kept for later deliveries: whole or absent, and removed by one rule."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import (
    KEPT_RESULTS,
    KeptLimits,
    KeyedStore,
    collect_kept_results,
    kept_results,
)
from perdure.models.limits import KEPT_DISK_SHARE

HOUR = timedelta(hours=1)


def keep(store: KeyedStore, key: str, text: str = "x", *, unused: timedelta = timedelta(0)) -> Path:
    """Keep an entry that was used so long ago."""
    with store.stage_entry(key) as staging:
        (staging / "file").write_text(text)
    entry = store.list_entries(key)[0]
    os.utime(entry, (time.time() - unused.total_seconds(),) * 2)
    return entry


def names(store: KeyedStore) -> list[str]:
    """The keys of all that lies there, or the whole name of what is no entry."""
    return sorted(path.name.partition("~")[0] for path in store.root.iterdir())


@pytest.fixture
def store(tmp_path: Path) -> KeyedStore:
    return KeyedStore(tmp_path / "kept", KeptLimits())


def test_the_newest_entry_of_a_key_comes_first_and_other_keys_do_not_count(store: KeyedStore) -> None:
    assert store.list_entries("a") == []
    for key, text in (("a", "first"), ("a", "second"), ("a-b", "other"), ("a", "third")):
        keep(store, key, text)
    assert [(path / "file").read_text() for path in store.list_entries("a")] == ["third", "second", "first"]


def test_what_fails_while_it_is_made_leaves_nothing(store: KeyedStore) -> None:
    with pytest.raises(IsADirectoryError), store.stage_entry("a") as staging:
        staging.write_text("a directory is no file")
    assert list(store.root.iterdir()) == []


def test_limits_of_time_number_and_bytes(store: KeyedStore) -> None:
    keep(store, "unused", unused=2 * HOUR)
    keep(store, "used")
    assert replace(store, limits=KeptLimits(unused=HOUR)).remove_surplus() == []
    assert names(store) == ["used"]

    old = replace(store, clock=lambda: time.time() - 7200)
    keep(old, "made long ago")
    keep(replace(store, clock=lambda: time.time() + 7200), "made in the future")
    aged = replace(store, limits=KeptLimits(age=HOUR))
    assert (aged.list_entries("made long ago"), aged.list_entries("made in the future")) == ([], [])
    assert aged.remove_surplus() == []
    assert names(store) == ["used"]

    few = replace(store, limits=KeptLimits(per_key=2))
    entries = [keep(few, "used", text) for text in ("2", "3", "4")]
    assert few.list_entries("used") == entries[:0:-1], "the newest"

    small = KeyedStore(store.root.with_name("small"), KeptLimits(total_bytes=250))
    for key, hours in (("third", 3), ("second", 2), ("first", 1)):
        keep(small, key, "x" * 100, unused=hours * HOUR)
    assert small.remove_surplus() == []
    assert names(small) == ["first", "second"], "what was not used for longest goes first"


def test_a_shorter_time_and_what_is_needed_are_for_the_caller_to_say(store: KeyedStore) -> None:
    weekly = replace(store, limits=KeptLimits(unused=timedelta(days=7)))
    keep(weekly, "a", unused=2 * HOUR)
    needed = weekly.make_in_place("needed")
    os.utime(needed, (0, 0))
    assert weekly.remove_surplus(needed={"needed"}) == []
    assert names(weekly) == ["a", "needed"]
    assert weekly.remove_surplus(HOUR) == []
    assert names(weekly) == []


def test_environments_and_compiled_files_take_a_share_of_a_small_disk(tmp_path: Path) -> None:
    total = shutil.disk_usage(tmp_path).total
    for name in ("environments", "seeds"):
        limit = kept_results(Home(tmp_path / "home"), name).limits.total_bytes
        assert limit is not None
        assert limit <= total * KEPT_DISK_SHARE
        assert limit == min(KEPT_RESULTS[name].total_bytes or 0, int(total * KEPT_DISK_SHARE))


def test_nothing_is_kept_where_the_disk_is_nearly_full(store: KeyedStore) -> None:
    full = replace(store, limits=KeptLimits(free_bytes=1 << 62))
    assert store.has_room("a")
    keep(store, "a")
    assert not full.has_room("a")
    assert full.remove_surplus() == []
    assert names(full) == []


def test_what_somebody_holds_stays_until_he_lets_it_go_and_is_gone_for_the_next(store: KeyedStore) -> None:
    entry, strict = keep(store, "a"), replace(store, limits=KeptLimits(unused=timedelta(0)))
    with store.hold_entry(entry) as is_held, store.hold_entry(entry) as is_held_twice:
        assert is_held
        assert is_held_twice
        assert strict.remove_surplus() == []
        assert (entry / "file").read_text() == "x"
    assert strict.remove_surplus() == []
    with store.hold_entry(entry) as is_held:
        assert not is_held
    assert store.remove_entry(entry) == ""


def test_an_entry_that_cannot_be_removed_is_named(store: KeyedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = keep(store, "a")

    def fails(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rmdir", fails)
    assert store.remove_entry(entry) == f"{entry}: Permission denied"
    assert store.list_entries("a") == []


def test_of_many_takers_each_entry_goes_to_one(store: KeyedStore, tmp_path: Path) -> None:
    for text in "12345":
        keep(store, "a", text)
    with ThreadPoolExecutor(20) as pool:
        taken = list(pool.map(lambda n: store.move_out("a", tmp_path / f"{n}"), range(20)))
    assert sum(taken) == 5
    texts = [(tmp_path / f"{n}" / "file").read_text() for n in range(20) if taken[n]]
    assert sorted(texts) == list("12345")


def test_of_many_who_make_the_same_one_entry_stays_and_nothing_beside_it(store: KeyedStore) -> None:
    single = replace(store, limits=KeptLimits(per_key=1))

    def make(number: int) -> None:
        with single.stage_entry("a") as staging:
            (staging / "file").write_text(f"{number}")

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(make, range(40)))
    assert names(single) == ["a"]


WORKS = """
import sys
from pathlib import Path
from perdure.adapters.system.keyed_store import KeptLimits, KeyedStore
store = KeyedStore(Path(sys.argv[1]), KeptLimits(per_key=1))
print("on", flush=True)
while True:
    with store.stage_entry("a") as staging:
        for name in ("first", "second"):
            (staging / name).write_text("whole")
"""


def test_whoever_is_killed_at_any_moment_leaves_whole_entries_and_nothing_that_stays_for_ever(
    store: KeyedStore,
) -> None:
    for seed in range(8):
        process = subprocess.Popen([sys.executable, "-c", WORKS, str(store.root)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        time.sleep(random.Random(seed).random() / 20)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for entry in store.list_entries("a"):
            assert [(entry / name).read_text() for name in ("first", "second")] == ["whole", "whole"]
    for path in store.root.glob(".*"):
        os.utime(path, (0, 0))
    assert replace(store, limits=KeptLimits(per_key=1)).remove_surplus() == []
    assert names(store) == ["a"]


def test_what_is_being_made_stays_however_long_it_takes_and_a_lock_while_it_is_held(store: KeyedStore) -> None:
    free, taken = store.lock_path("free"), store.lock_path("taken")
    with store.stage_entry("a") as staging, store.stage_entry("b"):
        free.touch()
        taken.touch()
        for path in (staging, free, taken):
            os.utime(path, (0, 0))
        with store.hold_entry(taken):
            assert store.remove_surplus() == []
            assert taken.exists()
        assert staging.exists()
        assert not free.exists()
    assert names(store) == ["a", "b"]


def test_all_stores_of_a_home_are_collected_at_once(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for name in KEPT_RESULTS:
        os.utime(kept_results(home, name).make_in_place("unused"), (0, 0))
    assert collect_kept_results(home) == []
    assert [name for name in KEPT_RESULTS if names(kept_results(home, name))] == [
        name for name in KEPT_RESULTS if KEPT_RESULTS[name].unused is None
    ]
    assert collect_kept_results(home, HOUR) == []
    assert [name for name in KEPT_RESULTS if names(kept_results(home, name))] == []
