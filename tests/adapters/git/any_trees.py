"""Any tree of files, links and directories, as a program of a stranger's may leave one, and how to make it."""

from __future__ import annotations

import os
from pathlib import Path

from git_pictures import Node
from hypothesis import strategies as st

from perdure.adapters.git.workspace import HIDDEN, PORTS_FILE

_names = st.one_of(
    st.sampled_from(
        ["a", "b", "-c", "d\ne", "é", ".gitattributes", ".gitignore", "*", "[x]", " y ", "\\z", "!n", "#h"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6).filter(
        lambda name: name not in (".", "..", PORTS_FILE, *HIDDEN) and "git" not in name.lower()
    ),
)
_bytes = st.one_of(
    st.binary(max_size=20), st.sampled_from([b"a\r\nb\r\n", b"* text=auto\n", b"* text eol=crlf\n", b"$Id$\n", b""])
)
_file = st.tuples(st.just("file"), st.sampled_from([0o644, 0o755, 0o600, 0o444, 0o777, 0o000]), _bytes)
_link = st.tuples(st.just("link"), st.just(0), st.sampled_from([b"a", b"/nowhere", b"../b"]))
_directory = st.tuples(st.just("directory"), st.sampled_from([0o755, 0o700, 0o555]), st.just(b""))
TREES = st.dictionaries(
    st.lists(_names, min_size=1, max_size=3).map(tuple), st.one_of(_file, _link, _directory), max_size=7
)


def grow(root: Path, tree: dict[tuple[str, ...], Node]) -> None:
    modes: list[tuple[Path, int]] = []
    for parts, (kind, mode, data) in tree.items():
        path = root.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_symlink() or path.exists():
                continue
            if kind == "link":
                path.symlink_to(os.fsdecode(data))
            elif kind == "directory":
                path.mkdir()
            else:
                path.write_bytes(data)
        except (NotADirectoryError, FileExistsError, FileNotFoundError, PermissionError):
            continue
        if kind != "link" and root in path.resolve().parents:
            modes.append((path, mode))
    for path, mode in reversed(modes):
        path.chmod(mode)
