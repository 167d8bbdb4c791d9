"""AGENTS.md: read bounded, never from outside the tree."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.adapters.repository.config import NOTE_BYTES, read_notes
from tests.project_files import Files


def test_notes_come_in_the_configured_order_and_missing_ones_are_left_out(files: Files) -> None:
    root = files({"AGENTS.md": "use tabs", "docs/STYLE.md": "no tabs", "EMPTY.md": " \n"})
    notes = read_notes(root, ["docs/STYLE.md", "CLAUDE.md", "EMPTY.md", "AGENTS.md"])
    assert [(note.path, note.text) for note in notes] == [("docs/STYLE.md", "no tabs"), ("AGENTS.md", "use tabs")]


def test_a_long_note_is_cut_visibly_within_a_character(files: Files) -> None:
    (note,) = read_notes(files({"AGENTS.md": "x" + "ü" * NOTE_BYTES}), ["AGENTS.md"])
    assert note.text.endswith("ü\n… cut at 32 KiB\n")
    assert len(note.text.encode()) < NOTE_BYTES + 50


def test_a_second_name_for_the_same_file_is_read_once(files: Files) -> None:
    root = files({"AGENTS.md": "text"})
    (root / "CLAUDE.md").symlink_to("AGENTS.md")
    assert [note.path for note in read_notes(root, ["AGENTS.md", "CLAUDE.md"])] == ["AGENTS.md"]


def test_nothing_outside_the_tree_is_read(files: Files, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    root = files({".git/description": "secret"})
    (root / "AGENTS.md").symlink_to("../secret.md")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    names = ["AGENTS.md", "../secret.md", str(tmp_path / "secret.md"), ".git/description", "loop", "pipe", "."]
    assert read_notes(root, names) == ()
