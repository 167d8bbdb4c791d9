"""An agent's session files: kept byte for byte, and never a file of the host that the agent has put a link to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.adapters.agents import cli_process
from perdure.adapters.agents.cli_process import (
    has_all_results,
    pack_session_files,
    read_home_file,
    unpack_session_files,
)
from perdure.models.errors import WorkspaceLost

GLOBS = ("sessions/*/*.jsonl",)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    (made / "sessions" / "a").mkdir(parents=True)
    (made / "sessions" / "a" / "one.jsonl").write_text("call-1 result call-1")
    return made


def test_session_files_come_back_as_they_were(home: Path, tmp_path: Path) -> None:
    kept = pack_session_files(home, GLOBS)
    (tmp_path / "other").mkdir()
    unpack_session_files(tmp_path / "other", kept)
    assert (tmp_path / "other/sessions/a/one.jsonl").read_text() == "call-1 result call-1"
    assert pack_session_files(tmp_path / "other", GLOBS) == kept
    assert has_all_results(home, GLOBS, ["call-1"])
    assert not has_all_results(home, GLOBS, ["call-2"])


def test_a_link_to_a_file_of_the_host_is_not_followed_wherever_it_stands_in_the_path(
    home: Path, tmp_path: Path
) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "secret.jsonl").write_text("the host's key")
    (home / "sessions" / "a" / "two.jsonl").symlink_to(tmp_path / "host" / "secret.jsonl")
    (home / "sessions" / "b").symlink_to(tmp_path / "host")
    os.mkfifo(home / "sessions" / "a" / "three.jsonl")
    assert b"the host's key" not in pack_session_files(home, GLOBS)
    assert read_home_file(home, Path("sessions/b/secret.jsonl"), 100) is None
    assert read_home_file(home, Path("sessions/a/two.jsonl"), 100) is None
    assert read_home_file(home, Path("sessions/a/one.jsonl"), 5) == b"call-1"


def test_a_session_without_end_is_not_read_to_its_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_process, "MEMORY_BYTES", 1024)
    with (home / "sessions" / "a" / "one.jsonl").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(WorkspaceLost, match="larger"):
        pack_session_files(home, GLOBS)


def test_a_glob_that_ends_with_two_stars_means_the_files_below(tmp_path: Path) -> None:
    (tmp_path / "chats" / "today").mkdir(parents=True)
    (tmp_path / "chats" / "today" / "one.json").write_text("1")
    (tmp_path / "chats" / "two.json").write_text("2")
    unpack_session_files(tmp_path / "other", pack_session_files(tmp_path, ["chats/**"]))
    assert (tmp_path / "other" / "chats" / "today" / "one.json").read_text() == "1"
    assert (tmp_path / "other" / "chats" / "two.json").read_text() == "2"
