"""Directories of many files, put somewhere else without writing their bytes again where the file system allows it."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

_CLONE = 0x40049409  # FICLONE: another name for the same blocks, until one side is written
_NO_LINK = {errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP}
_NO_CLONE = {errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOTTY, errno.EPERM, errno.EBADF}


class Copied(NamedTuple):
    """One entry of a directory; `digest` is a file's BLAKE2b and a link's target, `mtime` in ns (0: does not count)."""

    path: str
    kind: Literal["d", "f", "l"]
    mode: int
    size: int
    mtime: int
    digest: str


class NotPlain(Exception):
    """There is something that is neither a directory, a file nor a symbolic link."""


def listing(root: Path, names: Iterable[str], without: frozenset[str], *, digests: bool = True) -> Iterator[Copied]:
    """Yield what lies at these relative paths and below, parents before children; those in `without` left out.

    Without `digests` no file is read.
    """
    waiting = sorted(names, reverse=True)
    while waiting:
        path = waiting.pop()
        if path in without:
            continue
        full = os.path.join(root, path)
        status = os.lstat(full)
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            yield Copied(path, "d", mode, 0, 0, "")
            waiting += sorted((f"{path}/{name}" for name in os.listdir(full)), reverse=True)
        elif stat.S_ISLNK(status.st_mode):
            yield Copied(path, "l", 0, 0, 0, os.readlink(full))
        elif stat.S_ISREG(status.st_mode):
            yield Copied(path, "f", mode, status.st_size, status.st_mtime_ns, _digest(full) if digests else "")
        else:
            raise NotPlain(path)


def differs(root: Path, kept: Iterable[Copied], *, bytes_too: bool) -> str:
    """The first path that is not what it was, '' when all are. Without `bytes_too` size, mode and time tell."""
    for one in kept:
        full = f"{root}/{one.path}"
        try:
            status = os.lstat(full)
            if one.kind == "l":
                same = stat.S_ISLNK(status.st_mode) and os.readlink(full) == one.digest
            elif one.kind == "d":
                same = stat.S_ISDIR(status.st_mode)
            else:
                now = (stat.S_IMODE(status.st_mode), status.st_size, status.st_mtime_ns)
                same = stat.S_ISREG(status.st_mode) and now == (one.mode, one.size, one.mtime)
                same = same and (not bytes_too or _digest(full) == one.digest)
        except OSError:
            same = False
        if not same:
            return one.path
    return ""


def put(source: Path, target: Path, kept: Iterable[Copied], linked: Container[str]) -> None:
    """Make the same entries in `target`, whose directories above them are there.

    A file below one of the `linked` top-level names is the same file under a second name: nobody may ever write to it.
    Others share their blocks where the file system can do that, and are copied where it cannot.
    """
    closed: list[tuple[str, int]] = []
    for one in kept:
        old, new = f"{source}/{one.path}", f"{target}/{one.path}"
        if one.kind == "d":
            os.makedirs(os.path.dirname(new), exist_ok=True)
            os.mkdir(new)
            closed.append((new, one.mode))
        elif one.kind == "l":
            os.makedirs(os.path.dirname(new), exist_ok=True)
            os.symlink(one.digest, new)
        elif not (one.path.partition("/")[0] in linked and _linked(old, new)):
            os.makedirs(os.path.dirname(new), exist_ok=True)
            _copied(old, new, one)
    for path, mode in reversed(closed):  # children first: a directory may close
        os.chmod(path, mode)


def _linked(old: str, new: str) -> bool:
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


def _copied(old: str, new: str, one: Copied) -> None:
    with open(old, "rb") as source, open(new, "xb") as target:
        try:
            fcntl.ioctl(target, _CLONE, source.fileno())
        except OSError as error:
            if error.errno not in _NO_CLONE:
                raise
            shutil.copyfileobj(source, target, 1 << 20)
        os.fchmod(target.fileno(), one.mode)
    os.utime(new, ns=(one.mtime, one.mtime))  # Python believes compiled files by their source's time


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()
