"""Files are whole or absent, lines never mix, and locks and watches end with their holder."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.adapters.git.vault import Vault
from perdure.adapters.system import files as boots
from perdure.adapters.system.files import append_json_line, hold_lock, read_json_lines, try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.system.opened_files import watch_opened_files
from perdure.adapters.worker.journal import ReplyStore, SpendLog
from perdure.adapters.worker.lease import Lease
from perdure.adapters.worker.workspace_setup import _hold_setup_lock
from tests.costs import examples
from tests.power_cut import Disk
from tests.processes import line, python
from tests.waiting import patient

HOLDER = """
import sys, time
from pathlib import Path
from perdure.adapters.system.files import try_lock
fd = try_lock(Path(sys.argv[1]))
print("held" if fd is not None else "taken", flush=True)
time.sleep(60)
"""

APPENDER = """
import sys
from pathlib import Path
from perdure.adapters.system.files import append_json_line
print("ready", flush=True)
sys.stdin.readline()
for number in range(200):
    append_json_line(Path(sys.argv[1]), {"by": sys.argv[2] * 300, "n": number}, sync=False)
"""


@pytest.mark.parametrize("sync", [True, False], ids=["synced", "not synced"])
def test_a_file_is_replaced_by_the_whole_of_its_new_bytes(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "below" / "file"
    write_whole(path, b"old", sync=sync)
    write_whole(path, b"new and longer", sync=sync, mode=0o644)
    assert path.read_bytes() == b"new and longer"
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == ["file"]


def test_a_write_that_fails_leaves_the_old_bytes_and_nothing_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    with pytest.raises(OSError, match=r"."):
        with_limit(1000, lambda: write_whole(path, b"x" * 5000))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_secret_file_is_readable_for_its_owner_only(tmp_path: Path) -> None:
    write_whole(tmp_path / "token", b"secret")
    append_json_line(tmp_path / "log", {}, sync=False)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("token", "log")} == {0o600}


async def test_what_is_written_down_for_good_has_its_name_on_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, home = Disk(monkeypatch), Home(tmp_path / "home")
    workspace = home.workspace("d")
    append_json_line(workspace / "journal.jsonl", {}, sync=False)  # it comes first, and makes the directory
    ReplyStore(workspace).require_free_disk()
    ReplyStore(workspace).put("key", {"text": "paid for"})
    SpendLog(workspace).record_intent("request", "reply", 0.1)
    for name in ("replies.jsonl", "spend.jsonl"):
        assert disk.keeps(workspace / name, tmp_path), name
    assert not disk.keeps(workspace / "journal.jsonl", tmp_path), "this says nothing about any of them"


def test_the_name_of_a_line_file_is_synced_once_a_process_and_again_where_another_took_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, log = Disk(monkeypatch), tmp_path / "log.jsonl"
    for number in range(5):
        append_json_line(log, {"n": number}, sync=True)
    assert disk.keeps(log, tmp_path)
    assert disk.syncs_of(tmp_path) == 1
    write_whole(log, b"", sync=False)
    append_json_line(log, {}, sync=True)
    assert disk.keeps(log, tmp_path)
    assert disk.syncs_of(tmp_path) == 2


def test_a_vault_outlives_a_power_cut_from_the_moment_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would make it anew: one with an empty description leads to no repository for ever."""
    disk, home = Disk(monkeypatch), Home(tmp_path / "home")
    vault = Vault.open_or_create(home, "https://example.invalid/calc.git")
    vault.objects.write_blob(b"kept")
    for name in ("HEAD", "config", "description", "perdure-objects.jsonl"):
        assert disk.keeps(vault.path / name, tmp_path), name


def test_a_machine_that_does_not_name_its_start_has_not_been_up_since_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boots, "_BOOT_ID", tmp_path / "absent")
    assert boots.boot_id()
    (tmp_path / "absent").write_text("one\n")
    assert boots.boot_id() == "one"


