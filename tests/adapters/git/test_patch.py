"""A change read as data is what the files say, whatever their names and lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.git import patch
from perdure.adapters.git.repository import Repository
from tests.repositories import git, make_origin

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
