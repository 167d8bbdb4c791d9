"""Objects, refs and changes read without a git of their own: bounded, and the same answers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.git import patch
from perdure.adapters.git import repository as repositories
from perdure.adapters.git.command import Git, GitError
from perdure.adapters.git.objects import LOOSE_OBJECT_BYTES, LooseObjects, ObjectReader, ObjectStore
from perdure.adapters.git.patch import changed_paths, unified_diff
from perdure.adapters.git.repository import Repository, ask_about_objects
from tests.repositories import git, make_origin, make_target

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


FILES = {"a.txt": "one\n", "deep/er/b.txt": "two\n", "deep/er/ü.txt": "three\n", "deep.txt": "four\n"}
GONE = "1" * 40


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two commits on main, one of them on a side branch, an annotated tag."""
    origin = make_target(tmp_path / "origin.git", FILES)
    work = tmp_path / "origin.git-work"
    (work / "a.txt").write_text("changed\n")
    git(work, "commit", "-qam", "second")
    git(work, "tag", "-m", "a tag", "v1")
    git(work, "push", "-q", str(origin), "main", "v1", "main~1:refs/heads/side")
    return origin


@pytest.mark.parametrize("packed", [False, True])
def test_it_answers_as_git_does_where_objects_are_loose_and_leaves_the_rest_to_git(store: Path, packed: bool) -> None:
    if packed:
        git(store, "repack", "-adq")
        git(store, "pack-refs", "--all")
    loose, repository = LooseObjects(store), Repository(store)
    main, side, tag = (git(store, "rev-parse", name) for name in ("main", "side", "v1"))
    blob = git(store, "rev-parse", f"{main}:deep/er/b.txt")
    names = {
        loose.read_ref("refs/heads/main"): main,
        loose.read_ref("refs/tags/v1"): tag,
        loose.tree_of(main): git(store, "rev-parse", f"{main}^{{tree}}"),
        loose.resolve_path(f"{main}:deep"): git(store, "rev-parse", f"{main}:deep"),
        loose.resolve_path(f"{main}:deep/er/b.txt"): blob,
        loose.resolve_path(f"{main}:deep/er/ü.txt"): git(store, "rev-parse", f"{main}:deep/er/ü.txt"),
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
    assert repository.tree_of(main) == git(store, "rev-parse", f"{main}^{{tree}}")
    assert repository.tree_of(f"{main}:deep") == git(store, "rev-parse", f"{main}:deep")
    assert repository.read_file(main, "a.txt") == b"changed\n"
    assert repository.read_file(main, "absent.txt") is None
    assert (repository.has_commit(main), repository.has_commit(blob), repository.has_commit(GONE)) == (
        True,
        False,
        False,
    )
    assert (repository.merge_base(side, main), repository.merge_base(main, side)) == (side, side)


@pytest.mark.parametrize("name", ["refs/heads/absent", "refs/heads", "refs/../HEAD", "HEAD", "main", "refs/heads/x y"])
def test_what_is_no_plain_ref_with_a_file_of_its_own_is_left_to_git(store: Path, name: str) -> None:
    assert LooseObjects(store).read_ref(name) is None


def test_a_ref_that_is_torn_or_means_another_one_is_left_to_git(store: Path) -> None:
    for number, text in enumerate(("", "ref: refs/heads/main\n", GONE[:20], "\xff\xfe")):
        (store / f"refs/heads/odd{number}").write_text(text, encoding="latin-1")
        assert LooseObjects(store).read_ref(f"refs/heads/odd{number}") is None


@pytest.mark.parametrize("name", [GONE, "", "../../HEAD", "abc", "A" * 40, f"{GONE}:a"])
def test_a_name_of_no_loose_object_is_left_to_git(store: Path, name: str) -> None:
    loose = LooseObjects(store)
    assert (loose.read_object(name), loose.object_size(name), loose.tree_of(name), loose.resolve_path(f"{name}:a")) == (
        None,
    ) * 4


def test_paths_that_lead_nowhere_or_into_a_file_and_tags_are_left_to_git(store: Path) -> None:
    loose, main = LooseObjects(store), git(store, "rev-parse", "main")
    assert [loose.resolve_path(f"{main}:{path}") for path in ("absent", "a.txt/b", "deep//er", "", "/deep")] == [
        None
    ] * 5
    assert loose.tree_of(git(store, "rev-parse", "v1")) is None


def _emptied(data: bytes) -> bytes:
    return b""


def _cut(data: bytes) -> bytes:
    return data[:-4]


def _exchanged(data: bytes) -> bytes:
    return data[:2] + b"\x00" * (len(data) - 2)


@pytest.mark.parametrize("damaged", [_emptied, _cut, _exchanged])
def test_a_damaged_object_is_never_taken_for_what_its_name_says(store: Path, damaged: Callable[[bytes], bytes]) -> None:
    blob = git(store, "rev-parse", "main:a.txt")
    file = store / "objects" / blob[:2] / blob[2:]
    other = git(store, "rev-parse", "main:deep.txt")
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(damaged(data))
    assert LooseObjects(store).read_object(blob) is None
    os.replace(store / "objects" / other[:2] / other[2:], file)  # whole, but something else
    assert LooseObjects(store).read_object(blob) is None


def test_a_large_object_is_left_to_git_before_it_is_unpacked(store: Path, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"\0" * (LOOSE_OBJECT_BYTES + 1))
    blob = git(store, "hash-object", "-w", str(large))
    assert (store / "objects" / blob[:2] / blob[2:]).stat().st_size < 100_000
    assert (LooseObjects(store).read_object(blob), LooseObjects(store).object_size(blob)) == (
        None,
        LOOSE_OBJECT_BYTES + 1,
    )


def test_objects_that_a_stranger_wrote_by_hand_are_left_to_git_or_read_as_git_does(store: Path) -> None:
    def written(kind: str, data: bytes) -> str:
        command = ["git", "hash-object", "-t", kind, "-w", "--stdin", "--literally"]
        return subprocess.run(command, cwd=store, input=data, capture_output=True, check=True).stdout.decode().strip()

    loose, first = LooseObjects(store), git(store, "rev-parse", "main:a.txt")
    other = git(store, "rev-parse", "main:deep.txt")
    twice = written("tree", b"".join(b"100644 a\0" + bytes.fromhex(sha) for sha in (first, other)))
    assert loose.resolve_path(f"{twice}:a") == git(store, "rev-parse", f"{twice}:a") == first
    for torn in (b"100644 a", b"no space", b"\xff\xfe 1\0" + bytes(20)):
        tree = written("tree", torn)
        assert (loose.tree_entries(tree), loose.resolve_path(f"{tree}:a")) == (None, None)
    for commit in (b"tree " + b"\xff" * 40 + b"\n\n", b"", b"tree 12\n\n"):
        assert loose.tree_of(written("commit", commit)) is None


_lines = st.lists(st.sampled_from([b"a", b"+b", b"-c", b"@@ -1 +1 @@", b"diff --git a/x b/x", b"+++ b/y", b"", b"\r"]))
_text = st.builds(lambda lines, end: b"\n".join(lines) + end, _lines, st.sampled_from([b"", b"\n"]))


@settings(max_examples=20, deadline=None)
@given(before=st.tuples(_text, _text), after=st.tuples(_text, _text))
def test_added_lines_and_their_numbers_are_those_of_the_new_file(
    tmp_path_factory: pytest.TempPathFactory, before: tuple[bytes, bytes], after: tuple[bytes, bytes]
) -> None:
    work = tmp_path_factory.mktemp("patch")
    origin = make_origin(work / "o.git", dict(zip(("a b", "ü"), before, strict=True)))
    seed = work / "o.git-seed"
    for name, data in zip(("a b", "ü"), after, strict=True):
        (seed / name).write_bytes(data)
    git(seed, "commit", "-qam", "second", "--allow-empty")
    git(seed, "push", "-q", str(origin), "main")
    repository = Repository(origin)
    entries = patch.changed_paths(repository, "main~1", "main")
    assert {one.path for one in entries} == {n for n, b, a in zip(("a b", "ü"), before, after, strict=True) if a != b}
    seen = dict(patch.read_hunks(repository, "main~1", "main", entries))
    for name, new in zip(("a b", "ü"), after, strict=True):
        lines = new.split(b"\n")
        for hunk in seen.get(name, ()):
            for line in hunk.new_lines():
                assert lines[line.number - 1] == line.data
                assert hunk.first <= line.number <= hunk.last
        added = sum(line.added for hunk in seen.get(name, ()) for line in hunk.new_lines())
        told = git(seed, "diff", "--numstat", "main~1", "main", "--", name)
        assert added == int(told.partition("\t")[0] or 0)


def test_a_change_comes_in_pieces_and_each_path_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = make_origin(tmp_path / "o.git", {f"d{n}/f": b"x\n" for n in range(7)})
    seed = tmp_path / "o.git-seed"
    for n in range(7):
        (seed / f"d{n}/f").write_bytes(b"y\n")
    (seed / "d0/f").unlink()
    (seed / "d0/f").mkdir()
    (seed / "d0/f/g").write_bytes(b"z\n")
    git(seed, "add", "-A")
    git(seed, "commit", "-qm", "second")
    git(seed, "push", "-q", str(origin), "main")
    monkeypatch.setattr(patch, "PATCH_BATCH_FILES", 2)
    repository = Repository(origin)
    entries = patch.changed_paths(repository, "main~1", "main")
    read = [path for path, _ in patch.read_hunks(repository, "main~1", "main", entries)]
    assert sorted(read) == ["d0/f/g", *(f"d{n}/f" for n in range(1, 7))]
    assert {one.path: data for one, data in patch.read_blobs(repository, entries)}["d0/f/g"] == b"z\n"


def test_where_nothing_is_shared_the_base_itself_is_compared_with(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "o.git")
    other = make_origin(tmp_path / "p.git", {"else": b"1\n"})
    git(origin, "fetch", "-q", str(other), "main:other")
    repository = Repository(origin)
    main, alone = (git(origin, "rev-parse", name) for name in ("main", "other"))
    assert repository.merge_base(main, alone) == main
    assert repository.merge_base(main, main) == main


def test_a_reader_sees_names_as_they_are_and_no_huge_file(tmp_path: Path) -> None:
    origin = make_origin(tmp_path / "o.git")
    seed = tmp_path / "o.git-seed"
    (seed / "ü.txt").write_text("hello\n")
    (seed / "huge.txt").write_bytes(b"abc\n" * (patch.PATCH_FILE_BYTES // 4 + 1))
    (seed / os.fsdecode(b"\xff.txt")).write_bytes(b"\xff\n")
    git(seed, "add", "-A")
    git(seed, "commit", "-qm", "second")
    git(seed, "push", "-q", str(origin), "main")
    text = patch.unified_diff(Repository(origin), "main~1", "main")
    assert "+++ b/ü.txt\n@@ -0,0 +1 @@\n+hello" in text
    assert "Binary files /dev/null and b/huge.txt differ" in text
    assert len(text) < 2000


def test_what_git_said_of_objects_by_their_full_names_is_not_asked_again(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, main, side = Repository(store), git(store, "rev-parse", "main"), git(store, "rev-parse", "side")
    told = changed_paths(repository, side, main), unified_diff(repository, side, main), repository.diff_stat(side, main)
    files, folder = list(repository.list_files(main)), repository.list_folder(main, "deep")
    assert [change.path for change in told[0]] == ["a.txt"]
    assert folder == ["deep/er"]
    monkeypatch.setenv("PATH", "/nowhere")
    again = (
        changed_paths(repository, side, main),
        unified_diff(repository, side, main),
        repository.diff_stat(side, main),
    )
    assert again == told
    assert (list(repository.list_files(main)), repository.list_folder(main, "deep")) == (files, folder)


def test_what_a_ref_names_is_asked_each_time(store: Path) -> None:
    repository = Repository(store)
    assert repository.diff_stat("side", "main") == (1, 1, 1)
    git(store, "update-ref", "refs/heads/main", git(store, "rev-parse", "side"))
    assert repository.diff_stat("side", "main") == (0, 0, 0)


def test_an_object_that_was_missing_is_found_once_it_is_there(store: Path) -> None:
    sha = "00750edc07d6415dcc07ae0351e9397b0222b7ba"  # of "3\n"
    assert ask_about_objects(Repository(store).git, "cat-file", "-s", objects=[sha], missing_ok=True) is None
    assert ObjectStore(store / "objects").write_blob(b"3\n") == sha
    assert ask_about_objects(Repository(store).git, "cat-file", "-s", objects=[sha], missing_ok=True) == b"2\n"


def test_the_cache_of_gits_answers_has_a_limit(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories, "CACHED_OUTPUT_BYTES", 100)
    blobs = [ObjectStore(store / "objects").write_blob(bytes([number]) * 60) for number in range(4)]
    for sha in blobs:
        assert len(ask_about_objects(Repository(store).git, "cat-file", "blob", objects=[sha])) == 60
    assert sum(map(len, repositories._outputs.values())) <= 100
