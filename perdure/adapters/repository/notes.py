"""A repository's own notes to agents (AGENTS.md): read as data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perdure.adapters.system.bounded import read_beginning
from perdure.models.contract import Note

NOTE_BYTES = 32 * 1024
"""Of one AGENTS.md: a longer one costs more in every turn than it helps."""


def read_notes(tree: Path, names: Sequence[str]) -> tuple[Note, ...]:
    """Read the named files of a tree, in this order, each at most NOTE_BYTES and cut visibly beyond that.

    Left out is what is missing, empty, no regular file, outside the tree (by `..` or a symbolic link) or git's own, and
    a second name for the same file.
    """
    root = tree.resolve()
    notes: list[Note] = []
    paths_seen: set[Path] = set()
    for name in names:
        try:
            path = (root / name).resolve()
        except (OSError, RuntimeError):  # a loop of links
            continue
        inside = path.is_relative_to(root) and ".git" not in path.relative_to(root).parts
        if not inside or path in paths_seen or not path.is_file():
            continue
        paths_seen.add(path)
        text = read_beginning(path, NOTE_BYTES + 1)
        if len(text.encode()) > NOTE_BYTES:
            text = text.encode()[:NOTE_BYTES].decode(errors="ignore") + f"\n… cut at {NOTE_BYTES // 1024} KiB\n"
        if text.strip():
            notes.append(Note(path=name, text=text))
    return tuple(notes)