def test_a_line_after_a_torn_one_stands_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append_json_line(path, {"n": 1}, sync=True)
    with path.open("ab") as file:
        file.write(b'{"n": 2, "to')
    append_json_line(path, {"n": 3}, sync=True)
    assert [entry["n"] for entry in read_json_lines(path)] == [1, 3]


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["append", "tear", "replace", "cut", "remove"]), st.integers(0, 30))))
def test_lines_that_were_read_before_are_those_of_the_file_whatever_became_of_it(
    tmp_path: Path, steps: list[tuple[str, int]]
) -> None:
    path = tmp_path / "log"
    path.unlink(missing_ok=True)
    for kind, number in steps:
        data = path.read_bytes() if path.exists() else b""
        if kind == "append":
            append_json_line(path, {"n": number}, sync=False)
        elif kind == "remove":
            path.unlink(missing_ok=True)
        else:
            torn, other = data + b'{"n": 2, "to', data.replace(b'"n"', b'"m"')
            path.write_bytes({"tear": torn, "replace": other, "cut": data[:number]}[kind])
        data = path.read_bytes() if path.exists() else b""
        expected = list[object]()
        for text in data.splitlines():
            with suppress(ValueError):
                expected.append(json.loads(text))
        for entry in (read := list(read_json_lines(path))):
            entry["changed"] = True
        assert [{key: entry[key] for key in entry if key != "changed"} for entry in read] == [
            entry for entry in expected if isinstance(entry, dict)
        ]


def test_a_line_that_did_not_fit_is_an_error_not_a_silence(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with_limit(100, lambda: append_json_line(path, {"x": "x" * 70}, sync=False))
    with pytest.raises(OSError, match=r".") as failed:
        with_limit(100, lambda: append_json_line(path, {"y": "y" * 70}, sync=False))
    assert failed.value.errno in (errno.ENOSPC, errno.EFBIG)


def test_lines_of_several_processes_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with python(APPENDER, path, "a") as first, python(APPENDER, path, "b") as second:
        for process in (first, second):
            assert line(process) == "ready"
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        assert (first.wait(patient(30)), second.wait(patient(30))) == (0, 0)
    found = list(read_json_lines(path))
    assert len(found) == 400
    for who in ("a" * 300, "b" * 300):
        assert [entry["n"] for entry in found if entry["by"] == who] == list(range(200))


def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with python(HOLDER, lock) as holder:
        assert line(holder) == "held"
        assert try_lock(lock) is None
        holder.kill()
        holder.wait(patient(10))
        fd = try_lock(lock)
        assert fd is not None
        os.close(fd)


def test_two_in_a_critical_section_come_one_after_the_other(tmp_path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with hold_lock(tmp_path / "lock"):
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (inside, most) == (0, 1)


def with_limit(size: int, work: Callable[[], object]) -> None:
    """Run while no file of this process may grow beyond `size` bytes: a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        work()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Unfenced:
    def check(self) -> None: ...


async def cut_short(block: AbstractAsyncContextManager[object]) -> None:
    async def enter() -> None:
        async with block:
            await asyncio.sleep(60)

    task = asyncio.create_task(enter())
    await asyncio.sleep(0)  # begun, and waiting for its first thread if it starts one
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_whoever_is_cancelled_while_it_takes_the_lock_of_a_setup_leaves_it_to_the_next(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "one"
    await cut_short(_hold_setup_lock(lock, cast("Lease", Unfenced())))
    descriptor = try_lock(lock)
    assert descriptor is not None, "nobody could set up the same files until the worker ends"
    os.close(descriptor)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="LINUX'S /proc TELLS WHAT IS OPEN")
async def test_whoever_is_cancelled_while_it_begins_to_watch_leaves_no_descriptor(tmp_path: Path) -> None:
    def watches() -> int:
        found = 0
        for number in os.listdir("/proc/self/fd"):
            try:
                found += "inotify" in os.readlink(f"/proc/self/fd/{number}")
            except FileNotFoundError:
                continue
        return found

    before = watches()
    await cut_short(watch_opened_files(tmp_path, [""]))
    assert watches() == before
