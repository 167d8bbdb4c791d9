"""`[setup] copy`: files that git ignores, from the submitter's checkout into the worktree, along no link."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from perdure.adapters.git.visit import visiting
from perdure.models.errors import SetupFailed

_INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def copy_files(checkout: Path, tree: Path, names: Sequence[str]) -> None:
    """Modes are kept, but for set-user-id and its like.

    SetupFailed for a name that is absolute, has `..`, is git's own, is no regular file, is not ignored by git in the
    checkout, or has a symbolic link on its way on either side. Nothing is copied unless all of them can be. Each is
    opened directory by directory: a link that somebody makes meanwhile is not followed either.
    """
    if not names:  # then there may be no checkout either
        return
    for name in names:
        _check_name(name)
        with _opened(checkout, name), _directory(tree, name):
            pass
    asked = b"".join(os.fsencode(name) + b"\0" for name in names)
    ignored = visiting(checkout).run("check-ignore", "-z", "--stdin", stdin=asked, ok=(0, 1)).names
    for name in names:
        if name not in ignored:
            raise _refused(name, "is not ignored by git there: what is committed comes with the base branch")
    for name in names:
        with _opened(checkout, name) as source, _directory(tree, name, make=True) as directory:
            _write(source, directory, Path(name).name)


@contextmanager
def _opened(checkout: Path, name: str) -> Iterator[int]:
    """The file, for reading."""
    with _walked(checkout, name, make=False) as directory:
        if directory is None:
            raise _refused(name, f"does not exist in {checkout}")
        try:
            # Not blocking: opening a pipe would wait for somebody who writes into it.
            file = os.open(
                Path(name).name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
            )
        except OSError as error:
            raise _refused(name, _why(error, f"does not exist in {checkout}")) from None
    try:
        if not stat.S_ISREG(mode := os.fstat(file).st_mode):
            raise _refused(name, "is a directory" if stat.S_ISDIR(mode) else "is no file")
        yield file
    finally:
        os.close(file)


@contextmanager
def _directory(tree: Path, name: str, *, make: bool = False) -> Iterator[int | None]:
    """Open the copy's directory; None when it is not there and not to be made. Refuses a link in its place."""
    with _walked(tree, name, make=make) as directory:
        if directory is not None:
            with suppress(FileNotFoundError):
                there = os.stat(Path(name).name, dir_fd=directory, follow_symlinks=False)
                if not stat.S_ISREG(there.st_mode):
                    raise _refused(name, "is, or lies behind, a symbolic link or a directory in the repository")
        yield directory


@contextmanager
def _walked(root: Path, name: str, *, make: bool) -> Iterator[int | None]:
    """The directory of a name below `root`, None when it does not exist; `make`: it is made."""
    at: int | None = os.open(root, _INTO & ~os.O_NOFOLLOW)
    try:
        for part in Path(name).parent.parts:
            assert at is not None
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=at)
            try:
                below: int | None = os.open(part, _INTO, dir_fd=at)
            except FileNotFoundError:
                below = None
            except OSError as error:
                raise _refused(name, _why(error, "cannot be reached")) from None
            os.close(at)
            at = below
            if at is None:
                break
        yield at
    finally:
        if at is not None:
            os.close(at)


def _write(source: int, directory: int | None, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
    kept = os.fstat(source)
    made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    with open(made, "wb") as target, open(source, "rb", closefd=False) as file:
        shutil.copyfileobj(file, target)
        os.fchmod(target.fileno(), kept.st_mode & 0o777)
        target.flush()
        os.utime(target.fileno(), ns=(kept.st_atime_ns, kept.st_mtime_ns))


def _check_name(name: str) -> None:
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise _refused(name, "is not a path inside the repository")
    if any(part.lower() == ".git" for part in path.parts):
        raise _refused(name, "belongs to git")


def _why(error: OSError, otherwise: str) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):  # a link where a directory was expected is "not a directory"
        return "is, or lies behind, a symbolic link"
    return "is no file" if error.errno == errno.ENXIO else otherwise


def _refused(name: str, why: str) -> SetupFailed:
    return SetupFailed(
        f"{name!r} cannot be copied: it {why}", where="[setup] copy", fix="correct the list in perdure.toml"
    )
