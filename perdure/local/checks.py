"""Checks that this host and this PERDURE_HOME can carry an embedded server, before anything is created."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from perdure.models.errors import BadInput
from perdure.models.limits import DISK_FREE_BYTES

_MOUNTS = Path("/proc/mounts")

_NETWORK = {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs"} | {
    "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "vboxsf", "vmhgfs",
}  # fmt: skip
_LOCAL_FUSE = {"fuse.fuse-overlayfs", "fuse.mergerfs", "fuse.ntfs-3g", "fuse.lxcfs"}
"""FUSE file systems on this host's own disks; every other `fuse.*` (sshfs, rclone, s3fs) is somewhere else."""


def check_platform(platform: str = sys.platform) -> None:
    """Raises BadInput on Windows. To be called before anything that needs flock is imported."""
    if platform == "win32":
        raise BadInput(
            "Perdure does not run on Windows itself", fix="use WSL2: wsl --install, then install Perdure in it"
        )


def check_home(root: Path) -> None:
    """Make sure that `root` is a writable directory on a local disk with room; creates it, for its owner only.

    Raises BadInput and leaves nothing behind.
    """
    existing = root
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    kind = network_filesystem(existing.resolve(), _mounts())
    if kind:
        raise BadInput(
            f"PERDURE_HOME is on a network file system ({kind}), where databases and locks break",
            where=str(root),
            fix="set PERDURE_HOME to a directory on a local disk",
        )
    disk = shutil.disk_usage(existing)
    if disk.total and (free := disk.free) < DISK_FREE_BYTES:  # /proc has no size at all: it is not writable
        raise BadInput(
            f"only {free // 1024**2} MiB free on the disk of PERDURE_HOME; Perdure needs 1 GiB to start",
            where=str(root),
            fix="free some space, or set PERDURE_HOME to a directory on another local disk",
        )
    _check_writable(root)


def _check_writable(root: Path) -> None:
    from perdure.adapters.system.home import Home  # needs flock, which Windows does not have

    try:
        Home(root).make_private()
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise BadInput(
            f"PERDURE_HOME is not writable: {error.strerror}",
            where=str(root),
            fix="set PERDURE_HOME to a directory of your own on a local disk",
        ) from None


def network_filesystem(path: Path, mounts: str) -> str | None:
    """The type of the network file system that holds the absolute `path`, None on a local one.

    `mounts` has the format of /proc/mounts; the last mount on a directory is the one in effect.
    """
    best, kind = Path(), ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        at = Path(_unescaped(fields[1]))
        if path.is_relative_to(at) and len(at.parts) >= len(best.parts):
            best, kind = at, fields[2]
    if kind == "9p" and best == Path("/"):
        return None  # a sandboxed container's own root; WSL shows Windows' disks as 9p below /mnt
    network = kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)
    return kind if network else None


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def _mounts() -> str:
    """Empty where the kernel does not say (macOS): then nothing is refused."""
    try:
        return _MOUNTS.read_text(errors="replace")
    except OSError:
        return ""
