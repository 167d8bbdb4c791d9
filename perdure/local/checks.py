"""Checks that this host and this PERDURE_HOME can carry an embedded server, made before anything is created. Used by
the command line, and by whatever starts the server."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from perdure.models.errors import BadInput, PerdureError
from perdure.models.limits import DISK_FREE_BYTES

_FULL_BYTES = 16 * 1024**2
_ADDRESS_BYTES = 4 * 1024**3
"""Of a disk: less is free where programs fail to write. Of address space: Go reserves about a gigabyte at its start."""

_MOUNTS = Path("/proc/mounts")

_NETWORK_TYPES = {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs"} | {
    "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "vboxsf", "vmhgfs",
}  # fmt: skip
_LOCAL_FUSE_TYPES = {"fuse.fuse-overlayfs", "fuse.mergerfs", "fuse.ntfs-3g", "fuse.lxcfs"}
"""FUSE file systems on this host's own disks; every other `fuse.*` (sshfs, rclone, s3fs) is on another host."""


def check_platform(platform: str = sys.platform) -> None:
    """Raise BadInput on Windows. Call it before anything that needs flock is imported."""
    if platform == "win32":
        raise BadInput(
            "Perdure does not run on Windows itself", fix="use WSL2: wsl --install, then install Perdure in it"
        )


def start_failure(program: str, cause: str, root: Path, *, log: Path, fix: str) -> PerdureError:
    """Return the error that says why a program of this home did not start: which disk is full, whatever the program
    says of that; else `cause`, its own last line, empty where it ended without one."""
    if place := _full_disk(root):
        return PerdureError(
            f"{program} did not start: the disk of {place} is full",
            where=str(log),
            fix="free some space, and try again",
        )
    return PerdureError(f"{program} did not start: {cause or silent_end_reason(root)}", where=str(log), fix=fix)


def _full_disk(root: Path) -> Path | None:
    """Return the home, or the directory for temporary files, where its disk has no room for bytes or for one more
    file; else None."""
    for place in (root, Path(tempfile.gettempdir())):
        disk = os.statvfs(place)
        if disk.f_bavail * disk.f_frsize < _FULL_BYTES or (disk.f_files and not disk.f_favail):
            return place
    return None


def silent_end_reason(root: Path) -> str:
    """Return why a program of this home may have ended without a word: which disk is full, or that this session allows
    little address space; that it did, where neither is so."""
    import resource  # Windows has none

    if place := _full_disk(root):
        return f"the disk of {place} is full"
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= allowed < _ADDRESS_BYTES:
        return f"this session allows {allowed // 1024**2} MB of address space (ulimit -v), and it takes more"
    return "it ended without a word"


def check_home(root: Path) -> None:
    """Check that `root` is a writable directory on a local disk with 1 GiB free; create it, for its owner only, if
    missing.

    Raises BadInput, before anything is created, when it is on a network file system or the disk is too full, and when
    it cannot be created or no file can be made in it.
    """
    nearest_existing = root
    while not nearest_existing.exists() and nearest_existing != nearest_existing.parent:
        nearest_existing = nearest_existing.parent
    network_type = network_filesystem_type(nearest_existing.resolve(), _read_mounts())
    if network_type:
        raise BadInput(
            f"PERDURE_HOME is on a network file system ({network_type}), where databases and locks break",
            where=str(root),
            fix="set PERDURE_HOME to a directory on a local disk",
        )
    disk = shutil.disk_usage(nearest_existing)
    if disk.total and (free := disk.free) < DISK_FREE_BYTES:  # /proc has no size at all: it is not writable
        raise BadInput(
            f"only {free // 1024**2} MiB free on the disk of PERDURE_HOME; Perdure needs 1 GiB to start",
            where=str(root),
            fix="free some space, or set PERDURE_HOME to a directory on another local disk",
        )
    _check_writable(root)


def _check_writable(root: Path) -> None:
    """Create `root` for its owner only if it is missing, and raise BadInput when no file can be made in it."""
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


def network_filesystem_type(path: Path, mounts: str) -> str | None:
    """Return the type of the network file system that holds the absolute `path`; None when it is on a local disk or
    unknown.

    `mounts` has the format of /proc/mounts; of several mounts on a directory the last one is in effect. FUSE types
    count as network file systems unless they are known to be local; 9p mounted at `/` counts as local.
    """
    longest_mount, kind = Path(), ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mount_point = Path(_decode_octal_escapes(fields[1]))
        if path.is_relative_to(mount_point) and len(mount_point.parts) >= len(longest_mount.parts):
            longest_mount, kind = mount_point, fields[2]
    if kind == "9p" and longest_mount == Path("/"):
        return None  # a sandboxed container's own root; WSL shows Windows' disks as 9p below /mnt
    network = kind in _NETWORK_TYPES or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE_TYPES)
    return kind if network else None


def _decode_octal_escapes(field: str) -> str:
    """Decode the octal escapes, such as the one for a space, in a field of /proc/mounts."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _read_mounts() -> str:
    """Return the text of /proc/mounts; empty where the kernel has none (macOS), so that no file system is refused."""
    try:
        return _MOUNTS.read_text(errors="replace")
    except OSError:
        return ""
