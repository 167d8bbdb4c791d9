"""Loose objects and refs read without git: the same answers, and none where only git can tell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.adapters.git.objects import LOOSE_OBJECT_BYTES, LooseObjects
from perdure.adapters.git.repository import Repository
from tests.repositories import git, make_target

FILES = {"a.txt": "one\n", "deep/er/b.txt": "two\n", "deep/er/ü.txt": "three\n", "deep.txt": "four\n"}
GONE = "1" * 40


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Two commits on main, one of them on a side branch, an annotated tag."""
    origin = make_target(tmp_path / "origin.git", FILES)
    work = tmp_path / "origin.git-work"
    (work / "a.txt").write_text("changed\n")
    git(work, "commit", "-qam", "second")
    git(work, "tag", "-m", "a tag", "v1")
    git(work, "push", "-q", str(origin), "main", "v1", "main~1:refs/heads/side")
    return origin


@pytest.mark.parametrize("packed", [False, True])
def test_it_answers_as_git_does_where_objects_are_loose_and_leaves_the_rest_to_git(bare: Path, packed: bool) -> None:
    if packed:
        git(bare, "repack", "-adq")
        git(bare, "pack-refs", "--all")
    loose, repository = LooseObjects(bare), Repository(bare)
    main, side, tag = (git(bare, "rev-parse", name) for name in ("main", "side", "v1"))
    blob = git(bare, "rev-parse", f"{main}:deep/er/b.txt")
    names = {
        loose.read_ref("refs/heads/main"): main,
        loose.read_ref("refs/tags/v1"): tag,
        loose.tree_of(main): git(bare, "rev-parse", f"{main}^{{tree}}"),
        loose.resolve_path(f"{main}:deep"): git(bare, "rev-parse", f"{main}:deep"),
        loose.resolve_path(f"{main}:deep/er/b.txt"): blob,
        loose.resolve_path(f"{main}:deep/er/ü.txt"): git(bare, "rev-parse", f"{main}:deep/er/ü.txt"),
    }
    assert set(names) == ({None} if packed else set(names.values()))
    told = (
        loose.content("blob", blob),
        loose.object_size(blob),
        loose.parents_of(main),
        loose.is_on_first_parent_path(main, side),
    )
    assert told == ((None, None, None, False) if packed else (b"two\n", 4, [side], True))
    # Whoever asks the repository cannot tell.
    assert repository.read_ref("refs/heads/main") == main
    assert repository.tree_of(main) == git(bare, "rev-parse", f"{main}^{{tree}}")
    assert repository.tree_of(f"{main}:deep") == git(bare, "rev-parse", f"{main}:deep")
    assert repository.read_file(main, "a.txt") == b"changed\n"
    assert repository.read_file(main, "absent.txt") is None
    assert (repository.has_commit(main), repository.has_commit(blob), repository.has_commit(GONE)) == (
        True,
        False,
        False,
    )
    assert (repository.merge_base(side, main), repository.merge_base(main, side)) == (side, side)


@pytest.mark.parametrize("name", ["refs/heads/absent", "refs/heads", "refs/../HEAD", "HEAD", "main", "refs/heads/x y"])
def test_what_is_no_plain_ref_with_a_file_of_its_own_is_left_to_git(bare: Path, name: str) -> None:
    assert LooseObjects(bare).read_ref(name) is None


def test_a_ref_that_is_torn_or_means_another_one_is_left_to_git(bare: Path) -> None:
    for number, text in enumerate(("", "ref: refs/heads/main\n", GONE[:20], "\xff\xfe")):
        (bare / f"refs/heads/odd{number}").write_text(text, encoding="latin-1")
        assert LooseObjects(bare).read_ref(f"refs/heads/odd{number}") is None


@pytest.mark.parametrize("name", [GONE, "", "../../HEAD", "abc", "A" * 40, f"{GONE}:a"])
def test_a_name_of_no_loose_object_is_left_to_git(bare: Path, name: str) -> None:
    loose = LooseObjects(bare)
    assert (loose.read_object(name), loose.object_size(name), loose.tree_of(name), loose.resolve_path(f"{name}:a")) == (
        None,
    ) * 4


def test_paths_that_lead_nowhere_or_into_a_file_and_tags_are_left_to_git(bare: Path) -> None:
    loose, main = LooseObjects(bare), git(bare, "rev-parse", "main")
    assert [loose.resolve_path(f"{main}:{path}") for path in ("absent", "a.txt/b", "deep//er", "", "/deep")] == [
        None
    ] * 5
    assert loose.tree_of(git(bare, "rev-parse", "v1")) is None


def _emptied(data: bytes) -> bytes:
    return b""


def _cut(data: bytes) -> bytes:
    return data[:-4]


def _exchanged(data: bytes) -> bytes:
    return data[:2] + b"\x00" * (len(data) - 2)


@pytest.mark.parametrize("damaged", [_emptied, _cut, _exchanged])
def test_a_damaged_object_is_never_taken_for_what_its_name_says(bare: Path, damaged: Callable[[bytes], bytes]) -> None:
    blob = git(bare, "rev-parse", "main:a.txt")
    file = bare / "objects" / blob[:2] / blob[2:]
    other = git(bare, "rev-parse", "main:deep.txt")
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(damaged(data))
    assert LooseObjects(bare).read_object(blob) is None
    os.replace(bare / "objects" / other[:2] / other[2:], file)  # whole, but something else
    assert LooseObjects(bare).read_object(blob) is None


def test_a_large_object_is_left_to_git_before_it_is_unpacked(bare: Path, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"\0" * (LOOSE_OBJECT_BYTES + 1))
    blob = git(bare, "hash-object", "-w", str(large))
    assert (bare / "objects" / blob[:2] / blob[2:]).stat().st_size < 100_000
    assert (LooseObjects(bare).read_object(blob), LooseObjects(bare).object_size(blob)) == (
        None,
        LOOSE_OBJECT_BYTES + 1,
    )


def test_objects_that_a_stranger_wrote_by_hand_are_left_to_git_or_read_as_git_does(bare: Path) -> None:
    def written(kind: str, data: bytes) -> str:
        command = ["git", "hash-object", "-t", kind, "-w", "--stdin", "--literally"]
        return subprocess.run(command, cwd=bare, input=data, capture_output=True, check=True).stdout.decode().strip()

    loose, first = LooseObjects(bare), git(bare, "rev-parse", "main:a.txt")
    other = git(bare, "rev-parse", "main:deep.txt")
    twice = written("tree", b"".join(b"100644 a\0" + bytes.fromhex(sha) for sha in (first, other)))
    assert loose.resolve_path(f"{twice}:a") == git(bare, "rev-parse", f"{twice}:a") == first
    for torn in (b"100644 a", b"no space", b"\xff\xfe 1\0" + bytes(20)):
        tree = written("tree", torn)
        assert (loose.tree_entries(tree), loose.resolve_path(f"{tree}:a")) == (None, None)
    for commit in (b"tree " + b"\xff" * 40 + b"\n\n", b"", b"tree 12\n\n"):
        assert loose.tree_of(written("commit", commit)) is None
