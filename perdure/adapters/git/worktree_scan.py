"""Facts of a worktree that git does not store (modes, empty directories) or stumbles over (special files, nested
repositories): found by walking over it, stored beside a checkpoint's tree, and restored or removed. `git.checkpoint`
and the pool of checkouts use it."""

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

from perdure.adapters.system.directories import remove_path
from perdure.adapters.system.threads import tree_walk_lock

_USUAL_FILE, _USUAL_EXECUTABLE, _USUAL_DIRECTORY = 0o644, 0o755, 0o755
_BITS = 0o777  # never set-uid, set-gid or sticky: a checkpoint must not hand those out on another host
_IGNORABLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_DOT_GIT = re.compile(r"(?i)(\.git|git~1)[ .]*(:.*)?", re.DOTALL)
_DOT_GITMODULES = re.compile(r"(?i)(\.gitmodules|gitmod~\d)[ .]*(:.*)?", re.DOTALL)


@dataclass(frozen=True)
class Sidecar:
    """The modes and empty directories that a checkpoint stores beside its tree.

    modes  by relative path, where they are not what git checks out
    empty  directories without any entry
    """

    modes: dict[str, int] = field(default_factory=dict)
    empty: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """Return it as JSON. Names that are not UTF-8 come back as they were (surrogate escapes, written in ASCII)."""
        modes = {path: f"{mode:03o}" for path, mode in sorted(self.modes.items())}
        return json.dumps({"modes": modes, "empty": list(self.empty)}, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Sidecar:
        """Return the sidecar that `to_json` wrote."""
        stored = json.loads(data)
        return cls({path: int(mode, 8) for path, mode in stored["modes"].items()}, tuple(stored["empty"]))


@dataclass
class WorktreeScan:
    """The result of one walk over a worktree. All paths are relative to it.

    special         FIFOs, sockets and devices
    nested          `.git` entries below the root, and names that git refuses because some file system takes them for
                    one
    original_modes  of what had to be made accessible for its owner
    """

    modes: dict[str, int] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    special: list[str] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)
    original_modes: dict[str, int] = field(default_factory=dict)

    @property
    def sidecar(self) -> Sidecar:
        """Return the part of the scan that a checkpoint stores."""
        return Sidecar(self.modes, tuple(sorted(self.empty)))


@contextmanager
def readable_worktree(root: Path, hidden: Collection[str], kept: Collection[str]) -> Iterator[WorktreeScan]:
    """Yield the scan of a worktree, all of which is made readable for git while the block runs; afterwards what was
    unreadable has its old mode again.

    hidden  names that are passed over at any depth
    kept    relative paths that are passed over
    """
    scan = scan_worktree(root, hidden, kept)
    try:
        yield scan
    finally:
        for path, mode in reversed(scan.original_modes.items()):
            with contextlib.suppress(FileNotFoundError):
                os.chmod(root / path, mode)


def scan_worktree(root: Path, hidden: Collection[str], kept: Collection[str], *, files: bool = True) -> WorktreeScan:
    """Walk over a worktree and return its scan. Files and directories that their owner may not read, at which an
    ordinary user's git stops, are made readable, and stay so; the scan has their old modes.

    hidden  names that are passed over at any depth
    kept    relative paths that are passed over
    files   False: regular files are not looked at, which is most of the time it takes
    """
    with tree_walk_lock:
        return _scan(root, hidden, kept, files)


def _scan(root: Path, hidden: Collection[str], kept: Collection[str], files: bool) -> WorktreeScan:
    """Walk over a worktree and return its scan, as `scan_worktree`, whose caller holds the lock for such walks. Modes
    change where something is unreadable for its owner."""
    scan = WorktreeScan()
    waiting = [""]
    while waiting:
        directory = waiting.pop()
        count = 0
        for entry in _list_directory(root, directory, scan):
            path = f"{directory}/{entry.name}" if directory else entry.name
            if path == ".git":
                continue
            if _is_refused_name(entry):
                scan.nested.append(path)
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
                    scan.modes[path] = mode
                waiting.append(path)
            elif stat.S_ISREG(status.st_mode):
                if mode not in (_USUAL_FILE, _USUAL_EXECUTABLE):
                    scan.modes[path] = mode
                    _make_accessible(root, path, mode, stat.S_IRUSR, scan)
            elif not stat.S_ISLNK(status.st_mode):
                scan.special.append(path)
        if directory and not count:
            scan.empty.append(directory)
    return scan


