"""Patches of real git are read exactly, whatever is in names and contents."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perdure.adapters.git import patch
from perdure.adapters.git.repository import Repository
from perdure.models.delivery.comparison import parse_patch
from perdure.models.patch import FilePatch, label_lines, read_files, readable_patch
from perdure.render.decision_lines import diffstat_lines
from perdure.text import escape_path

COMMIT = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@dataclass(frozen=True)
class Entry:
    """A file, link or submodule of a tree."""

    data: bytes
    mode: str = "100644"


Tree = dict[bytes, Entry]


class Trees:
    """A bare repository that trees are written to by git, of any names and contents."""

    def __init__(self, path: Path) -> None:
        self.path = path
        subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True)

    def git(self, *args: str, data: bytes = b"") -> bytes:
        env = {**os.environ, "GIT_INDEX_FILE": str(self.path / "index"), "GIT_CONFIG_GLOBAL": "/dev/null"}
        done = subprocess.run(
            ["git", "--git-dir", str(self.path), *args], input=data, env=env, capture_output=True, check=True
        )
        return done.stdout

    def write(self, tree: Tree) -> str:
        """Write a tree and return its name."""
        lines = []
        for name, entry in tree.items():
            sha = COMMIT.encode() if entry.mode == patch.SUBMODULE else self._write_blob(entry.data)
            lines.append(entry.mode.encode() + b" " + sha + b"\t" + name + b"\0")
        self.git("read-tree", "--empty")
        self.git("update-index", "-z", "--index-info", data=b"".join(lines))
        return self.git("write-tree").decode().strip()

    def _write_blob(self, data: bytes) -> bytes:
        return self.git("hash-object", "-w", "--stdin", data=data).strip()


def applied(old: bytes, file: FilePatch) -> bytes:
    """Return a file's bytes after its hunks, applied by hand."""
    lines, result, position = _lines(old), list[bytes](), 0
    for hunk in file.hunks:
        numbers = hunk.place.split(b" ")[1].removeprefix(b"-").split(b",")
        first, count = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 1
        start = first - 1 if count else first
        result += lines[position:start]
        position, sign = start, b" "
        for line in _lines(hunk.body):
            if line.startswith(b"\\"):
                result += [result.pop().removesuffix(b"\n")] if sign in b" +" else []
                continue
            sign = line[:1]
            position += sign in b" -"
            result += [line[1:]] if sign in b" +" else []
    return b"".join([*result, *lines[position:]])


def _lines(data: bytes) -> list[bytes]:
    *whole, last = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([last] if last else [])


_PARTS = [
    "a",
    "b",
    " b/",
    "a/",
    " ",
    '"',
    "\\",
    "\t",
    "\n",
    "\r",
    "é",
    "日",
    "\u202e",
    "\x01",
    "\x7f",
    "=>",
    "{",
    "--- ",
]
_component = st.one_of(
    st.lists(st.sampled_from(_PARTS).map(str.encode), min_size=1, max_size=5).map(b"".join),
    st.binary(min_size=1, max_size=8),
)
_names = (
    st.lists(_component, min_size=1, max_size=3)
    .map(lambda parts: b"/".join(part for whole in parts for part in whole.split(b"/") if part))
    .filter(lambda name: name and b"\0" not in name and all(_is_allowed(part) for part in name.split(b"/")))
)


def _is_allowed(component: bytes) -> bool:
    text = component.decode(errors="ignore").lower().replace("\u200c", "").strip(" .")
    return component not in (b".", b"..") and not text.startswith(("git", ".git")) and component[:4].lower() != b".git"


_LINES = """
x|-- a/x|++ b/x|+++ b/y|--- a/y|diff --git a/x b/x|@@ -1 +1 @@|\\ No newline|-|+|\r|x\r|\x0c|\u2028| |deleted file mode
"""
_line = st.one_of(
    st.sampled_from(_LINES.strip("\n").encode().split(b"|")),
    st.binary(max_size=6).map(lambda data: data.replace(b"\n", b"").replace(b"\0", b"")),
)
_data = st.builds(
    lambda lines, end: b"\n".join(lines) + end, st.lists(_line, max_size=12), st.sampled_from([b"", b"\n"])
)
_entry = st.one_of(
    st.builds(Entry, _data, st.sampled_from(["100644", "100644", "100755", "120000"])),
    st.just(Entry(b"", patch.SUBMODULE)),
    st.just(Entry(b"\0binary")),
    st.just(Entry(b"\0other\n")),
)


def _without_folders(tree: Tree) -> Tree:
    """Leave out what is a folder of another name, and an empty link."""
    return {
        name: entry
        for name, entry in tree.items()
        if not any(other.startswith(name + b"/") for other in tree) and (entry.data or entry.mode != "120000")
    }


