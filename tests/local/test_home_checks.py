"""Homes that cannot be used: each refused with a way out, nothing left behind."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.cli.screen import text_or_stdin
from perdure.local import checks
from perdure.local.checks import check_home, check_platform, network_filesystem_type, silent_end_reason
from perdure.models.errors import BadInput
from tests.disks import small_disk

MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
tmpfs /tmp tmpfs rw 0 0
filer:/export/home /home nfs4 rw,vers=4.2 0 0
//nas/share /mnt/My\\040Share cifs rw 0 0
C:\\134 /mnt/c 9p rw,aname=drvfs 0 0
me@host:/ /home/me/remote fuse.sshfs rw 0 0
/dev/sdb1 /home/me/disk ext4 rw 0 0
overlay /var/ctr fuse.fuse-overlayfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/.local/share/perdure", "nfs4"),
        ("/mnt/My Share/perdure", "cifs"),
        ("/mnt/c/Users/me", "9p"),
        ("/home/me/remote/x", "fuse.sshfs"),
        ("/home/me/disk/perdure", None),
        ("/homework", None),
        ("/var/ctr/x", None),
        ("/tmp/x", None),
    ],
)
def test_the_innermost_mount_decides_whether_a_home_is_on_a_network(path: str, kind: str | None) -> None:
    assert network_filesystem_type(Path(path), MOUNTS) == kind


def test_a_later_mount_on_the_same_directory_covers_the_earlier_one() -> None:
    covered = MOUNTS + "tmpfs /home tmpfs rw 0 0\n"
    assert network_filesystem_type(Path("/home/me"), covered) is None


def test_a_sandboxed_container_whose_root_is_9p_is_local() -> None:
    assert network_filesystem_type(Path("/root/x"), "none / 9p rw 0 0\n") is None


def test_a_home_on_a_network_file_system_is_refused_and_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_MOUNTS", tmp_path / "mounts")
    (tmp_path / "mounts").write_text(f"filer:/x {tmp_path} nfs rw 0 0\n")
    with pytest.raises(BadInput) as error:
        check_home(tmp_path / "home")
    assert "network file system (nfs)" in error.value.what
    assert "PERDURE_HOME" in error.value.fix
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_the_place_of_the_home_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(BadInput) as error:
        check_home(tmp_path / "home" / below)
    assert "not writable" in error.value.what
    assert (tmp_path / "home").read_text() == "a file"


def test_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "DISK_FREE_BYTES", 2**70)
    with pytest.raises(BadInput, match="MiB free on the disk"):
        check_home(tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_a_new_home_is_its_owners_only_and_empty(tmp_path: Path) -> None:
    check_home(tmp_path / "a" / "home")
    assert (tmp_path / "a" / "home").stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "a" / "home").iterdir()) == []


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o711, 0o777])
def test_a_home_that_others_can_look_into_is_closed(tmp_path: Path, mode: int) -> None:
    for name in ("empty", "used"):
        (home := tmp_path / name).mkdir()
        if name == "used":
            (home / "host-id").touch()
        home.chmod(mode)
        check_home(home)
        assert home.stat().st_mode & 0o7777 == 0o700


def test_a_directory_that_is_not_ours_alone_is_refused_and_keeps_its_mode(tmp_path: Path) -> None:
    (shared := tmp_path / "shared").mkdir()
    (shared / "photos").touch()
    for mode in (0o755, 0o1777):
        shared.chmod(mode)
        with pytest.raises(BadInput, match="other people can look into") as error:
            check_home(shared)
        assert "chmod 700" in error.value.fix
        assert shared.stat().st_mode & 0o7777 == mode


def test_windows_is_told_about_wsl2() -> None:
    with pytest.raises(BadInput) as error:
        check_platform("win32")
    assert "WSL2" in error.value.fix
    check_platform("linux")
    check_platform("darwin")


def test_what_ends_without_a_word_is_told_by_what_lacks(tmp_path: Path) -> None:
    assert silent_end_reason(tmp_path) == "it ended without a word"
    with small_disk(tmp_path / "disk") as disk:
        (disk / "large").write_bytes(b"x" * 50 * 1024**2)
        assert silent_end_reason(disk) == f"the disk of {disk} is full"
    script = f"ulimit -v 600000; {sys.executable} -m perdure.cli up --detach"
    env = {**os.environ, "PERDURE_HOME": str(tmp_path / "home"), "ANTHROPIC_API_KEY": "none"}
    ended = subprocess.run(["/bin/sh", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert "585 MB of address space (ulimit -v)" in ended.stderr


@pytest.mark.story
@pytest.mark.timeout(180)
def test_a_disk_that_fills_at_any_point_of_the_start_ends_it_with_one_clear_line(tmp_path: Path) -> None:
    """The disk has room for so many files and no more: for the home's own, the server's database, the worker."""
    for files in (4, 10, 12, 16):
        with small_disk(tmp_path / f"{files}", f"size=4g,nr_inodes={files}") as disk:
            env = {**os.environ, "PERDURE_HOME": str(disk / "home"), "ANTHROPIC_API_KEY": "none"}

            def run(*command: str, env: dict[str, str] = env) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    [sys.executable, "-m", "perdure.cli", *command],
                    env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
                )  # fmt: skip

            ended = run("up", "--detach")
            subprocess.run(["mount", "-o", "remount,nr_inodes=1000", str(disk)], check=True)
            assert run("down").returncode == 0, "whatever had started is ended once there is room"
            *_, what, where, fix = ended.stderr.splitlines()
            reason = "it cannot be written: No space left.*|.* did not start: the disk of .* is full"
            assert re.fullmatch(f"error: ({reason})", what)
            assert where.startswith(f"  where: {disk}")
            assert fix.startswith("  fix: free some space")
            assert ended.returncode == 1


@pytest.mark.parametrize(("data", "end"), [(b"caf\xe9", 2), ("café".encode("utf-16"), 0), ("café".encode(), 0)])
def test_a_request_from_standard_input_is_text_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, end: int
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    if end:
        with pytest.raises(BadInput, match="not UTF-8 text: line 1 has the byte 0xe9"):
            text_or_stdin("-")
    else:
        assert text_or_stdin("-") == "café"
