"""One home, one name for its host, whatever the machine is called today."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from perdure.adapters.system import home as homes
from perdure.adapters.system.home import Home, login_name
from tests.processes import line, python

NAME = """
import sys
from pathlib import Path
from perdure.adapters.system.home import Home
print("ready", flush=True)
sys.stdin.readline()
print(Home(Path(sys.argv[1])).host_id(), flush=True)
"""


def test_who_has_no_login_name_is_recorded_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    assert login_name() == "ada"

    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", unknown)
    assert login_name() == str(os.getuid())


def test_everything_lies_below_the_root_and_nothing_is_made_by_asking(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    places = [home.vaults, home.inflight, home.logs, home.ports, home.crashes, home.tree("d"), home.workspace("d")]
    assert all(place.is_relative_to(home.root) for place in places)
    assert len(set(places)) == len(places)
    assert not home.root.exists()


def test_the_home_is_where_the_environment_says_else_where_the_platform_keeps_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_HOME", "below")
    assert Home.find().root == tmp_path / "below"
    monkeypatch.delenv("PERDURE_HOME")
    assert Home.find().root.name == "perdure"


def test_of_two_first_workers_both_end_with_one_name(home: Home) -> None:
    with python(NAME, home.root) as first, python(NAME, home.root) as second:
        for process in (first, second):
            assert line(process) == "ready"
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        names = {line(first), line(second), home.host_id()}
    assert len(names) == 1
    assert re.fullmatch(r"perdure-[0-9a-f]{12}", home.queue())


def test_a_clone_of_the_machine_gets_a_name_of_its_own(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = tmp_path / "machine-id"
    monkeypatch.setattr(homes, "_MACHINE_ID", machine)
    machine.write_text("one\n")
    first = home.host_id()
    assert home.host_id() == first
    machine.write_text("two\n")
    second = home.host_id()
    assert second != first
    assert home.host_id() == second


def test_a_host_that_has_no_machine_id_keeps_its_name(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A container's host name changes with every start; its home does not."""
    monkeypatch.setattr(homes, "_MACHINE_ID", tmp_path / "missing")
    first = home.host_id()
    assert home.host_id() == first
    (tmp_path / "empty").touch()
    monkeypatch.setattr(homes, "_MACHINE_ID", tmp_path / "empty")
    assert home.host_id() == first


def test_an_emptied_file_is_written_again(home: Home) -> None:
    home.host_id()
    (home.root / "host-id").write_text("")
    name = home.host_id()
    assert name
    assert home.host_id() == name
