"""Files a tool may touch: those of the worktree, never its `.git`, nothing that leads out of it.

File tools run outside the sandbox, so this is the wall. No process of the agent that can write here lives while
one runs (background commands see the worktree read-only), so a path that was resolved stays what it is; the last
component is still opened without following links.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import stat
from collections.abc import Collection
from pathlib import Path

from perdure.models.limits import READ_FILE_BYTES

READ_ONLY_DIRECTORIES = (".venv", "node_modules")
"""Directories that setup installs, at any depth."""

_PATH_CHARS = 4096


class ToolError(Exception):
    """A mistake the model can mend: becomes a tool result with `is_error`, never an exception of the turn."""


def inside(
    worktree: Path, given: str, seen: Path | None = None, *, writing: bool = False, installed: Collection[str] = ()
) -> tuple[Path, str]:
    """(resolved path, path relative to the worktree) of what the model named; ToolError when it may not go there.

    seen       where commands see the worktree, so what an absolute path may begin with; None: where it is
    installed  what setup made: read-only to commands, so to writing here, for other deliveries may run the same files
    """
    if not given or len(given) > _PATH_CHARS or not given.isprintable():
        raise ToolError("path must be 1 to 4096 printable characters")
    root = Path(os.path.realpath(worktree))
    path = Path(os.path.realpath(root / _under((seen or worktree, root), given)))
    if not path.is_relative_to(root):
        raise ToolError(f"{given}: outside the repository; use paths relative to its root")
    relative = path.relative_to(root)
    if any(part.lower() == ".git" for part in relative.parts):
        raise ToolError(f"{given}: .git is the engine's; commits are made for you, use `git log` or `git diff` in bash")
    made = any(part in READ_ONLY_DIRECTORIES for part in relative.parts) or any(map(relative.is_relative_to, installed))
    if writing and made:
        raise ToolError(f"{given}: installed by setup and read-only")
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # may be about to be made
    except OSError as error:  # a name that is too long, a directory that nobody may enter
        raise ToolError(f"{given[:200]}: {error.strerror}") from None
    return path, relative.as_posix()


def _under(names: tuple[Path, ...], given: str) -> str:
    """An absolute path is taken as it is when it names the worktree by one of its names."""
    for name in names:
        if Path(given).is_relative_to(name):
            return os.path.relpath(given, name)
    return given


def read_bytes(path: Path, shown: str) -> bytes:
    """The bytes of a regular file of at most READ_FILE_BYTES; ToolError otherwise, with what to do instead."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                raise ToolError(f"{shown}: a directory; list it with glob")
            if not stat.S_ISREG(status.st_mode):
                raise ToolError(f"{shown}: not a regular file")
            if status.st_size > READ_FILE_BYTES:
                raise ToolError(f"{shown}: {status.st_size} bytes; look at parts of it with grep, or sed -n in bash")
            with open(fd, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(fd)
    except FileNotFoundError:
        raise ToolError(f"{shown}: no such file{_nearest(path)}") from None
    except OSError as error:
        raise ToolError(f"{shown}: {error.strerror}") from None


def write_bytes(path: Path, data: bytes, shown: str) -> None:
    """Replace or create a regular file, keeping the mode of an existing one; ToolError when that cannot be done.

    In place: what a death tears here is undone with the turn.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, flags, 0o644)
        with open(fd, "wb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ToolError(f"{shown}: not a regular file")
            file.truncate(0)
            file.write(data)
    except OSError as error:
        raise ToolError(f"{shown}: {error.strerror}") from None


def version(data: bytes) -> str:
    """Return a short hash that names a file's content between reading and editing it."""
    return hashlib.sha256(data).hexdigest()[:12]


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:8192]


def _nearest(path: Path) -> str:
    try:
        names = os.listdir(path.parent)
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name, names, n=3)
    return f"; did you mean {', '.join(near)}?" if near else ""
