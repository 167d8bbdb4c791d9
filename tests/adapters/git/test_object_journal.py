"""Objects in a vault's journal survive a power cut that takes their files, until those are synced."""

from __future__ import annotations

import base64
import json
import threading
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from perdure.adapters.git import object_journal
from perdure.adapters.git.object_journal import journal_objects, restore_objects, settle_objects
from perdure.adapters.git.objects import ObjectStore
from perdure.adapters.git.vault import Vault
from perdure.adapters.system import files
from tests.power_cut import Disk
from tests.repositories import git


def journal_of(vault: Vault) -> Path:
    return vault.path / "perdure-objects.jsonl"


def lose_what_was_not_synced(disk: Disk, vault: Path, objects: Iterable[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Take those of these objects' files that were not synced, and what was not of the journal, and start the machine
    anew."""
    for path in objects:
        if not disk.keeps_content(path):
            path.unlink()
    for journal in vault.glob("perdure-objects.jsonl*"):
        disk.cut_power(journal, vault)
    restart(vault, monkeypatch)


def restart(vault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot = vault.parent / "boot"
    boot.write_text(f"{boot.read_text() if boot.exists() else ''}again ")
    monkeypatch.setattr(files, "_BOOT_ID", boot)
    restore_objects.cache_clear()


def object_file(vault: Vault, sha: str) -> Path:
    return vault.path / "objects" / sha[:2] / sha[2:]


@pytest.mark.parametrize("damage", [b"", b"\0" * 30, None], ids=["emptied", "zeros", "gone"])
def test_what_a_power_cut_did_to_files_of_objects_is_undone_by_who_opens_the_vault_first(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, damage: bytes | None
) -> None:
    names = [vault.objects.write_blob(text) for text in (b"one", b"two")]
    for sha in names:
        object_file(vault, sha).unlink()
        if damage is not None:
            object_file(vault, sha).write_bytes(damage)
    Vault.open_existing(vault.path)
    assert not any(object_file(vault, sha).exists() and object_file(vault, sha).stat().st_size > 30 for sha in names)
    restart(vault.path, monkeypatch)
    again = Vault.open_existing(vault.path)
    assert [git(again.path, "cat-file", "blob", sha) for sha in names] == ["one", "two"]


def test_an_object_whose_file_another_writer_left_is_journaled_too(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He may have died before it was durable, and git takes a file that is there for an object that is."""
    disk = Disk(monkeypatch)
    sha = git(vault.path, "hash-object", "-w", "--stdin", stdin="left")
    assert vault.objects.write_blob(b"left") == sha
    lose_what_was_not_synced(disk, vault.path, [object_file(vault, sha)], monkeypatch)
    assert git(Vault.open_existing(vault.path).path, "cat-file", "blob", sha) == "left"


def test_a_damaged_journal_writes_nothing_that_is_no_object_and_stops_nobody(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = vault.objects.write_blob(b"whole")
    object_file(vault, sha).unlink()
    wrong = {"../../stray": "eA==", "ab" * 20: base64.b64encode(zlib.compress(b"blob 1\0x")).decode(), "cd" * 20: 3}
    with journal_of(vault).open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in ({"objects": wrong}, {"objects": [1]}, {"other": 1}, [2]))
    restart(vault.path, monkeypatch)
    Vault.open_existing(vault.path)
    assert git(vault.path, "cat-file", "blob", sha) == "whole"
    assert not any(object_file(vault, name).exists() for name in ("ab" * 20, "cd" * 20))
    assert not list(vault.path.parent.rglob("stray"))


def test_objects_are_written_while_somebody_removes_empty_directories(vault: Vault) -> None:
    """As git does, beside us, after packing."""
    ended = threading.Event()

    def remove_empty_directories() -> None:
        while not ended.is_set():
            for directory in (vault.path / "objects").glob("[0-9a-f][0-9a-f]"):
                with suppress(OSError):
                    directory.rmdir()

    with ThreadPoolExecutor(2) as pool:
        removers = [pool.submit(remove_empty_directories) for _ in range(2)]
        try:
            names = [vault.objects.write_blob(f"{number}".encode()) for number in range(600)]
        finally:
            ended.set()
        for remover in removers:
            remover.result()
    assert all(object_file(vault, sha).exists() for sha in names)


def test_a_journal_that_was_torn_gives_back_what_was_whole(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    sha = vault.objects.write_blob(b"whole")
    with journal_of(vault).open("ab") as file:
        file.write(b'{"objects": {"aaaa')
    object_file(vault, sha).unlink()
    restart(vault.path, monkeypatch)
    assert git(Vault.open_existing(vault.path).path, "cat-file", "blob", sha) == "whole"


def test_the_journal_goes_only_when_all_files_are_synced(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    sha, sync_all = vault.objects.write_blob(b"kept"), object_journal.sync_all

    def refuse(path: Path) -> None:
        raise OSError("the disk does not answer")

    monkeypatch.setattr(object_journal, "sync_all", refuse)
    with pytest.raises(OSError, match="does not answer"):
        settle_objects(vault.path, 0)
    object_file(vault, sha).unlink()
    restart(vault.path, monkeypatch)
    assert git(Vault.open_existing(vault.path).path, "cat-file", "blob", sha) == "kept"
    monkeypatch.setattr(object_journal, "sync_all", sync_all)
    settle_objects(vault.path, 0)
    assert not list(vault.path.glob("perdure-objects.jsonl*"))
    assert git(vault.path, "cat-file", "blob", sha) == "kept"


def test_the_journal_stays_while_somebody_writes_files_of_objects_in_it(vault: Vault) -> None:
    with journal_objects(vault.path, {"a" * 40: b"x"}):
        settle_objects(vault.path, 0)
        assert journal_of(vault).exists()
    settle_objects(vault.path, 0)
    assert not journal_of(vault).exists()


def test_of_writers_beside_one_who_removes_the_journal_no_object_is_without_either(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync_all, ended = set[Path](), object_journal.sync_all, threading.Event()

    def remember(path: Path) -> None:
        there = {path for path in (vault.path / "objects").rglob("*") if path.is_file()}
        sync_all(path)
        synced.update(there)

    def write(writer: int) -> list[str]:
        return [vault.objects.write_blob(f"{writer} {number}".encode()) for number in range(60)]

    monkeypatch.setattr(object_journal, "sync_all", remember)
    names = dict[int, list[str]]()
    threads = [threading.Thread(target=lambda n=n: names.update({n: write(n)})) for n in range(4)]

    def settle() -> None:
        while not ended.is_set():
            settle_objects(vault.path, 0)

    settling = [threading.Thread(target=settle) for _ in range(2)]
    for thread in (*threads, *settling):
        thread.start()
    for thread in threads:
        thread.join(120)
    ended.set()
    for thread in settling:
        thread.join(120)
    text = "".join(journal.read_text() for journal in vault.path.glob("perdure-objects.jsonl*"))
    written = [sha for shas in names.values() for sha in shas]
    assert len(written) == 240
    assert [sha for sha in written if object_file(vault, sha) not in synced and sha not in text] == []


def test_objects_of_a_repository_without_a_journal_are_synced_by_their_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q", "--bare", "r.git")
    disk, objects = Disk(monkeypatch), tmp_path / "r.git" / "objects"
    with ObjectStore(objects).write_together() as together:
        names = [together.write_blob(f"{number}".encode()) for number in range(20)]
        assert not any((objects / sha[:2] / sha[2:]).exists() for sha in names)
    assert all(disk.keeps(objects / sha[:2] / sha[2:], objects) for sha in names)
    assert disk.syncs_of(objects) == 1
