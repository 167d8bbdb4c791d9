"""The traces of agents whose worker was killed: what is theirs goes, whatever a power cut has made of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from perdure.adapters.worker.turn.process import _remove_leftovers


def test_what_a_killed_worker_left_of_an_agent_is_removed(tmp_path: Path) -> None:
    sockets = Path(tempfile.mkdtemp(prefix="perdure-agent-"))
    (sockets / "model").touch()
    (tmp_path / "agent-home-1").mkdir()
    (tmp_path / "agent-home-1.socket").write_text(str(sockets))
    _remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not sockets.exists()


@pytest.mark.parametrize("torn", ["", ".", "/", "..", "\0\0\0", "{elsewhere}"])
def test_a_torn_or_forged_name_of_a_socket_removes_nothing_else(
    torn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    for place in (elsewhere, here, tmp_path / "work"):
        place.mkdir()
        (place / "kept").touch()
    monkeypatch.chdir(here)
    (tmp_path / "work" / "agent-home-1.socket").write_text(torn.replace("{elsewhere}", str(elsewhere)))
    _remove_leftovers(tmp_path / "work")
    assert (elsewhere / "kept").exists()
    assert (here / "kept").exists()
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["kept"]
