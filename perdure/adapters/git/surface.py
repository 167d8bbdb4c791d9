"""Facts of a worktree that git does not store: modes, empty directories, special files, nested repositories."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from perdure.adapters.system.removal import remove
from perdure.adapters.system.threads import one_walk

_USUAL_FILE, _USUAL_EXECUTABLE, _USUAL_DIRECTORY = 0o644, 0o755, 0o755
_BITS = 0o777  # never set-uid, set-gid or sticky: a checkpoint must not hand those out on another host
_IGNORABLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_DOT_GIT = re.compile(r"(?i)(\.git|git~1)[ .]*(:.*)?", re.DOTALL)
_DOT_GITMODULES = re.compile(r"(?i)(\.gitmodules|gitmod~\d)[ .]*(:.*)?", re.DOTALL)


@dataclass(frozen=True)
class Sidecar:
    """modes: by relative path, where they are not what git checks out; empty: directories without any entry."""

    modes: dict[str, int] = field(default_factory=dict)
    empty: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """Names that are not UTF-8 come back as they were (surrogate escapes, written in ASCII)."""
        modes = {path: f"{mode:03o}" for path, mode in sorted(self.modes.items())}
        return json.dumps({"modes": modes, "empty": list(self.empty)}, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Sidecar:
        found = json.loads(data)
        return cls({path: int(mode, 8) for path, mode in found["modes"].items()}, tuple(found["empty"]))


@dataclass
class Surface:
    """One walk over a worktree. All paths are relative to it.

    special   FIFOs, sockets and devices
    nested    `.git` entries below the root, and names that git refuses because some file system takes them for one
    closed    what had to be opened for its owner, with the mode it had
    """

    modes: dict[str, int] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    special: list[str] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)
    closed: dict[str, int] = field(default_factory=dict)

    @property
    def sidecar(self) -> Sidecar:
        return Sidecar(self.modes, tuple(sorted(self.empty)))


@contextmanager
def opened(root: Path, hidden: Collection[str], kept: Collection[str]) -> Iterator[Surface]:
    """Look at a worktree while git can read all of it; afterwards unreadable things are unreadable again.

    `hidden` are names that are passed over at any depth, `kept` relative paths that are passed over.
    """
    surface = look(root, hidden, kept)
    try:
        yield surface
    finally:
        for path, mode in reversed(surface.closed.items()):
            with contextlib.suppress(FileNotFoundError):
                os.chmod(root / path, mode)


def look(root: Path, hidden: Collection[str], kept: Collection[str], *, files: bool = True) -> Surface:
    """Walk a worktree, opening what its owner may not read (an ordinary user's git stops at it).

    files  False: modes of regular files are not looked at, which is most of the time it takes
    """
    with one_walk:
        return _look(root, hidden, kept, files)


def _look(root: Path, hidden: Collection[str], kept: Collection[str], files: bool) -> Surface:
    surface = Surface()
    waiting = [""]
    while waiting:
        directory = waiting.pop()
        count = 0
        for entry in _entries(root, directory, surface):
            path = f"{directory}/{entry.name}" if directory else entry.name
            if path == ".git":
                continue
            if _refused(entry):
                surface.nested.append(path)
                continue
            count += 1
            if entry.name in hidden or path in kept:
                continue
            if not files and entry.is_file(follow_symlinks=False):
                continue
            status = entry.stat(follow_symlinks=False)
            mode = status.st_mode & _BITS
            if stat.S_ISDIR(status.st_mode):
                if mode != _USUAL_DIRECTORY:
                    surface.modes[path] = mode
                waiting.append(path)
            elif stat.S_ISREG(status.st_mode):
                if mode not in (_USUAL_FILE, _USUAL_EXECUTABLE):
                    surface.modes[path] = mode
                    _open(root, path, mode, stat.S_IRUSR, surface)
            elif not stat.S_ISLNK(status.st_mode):
                surface.special.append(path)
        if directory and not count:
            surface.empty.append(directory)
    return surface


def settle(root: Path, sidecar: Sidecar, hidden: Collection[str], kept: Collection[str]) -> None:
    """Give a freshly restored worktree the modes and empty directories of its checkpoint, and no others."""
    wanted = set(sidecar.empty)
    for path in sidecar.empty:
        (root / path).mkdir(parents=True, exist_ok=True)
    found = look(root, hidden, kept)
    for path in found.empty:
        if path not in wanted:
            _remove_empty(root, path, wanted)
    for path in sidecar.empty:  # what lies in the empty directory of a submodule, git does not clean
        for child in (root / path).iterdir():
            remove(child)
    for path in found.modes.keys() - sidecar.modes.keys():
        target = root / path
        with contextlib.suppress(FileNotFoundError):
            os.chmod(target, _USUAL_DIRECTORY if target.is_dir() else _usual(found.modes[path]))
    for path, mode in sorted(sidecar.modes.items(), reverse=True):  # children first: a directory may close
        with contextlib.suppress(FileNotFoundError):
            os.chmod(root / path, mode)


def clear_special(root: Path, hidden: Collection[str], kept: Collection[str]) -> None:
    """Remove what `git clean` leaves or stumbles over, and open every directory for removal of its entries."""
    os.chmod(root, _USUAL_DIRECTORY)
    surface = look(root, hidden, kept, files=False)
    for path in surface.modes:
        target = root / path
        if target.is_dir():
            os.chmod(target, stat.S_IMODE(target.stat().st_mode) | stat.S_IRWXU)
    for path in (*surface.special, *surface.nested):
        remove(root / path)


def remove_touched(root: Path, since_ns: int) -> None:
    """Leave of a checkout only what nobody has touched since then, by ctime, which nobody can set; its directories are
    as git makes them, with no attributes of their own that new files would get."""
    with one_walk:
        _remove_touched(root, since_ns)


def _remove_touched(root: Path, since_ns: int) -> None:
    waiting = [str(root)]
    while waiting:
        directory = waiting.pop()
        if stat.S_IMODE(os.stat(directory).st_mode) != _USUAL_DIRECTORY:
            os.chmod(directory, _USUAL_DIRECTORY)
        for name in _attributes(directory):
            os.removexattr(directory, name)
        with os.scandir(directory) as entries:
            found = list(entries)
        for entry in found:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if _refused(entry):
                    remove(Path(entry.path))
                else:
                    waiting.append(entry.path)
            elif status.st_ctime_ns >= since_ns or not stat.S_ISREG(status.st_mode):
                os.unlink(entry.path)


def _attributes(directory: str) -> list[str]:
    if sys.platform != "linux":
        return []
    try:
        return [name for name in os.listxattr(directory) if name.startswith(("user.", "system.posix_acl_"))]
    except OSError:  # a file system without them
        return []


def _entries(root: Path, directory: str, surface: Surface) -> list[os.DirEntry[str]]:
    target = f"{root}/{directory}"  # a Path would cost a quarter of the walk
    try:
        with os.scandir(target) as entries:
            found = list(entries)
        if found and not os.access(target, os.X_OK):
            raise PermissionError
    except PermissionError:
        mode = stat.S_IMODE(os.stat(target).st_mode)
        _open(root, directory, mode, stat.S_IRWXU, surface)
        with os.scandir(target) as entries:
            return list(entries)
    return found


def _refused(entry: os.DirEntry[str]) -> bool:
    """True where git refuses the name: NTFS, HFS+ or a careless tool would read it as `.git`."""
    name = entry.name if entry.name.isascii() else _IGNORABLE.sub("", entry.name)
    if "git" not in name.lower():
        return False
    if any(_DOT_GIT.fullmatch(part) for part in name.split("\\")):
        return True
    return _DOT_GITMODULES.fullmatch(name) is not None and entry.is_symlink()


def _open(root: Path, path: str, mode: int, needed: int, surface: Surface) -> None:
    if mode & needed != needed:
        surface.closed[path] = mode
        os.chmod(root / path, mode | needed)


def _remove_empty(root: Path, path: str, wanted: set[str]) -> None:
    """Remove an empty directory and the parents that it alone kept."""
    while path and path not in wanted:
        try:
            os.rmdir(root / path)
        except OSError:
            return
        path = path.rpartition("/")[0]


def _usual(mode: int) -> int:
    return _USUAL_EXECUTABLE if mode & stat.S_IXUSR else _USUAL_FILE
