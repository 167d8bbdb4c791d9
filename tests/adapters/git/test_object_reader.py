"""Contents of objects from one process: bounded, in step with what was asked, and over when it is closed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from perdure.adapters.git.command import Git, GitError
from perdure.adapters.git.objects import ObjectReader, ObjectStore

ABSENT = "1" * 40
PLENTY = 10**9


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", "--template=", str(tmp_path / "r.git")], check=True, timeout=30)
    return tmp_path / "r.git"


def readers(bare: Path) -> list[psutil.Process]:
    """Our children that read this repository, as their environment tells."""
    return [one for one in psutil.Process().children() if str(bare) == one.environ().get("GIT_DIR")]


def test_many_objects_come_in_the_order_they_were_asked_for_from_one_process(bare: Path) -> None:
    store, contents = ObjectStore(bare / "objects"), ObjectReader(Git(git_dir=bare))
    texts = [f"text {n}\n".encode() for n in range(130)] + [b"", b"\n\n", b"x" * 300_000, bytes(range(256))]
    names = [store.write_blob(text) for text in texts]
    assert list(contents.read_objects(names, PLENTY, PLENTY)) == list(zip(names, texts, strict=True))
    (first,) = readers(bare)
    assert list(contents.read_objects(names[:1], PLENTY, PLENTY)) == [(names[0], texts[0])]
    assert readers(bare) == [first]
    contents.close()
    assert readers(bare) == []
    contents.close()
    assert list(contents.read_objects(names[:1], PLENTY, PLENTY)) == [(names[0], texts[0])], "it begins anew"
    contents.close()


def test_what_is_absent_or_too_large_or_too_much_together_is_none_and_the_next_one_comes_whole(bare: Path) -> None:
    store, contents = ObjectStore(bare / "objects"), ObjectReader(Git(git_dir=bare))
    small, other, large = store.write_blob(b"small"), store.write_blob(b"other"), store.write_blob(b"large " * 500_000)
    found = list(contents.read_objects([large, ABSENT, small, large, other], 1000, PLENTY))
    assert found == [(large, None), (ABSENT, None), (small, b"small"), (large, None), (other, b"other")]
    found = list(contents.read_objects([small, other, store.write_blob(b"abc")], 1000, 8))
    assert [data for _, data in found] == [b"small", None, b"abc"], "8 bytes in all"
    contents.close()


def test_whoever_stops_in_the_middle_leaves_nothing_for_the_next_reader(bare: Path) -> None:
    store, contents = ObjectStore(bare / "objects"), ObjectReader(Git(git_dir=bare))
    names = [store.write_blob(text) for text in (b"one", b"two", b"three")]
    for _ in contents.read_objects(names, PLENTY, PLENTY):
        break
    assert list(contents.read_objects(names[1:], PLENTY, PLENTY)) == [(names[1], b"two"), (names[2], b"three")]
    contents.close()


def test_a_git_that_ends_is_an_error_with_its_words_and_one_that_was_killed_too(bare: Path) -> None:
    contents = ObjectReader(Git(git_dir=bare / "nothing here"))
    with pytest.raises(GitError):
        list(contents.read_objects([ABSENT], PLENTY, PLENTY))
    store, contents = ObjectStore(bare / "objects"), ObjectReader(Git(git_dir=bare))
    name = store.write_blob(b"here")
    assert dict(contents.read_objects([name], PLENTY, PLENTY)) == {name: b"here"}
    (reader,) = readers(bare)
    reader.kill()
    psutil.wait_procs([reader], timeout=30)
    with pytest.raises(GitError):
        list(contents.read_objects([name], PLENTY, PLENTY))
    assert dict(contents.read_objects([name], PLENTY, PLENTY)) == {name: b"here"}
    contents.close()
