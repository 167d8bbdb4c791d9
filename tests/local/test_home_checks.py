"""Homes that cannot be used: each refused with a way out, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.local import checks
from perdure.local.checks import check_home, check_platform, network_filesystem_type
from perdure.models.errors import BadInput

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