def apply_sidecar(root: Path, sidecar: Sidecar, hidden: Collection[str], kept: Collection[str]) -> None:
    """Give a freshly restored worktree the modes and empty directories of its checkpoint: make those that are missing,
    remove other empty ones and what lies in those of the sidecar, and set every other unusual mode back to git's
    own."""
    expected = set(sidecar.empty)
    for path in sidecar.empty:
        (root / path).mkdir(parents=True, exist_ok=True)
    scan = scan_worktree(root, hidden, kept)
    for path in scan.empty:
        if path not in expected:
            _remove_empty(root, path, expected)
    for path in sidecar.empty:  # what lies in the empty directory of a submodule, git does not clean
        for child in (root / path).iterdir() if path not in kept else ():
            remove_path(child)
    for path in scan.modes.keys() - sidecar.modes.keys():
        target = root / path
        with contextlib.suppress(FileNotFoundError):
            os.chmod(target, _USUAL_DIRECTORY if target.is_dir() else _usual_mode(scan.modes[path]))
    for path, mode in sorted(sidecar.modes.items(), reverse=True):  # children first: a directory may close
        with contextlib.suppress(FileNotFoundError):
            os.chmod(root / path, mode)


def remove_special(root: Path, hidden: Collection[str], kept: Collection[str]) -> None:
    """Remove special files and nested repositories, which `git clean` leaves or fails at. Before that every directory
    is made writable and accessible for its owner, so that all entries can be removed."""
    os.chmod(root, _USUAL_DIRECTORY)
    scan = scan_worktree(root, hidden, kept, files=False)
    for path in scan.modes:
        target = root / path
        if target.is_dir():
            os.chmod(target, stat.S_IMODE(target.stat().st_mode) | stat.S_IRWXU)
    for path in (*scan.special, *scan.nested):
        remove_path(root / path)


def remove_touched(root: Path, since_ns: int) -> None:
    """Remove from a checkout all that was touched since then, by ctime, which nobody can set, and all that is no
    regular file or directory. Its directories get the mode that git gives them, and lose attributes that new files
    would inherit."""
    with tree_walk_lock:
        _remove_touched_files(root, since_ns)


def _remove_touched_files(root: Path, since_ns: int) -> None:
    """Remove every file that was touched at `since_ns` or later, everything that is no regular file or directory, and
    directories that git takes for a repository; set directories' modes and remove their attributes. The caller of
    `remove_touched` holds the lock for such walks."""
    waiting = [str(root)]
    while waiting:
        directory = waiting.pop()
        if stat.S_IMODE(os.stat(directory).st_mode) != _USUAL_DIRECTORY:
            os.chmod(directory, _USUAL_DIRECTORY)
        for name in _extra_attributes(directory):
            os.removexattr(directory, name)
        with os.scandir(directory) as entries:
            listed = list(entries)
        for entry in listed:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if _is_refused_name(entry):
                    remove_path(Path(entry.path))
                else:
                    waiting.append(entry.path)
            elif status.st_ctime_ns >= since_ns or not stat.S_ISREG(status.st_mode):
                os.unlink(entry.path)


def _extra_attributes(directory: str) -> list[str]:
    """Return the names of a directory's extended attributes that are a user's or an access list; none where the system
    or the disk has no such attributes."""
    if sys.platform != "linux":
        return []
    try:
        return [name for name in os.listxattr(directory) if name.startswith(("user.", "system.posix_acl_"))]
    except OSError:  # a file system without them
        return []


def _list_directory(root: Path, directory: str, scan: WorktreeScan) -> list[os.DirEntry[str]]:
    """Return the entries of a directory, which is made accessible for its owner first where it is not; the scan then
    records its old mode."""
    target = f"{root}/{directory}"  # a Path would cost a quarter of the walk
    try:
        with os.scandir(target) as entries:
            listed = list(entries)
        if listed and not os.access(target, os.X_OK):
            raise PermissionError
    except PermissionError:
        mode = stat.S_IMODE(os.stat(target).st_mode)
        _make_accessible(root, directory, mode, stat.S_IRWXU, scan)
        with os.scandir(target) as entries:
            return list(entries)
    return listed


def _is_refused_name(entry: os.DirEntry[str]) -> bool:
    """Return True where git refuses the name, because NTFS, HFS+ or a careless tool would read it as `.git`, or as
    `.gitmodules` where the entry is a link."""
    name = entry.name if entry.name.isascii() else _IGNORABLE.sub("", entry.name)
    if "git" not in name.lower():
        return False
    if any(_DOT_GIT.fullmatch(part) for part in name.split("\\")):
        return True
    return _DOT_GITMODULES.fullmatch(name) is not None and entry.is_symlink()


def _make_accessible(root: Path, path: str, mode: int, needed: int, scan: WorktreeScan) -> None:
    """Add the needed permissions to a path's mode, and record the old mode in the scan. Do nothing where it has
    them."""
    if mode & needed != needed:
        scan.original_modes[path] = mode
        os.chmod(root / path, mode | needed)


def _remove_empty(root: Path, path: str, expected: set[str]) -> None:
    """Remove an empty directory, and each parent that is empty then, up to one that is expected to be there; stop
    without an error at one that is not empty."""
    while path and path not in expected:
        try:
            os.rmdir(root / path)
        except OSError:
            return
        path = path.rpartition("/")[0]


def _usual_mode(mode: int) -> int:
    """Return the mode with which git checks out a file whose mode is this: executable or not."""
    return _USUAL_EXECUTABLE if mode & stat.S_IXUSR else _USUAL_FILE