_trees = st.dictionaries(_names, st.tuples(st.none() | _entry, st.none() | _entry), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(both=_trees)
def test_names_contents_and_counts_are_those_of_git(
    tmp_path_factory: pytest.TempPathFactory, both: dict[bytes, tuple[Entry | None, Entry | None]]
) -> None:
    trees = Trees(tmp_path_factory.mktemp("patch") / "r.git")
    kept = _without_folders({name: Entry(b"x") for name in both})
    old = {name: before for name, (before, _) in both.items() if before is not None and name in kept}
    new = {name: after for name, (_, after) in both.items() if after is not None and name in kept}
    old, new = _without_folders(old), _without_folders(new)
    a, b = trees.write(old), trees.write(new)
    repository = Repository(trees.path)
    changed = patch.changed_paths(repository, a, b)
    names = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    assume(len({escape_path(name) for name in names}) == len(names))
    assert {os.fsencode(change.path) for change in changed} == names

    for quoted in ("true", "false"):
        text = trees.git("-c", f"core.quotePath={quoted}", "diff", "--no-renames", a, b)
        files = list(read_files(text))
        assert [file.path for file in files] == sorted(names)
        for file in files:
            before, after = old.get(file.path), new.get(file.path)
            assert file.exists == (after is not None)
            kinds = {entry.mode[:3] for entry in (before, after) if entry is not None}
            if file.hunks and len(kinds) == 1 and kinds != {"160"}:
                assert applied(before.data if before else b"", file) == (after.data if after else b"")

    shown = patch.unified_diff(repository, a, b)
    assert {file.path for file in read_files(shown.encode())} == names
    listed = parse_patch(shown)
    assert set(listed) == {escape_path(name) for name in names}
    for path, added, gone in patch.line_counts(repository, a, b):
        entries = old.get(os.fsencode(path)), new.get(os.fsencode(path))
        if added != "-" and len({entry.mode[:3] for entry in entries if entry is not None}) == 1:
            assert (listed[escape_path(path)].added, listed[escape_path(path)].deleted) == (int(added), int(gone))
    assert len(diffstat_lines(shown, 100)) == len(listed)
    for path, hunks in patch.read_hunks(repository, a, b, changed):
        whole = new[os.fsencode(path)].data.split(b"\n")
        for hunk in hunks:
            assert all(whole[line.number - 1] == line.data for line in hunk.new_lines())


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("docs/café.txt", "docs/café.txt"),
        ("plan b/notes.md", "plan b/notes.md"),
        ("a b/a b/a", "a b/a b/a"),
        ('say "hi".txt', 'say "hi".txt'),
        ("tab\there", r"tab\there"),
        ("new\nline", r"new\nline"),
        ("back\\slash", r"back\slash"),
        ("two  blanks ", "two  blanks "),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        (os.fsdecode(b"caf\xe9"), r"caf\xe9"),
    ],
)
@pytest.mark.parametrize("after", [Entry(b"y\n"), Entry(b"x\n", "100755"), Entry(b"\0"), Entry(b""), None])
def test_a_name_is_shown_as_it_is_whatever_happens_to_its_file(
    tmp_path: Path, name: str, shown: str, after: Entry | None
) -> None:
    trees = Trees(tmp_path / "r.git")
    a = trees.write({os.fsencode(name): Entry(b"x\n")})
    b = trees.write({} if after is None else {os.fsencode(name): after})
    text = patch.unified_diff(Repository(trees.path), a, b)
    assert text.encode().decode() == text
    assert list(parse_patch(text)) == [shown]
    assert [line[15:] for line in diffstat_lines(text, 9)] == [shown]
    if shown == name and '"' not in name and "\\" not in name:
        assert text.startswith(f"diff --git a/{name} b/{name}\n")


def test_a_renamed_file_has_its_new_name(tmp_path: Path) -> None:
    trees = Trees(tmp_path / "r.git")
    data = b"line\n" * 20
    pairs = {b"a b/x": b"c b/y", b'q"': b"plain", b"p": "é".encode(), b"s ": b"t b/\n"}
    a = trees.write({old: Entry(data + old + b"\n") for old in pairs})
    b = trees.write({new: Entry(data + old + b"\n") for old, new in pairs.items()})
    text = trees.git("diff", "-M100%", a, b)
    assert text.count(b"similarity index 100%") == len(pairs)
    assert {file.path for file in read_files(text)} == set(pairs.values())
    assert set(parse_patch(readable_patch(text))) == {escape_path(new) for new in pairs.values()}


def test_a_submodule_that_moves_is_a_change_of_one_file(tmp_path: Path) -> None:
    trees = Trees(tmp_path / "r.git")
    a, b = trees.write({b"x": Entry(b"x\n")}), trees.write({b"x": Entry(b"x\n"), b"lib": Entry(b"", patch.SUBMODULE)})
    repository = Repository(trees.path)
    assert repository.diff_stat(a, b) == (1, 1, 0)
    assert list(parse_patch(patch.unified_diff(repository, a, b))) == ["lib"]


def test_a_patch_that_ends_anywhere_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    trees = Trees(tmp_path / "r.git")
    a = trees.write({"é".encode(): Entry(b"x\n" * 9), b"z": Entry(b"1")})
    b = trees.write({"é".encode(): Entry(b"y\n" * 9), b"z": Entry(b"2")})
    text = trees.git("diff", a, b)
    for end in range(len(text)):
        assert len(list(read_files(text[:end]))) <= 2
        assert len(list(label_lines(text[:end] + b"\n... and more"))) >= 1
        readable_patch(text[:end])
