"""Directories of many files: listed with digests and compared with such a list; copied without writing their bytes
again where the file system allows it; and removed however deep they are and whatever their modes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

_CLONE = 0x40049409  # FICLONE: another name for the same blocks, until one side is written
_NO_LINK = {errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP}
_NO_CLONE = {errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOTTY, errno.EPERM, errno.EBADF}


class DirectoryEntry(NamedTuple):
    """An entry of a directory tree that is copied.

    path    relative to the root
    kind    d: directory, f: file, l: symbolic link
    mtime   of a file, in ns; 0: does not count
    digest  BLAKE2b of a file, empty where it was not read; the target of a link
    """

    path: str
    kind: Literal["d", "f", "l"]
    mode: int
    size: int
    mtime: int
    digest: str


class UnsupportedFileType(Exception):
    """There is something that is neither a directory, a file nor a symbolic link. The argument is its path."""


def list_entries(
    root: Path, names: Iterable[str], excluded: frozenset[str], *, digests: bool = True
) -> Iterator[DirectoryEntry]:
    """Yield an entry for each of these relative paths and everything below, parents before children.

    excluded  paths that are left out, with everything below
    digests   False: no file is read

    Raises UnsupportedFileType for anything but directories, files and links, and OSError where a path does not exist.
    """
    to_visit = sorted(names, reverse=True)
    while to_visit:
        path = to_visit.pop()
        if path in excluded:
            continue
        full = os.path.join(root, path)
        status = os.lstat(full)
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            yield DirectoryEntry(path, "d", mode, 0, 0, "")
            to_visit += sorted((f"{path}/{name}" for name in os.listdir(full)), reverse=True)
        elif stat.S_ISLNK(status.st_mode):
            yield DirectoryEntry(path, "l", 0, 0, 0, os.readlink(full))
        elif stat.S_ISREG(status.st_mode):
            yield DirectoryEntry(path, "f", mode, status.st_size, status.st_mtime_ns, _digest(full) if digests else "")
        else:
            raise UnsupportedFileType(path)


def first_difference(root: Path, entries: Iterable[DirectoryEntry], *, bytes_too: bool) -> str:
    """Return the first path below `root` that is not as its entry says; empty: all are.

    bytes_too  files are read and their digests compared; False: their size, mode and time tell
    """
    for entry in entries:
        full = f"{root}/{entry.path}"
        try:
            status = os.lstat(full)
            if entry.kind == "l":
                is_same = stat.S_ISLNK(status.st_mode) and os.readlink(full) == entry.digest
            elif entry.kind == "d":
                is_same = stat.S_ISDIR(status.st_mode)
            else:
                now = (stat.S_IMODE(status.st_mode), status.st_size, status.st_mtime_ns)
                is_same = stat.S_ISREG(status.st_mode) and now == (entry.mode, entry.size, entry.mtime)
                is_same = is_same and (not bytes_too or _digest(full) == entry.digest)
        except OSError:
            is_same = False
        if not is_same:
            return entry.path
    return ""


def copy_entries(source: Path, target: Path, entries: Iterable[DirectoryEntry], linked_names: Container[str]) -> None:
    """Copy these entries from `source` to `target`, where nothing may stand in their place.

    A file below one of the top-level names in `linked_names` is hard-linked, where the file system can: nobody may ever
    write to it. Other files share their blocks where the file system can do that, and are copied where it cannot.
    Directories above are made. Raises OSError when something cannot be copied; what was copied before stays.
    """
    directories: list[tuple[str, int]] = []
    for entry in entries:
        old, new = f"{source}/{entry.path}", f"{target}/{entry.path}"
        if entry.kind == "d":
            os.makedirs(os.path.dirname(new), exist_ok=True)
            os.mkdir(new)
            directories.append((new, entry.mode))
        elif entry.kind == "l":
            os.makedirs(os.path.dirname(new), exist_ok=True)
            os.symlink(entry.digest, new)
        elif not (entry.path.partition("/")[0] in linked_names and _link_file(old, new)):
            os.makedirs(os.path.dirname(new), exist_ok=True)
            _copy_file(old, new, entry)
    for path, mode in reversed(directories):  # Children first: a directory may be closed to writing from now on.
        os.chmod(path, mode)


def _link_file(old: str, new: str) -> bool:
    """Create a hard link `new` to the file `old`, and the directory above where that is missing, and return True.

    Returns False where the file system cannot link here. Raises OSError for any other failure, as when `new` exists.
    """
    try:
        os.link(old, new, follow_symlinks=False)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(new), exist_ok=True)
        os.link(old, new, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return False
    return True


def _copy_file(old: str, new: str, entry: DirectoryEntry) -> None:
    """Copy a file to a new one, with mode and time of its entry; share its blocks where the file system can, else copy
    its bytes. Raises OSError, as when `new` exists."""
    with open(old, "rb") as source, open(new, "xb") as target:
        try:
            fcntl.ioctl(target, _CLONE, source.fileno())
        except OSError as error:
            if error.errno not in _NO_CLONE:
                raise
            shutil.copyfileobj(source, target, 1 << 20)
        os.fchmod(target.fileno(), entry.mode)
    os.utime(new, ns=(entry.mtime, entry.mtime))  # Python believes compiled files by their source's time


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def remove_path(path: Path) -> None:
    """Remove a file or a whole directory, whose directories may be closed to their owner, and of any depth. A path that
    does not exist is fine. Raises OSError when something cannot be removed.

    It goes level by level, and moves each directory to the top before it looks into it: what a runaway program nests
    thousands deep has paths longer than the system takes, and `shutil.rmtree` ends in a RecursionError.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    to_remove, number, prefix = [str(path)], 0, f".removed-{uuid.uuid4().hex}-"
    while to_remove:
        directory = to_remove.pop()
        os.chmod(directory, stat.S_IRWXU)
        with os.scandir(directory) as scan:
            entries = list(scan)
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            number += 1
            moved_path = os.path.join(path, f"{prefix}{number}")
            os.chmod(entry.path, stat.S_IRWXU)
            os.rename(entry.path, moved_path)
            to_remove.append(moved_path)
        if directory != str(path):
            os.rmdir(directory)
    os.rmdir(path)


def discard(path: Path) -> None:
    """Remove as much of a file or directory as can be removed: OSErrors are ignored.

    For what a program of strangers leaves and nobody needs.
    """
    with contextlib.suppress(OSError):
        remove_path(path)
