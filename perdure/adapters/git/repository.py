"""A bare repository as data: refs moved by compare-and-swap, and questions about its commits, files and history,
answered from loose objects where that can be, else by git. The base of the vault, and of a local forge's repository.
Nothing here speaks to a remote; Vault adds that."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, overload

from perdure.adapters.git import refs
from perdure.adapters.git.command import Git, GitError
from perdure.adapters.git.objects import LooseObjects, is_full_hash
from perdure.adapters.system.crash import crash_point
from perdure.models.crash import CrashPoint
from perdure.models.errors import BadInput, PerdureError

T = TypeVar("T")

ABSENT = "0" * 40
CACHED_ANSWERS = 64
"""The most answers about objects by their full names that a process caches: they never change, and several steps need
them."""

CACHED_OUTPUT_BYTES, OUTPUT_BYTES = 16 * 1024**2, 1024**2
"""The most bytes that a process caches of git's outputs about objects by their full names, in all and of one command: a
change is read by its commit, its tests, its inspection, its review and its pull request."""

_outputs = OrderedDict[tuple[Git, tuple[str, ...]], bytes]()
_outputs_lock = threading.Lock()

_PLAIN_REF = re.compile(r"refs/heads(/\w[\w-]*)+", re.ASCII)


class RefMoved(PerdureError):
    """The error of a compare-and-swap that lost: the ref is not where the mover believed. `actual` is None when it does
    not exist."""

    def __init__(self, ref: str, expected: str | None, actual: str | None) -> None:
        self.ref, self.expected, self.actual = ref, expected, actual
        super().__init__(f"{ref} is at {actual or 'nothing'}, not at {expected or 'nothing'}")


class RefLocked(PerdureError):
    """The error that a ref's `.lock` file is in the way: of a writer at work, or left behind by one that died."""

    def __init__(self, ref: str, lock: Path) -> None:
        self.ref, self.lock = ref, lock
        super().__init__(f"{ref} is locked", where=str(lock))


def read_file(git: Git, commit: str, path: str, max_bytes: int | None = None) -> bytes | None:
    """Return a file's content as `commit` has it, by asking git; None when it has none there, or there is no such
    commit. Raises BadInput when it has more than `max_bytes`."""
    object_name = f"{commit}:{path}"
    size = ask_about_objects(git, "cat-file", "-s", objects=[object_name], missing_ok=True)
    if size is None:
        return None
    if max_bytes is not None and int(size) > max_bytes:
        what = f"not read: it is longer than {max_bytes // 1024} KiB"
        raise BadInput(what, where=path, fix="shorten it on the base branch")
    return ask_about_objects(git, "cat-file", "blob", objects=[object_name], missing_ok=True)


@overload
def ask_about_objects(
    git: Git, *command: str, objects: Sequence[str], paths: Sequence[str] = (), missing_ok: Literal[False] = False
) -> bytes: ...
@overload
def ask_about_objects(
    git: Git, *command: str, objects: Sequence[str], paths: Sequence[str] = (), missing_ok: bool
) -> bytes | None: ...
def ask_about_objects(
    git: Git, *command: str, objects: Sequence[str], paths: Sequence[str] = (), missing_ok: bool = False
) -> bytes | None:
    """Return the output of a git command that reads these objects and nothing else. Where all are named in full
    (`<hash>`, `<hash>:path`) it is the same for ever, and cached, but for one of more than OUTPUT_BYTES.

    paths       what the command is limited to
    missing_ok  return None where an object, or a path in it, is missing; without it GitError is raised
    """
    arguments = (*command, *objects, *(("--", *paths) if paths else ()))
    is_fixed = all(is_full_hash(name.partition(":")[0]) for name in objects)
    with _outputs_lock:
        if is_fixed and (known := _outputs.get((git, arguments))) is not None:
            _outputs.move_to_end((git, arguments))
            return known
    output = git.execute(*arguments, ok=(0, 128) if missing_ok else (0,))
    if output.returncode:
        return None
    if is_fixed and len(output.stdout) <= OUTPUT_BYTES:
        with _outputs_lock:
            _outputs[git, arguments] = output.stdout
            while sum(map(len, _outputs.values())) > CACHED_OUTPUT_BYTES:
                _outputs.popitem(last=False)
    return output.stdout


def call_cached(function: functools._lru_cache_wrapper[T], repository: Repository, *names: str) -> T:
    """Call a cached function about a repository's objects. Its cache is used only where all names are full hashes, for
    a ref may move."""
    return (function if all(map(is_full_hash, names)) else function.__wrapped__)(repository, *names)


@dataclass(frozen=True)
class Repository:
    """A bare repository. Methods take names of commits or trees (`sha`, `ref`, `sha:path`); a name that starts with a
    dash raises GitError."""

    path: Path

    @property
    def git(self) -> Git:
        return Git(git_dir=self.path)

    @property
    def loose(self) -> LooseObjects:
        return LooseObjects(self.path)

    def read_ref(self, ref: str) -> str | None:
        """Return the object that a ref points at, None when there is no such ref. Raises GitError for a name that
        starts with a dash."""
        try:
            return refs.read_ref(self.path, ref)
        except LookupError:
            output = self.git.execute("rev-parse", "--verify", "--quiet", "--end-of-options", ref, ok=(0, 1))
            return output.text.splitlines()[-1] if output.returncode == 0 else None

    def list_refs(self, folder: str) -> dict[str, str]:
        """Return all refs below a folder of refs (`refs/tags/`) with the objects they point at."""
        if (known := refs.list_refs(self.path, folder)) is not None:
            return known
        listed = self.git.text("for-each-ref", "--format=%(refname) %(objectname)", folder)
        return dict(line.split(" ", 1) for line in listed.splitlines())

    def move_ref(self, ref: str, new: str, old: str | None) -> None:
        """Set `ref` to `new` if it is at `old` (None: it does not exist yet). Repeating a move that worked does
        nothing.

        Raises RefMoved when the ref is elsewhere, RefLocked when a lock file is in the way, GitError for any other
        failure.
        """
        self._crash_inside_update(ref)
        if refs.write_ref(self.path, ref, new, old):
            return
        try:
            self.git.execute("update-ref", ref, new, old or ABSENT)
        except GitError:
            actual = self.read_ref(ref)
            if actual == new:
                return
            if actual != old:
                raise RefMoved(ref, old, actual) from None
            if self._lock_file(ref).exists():
                raise RefLocked(ref, self._lock_file(ref)) from None
            raise

    def delete_ref(self, ref: str) -> None:
        self.git.execute("update-ref", "-d", ref)

    def remove_stale_locks(self, ref: str) -> bool:
        """Remove the `<ref>.lock` of a dead writer and return True; False when there was none. Only for a caller who
        has proved the writer dead."""
        try:
            self._lock_file(ref).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _lock_file(self, ref: str) -> Path:
        return self.path / f"{ref}.lock"

    def _crash_inside_update(self, ref: str) -> None:
        """Make the ref's lock file, die at the crash point if tests have set it, else remove the file. Do nothing where
        no crash is set (PERDURE_CRASH_AT)."""
        # A git that loses its power here leaves its lock behind; SIGKILL of this process alone would not show that.
        if not os.environ.get("PERDURE_CRASH_AT"):
            return
        lock = self._lock_file(ref)
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch(exist_ok=False)
        crash_point(CrashPoint.INSIDE_REF_UPDATE)
        lock.unlink()

    def has_commit(self, commit: str) -> bool:
        """Return True where a commit is in this repository."""
        return self.loose.content("commit", commit) is not None or self._succeeds(
            "cat-file", "-e", f"{commit}^{{commit}}"
        )

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Return True where `newer` contains `older`; a commit is its own ancestor. False also where either is
        missing."""
        return self._succeeds("merge-base", "--is-ancestor", older, newer)

    def _succeeds(self, *args: str) -> bool:
        """Run a git command and return True where it ends with exit code 0."""
        return self.git.execute(*args, ok=(0, 1, 128)).returncode == 0

    def first_parent_child(self, ancestor: str, tip: str) -> str | None:
        """Return the commit on `tip`'s first-parent path whose first parent is `ancestor`; None when there is none.
        Raises GitError when either is missing."""
        walk = self.git.text("rev-list", "--first-parent", "--parents", "--end-of-options", tip, f"^{ancestor}")
        for line in walk.splitlines():
            child, *parents = line.split()
            if parents and parents[0] == ancestor:
                return child
        return None

    def tree_of(self, commit: str) -> str:
        """Return the tree of a commit, or the object that `commit:path` names. Raises GitError when it is not here."""
        if (sha := self.loose.resolve_path(commit) if ":" in commit else self.loose.tree_of(commit)) is not None:
            return sha
        suffix = "" if ":" in commit else "^{tree}"
        return self.git.text("rev-parse", "--verify", "--end-of-options", commit + suffix).splitlines()[-1]

    def diff_stat(self, a: str, b: str) -> tuple[int, int, int]:
        """Return (files, lines added, lines deleted) between two commits; a binary file counts as a file without
        lines."""
        command = (
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--ignore-submodules=none",
            "--no-renames",
            "--numstat",
            "-z",
        )
        listed = ask_about_objects(self.git, *command, "--end-of-options", objects=[a, b]).split(b"\0")[:-1]
        counts = [re.match(rb"(\d+|-)\t(\d+|-)\t", line) for line in listed]
        numbers = [[0 if n == b"-" else int(n) for n in match.groups()] for match in counts if match]
        return len(listed), sum(n[0] for n in numbers), sum(n[1] for n in numbers)

    def is_ref_name(self, ref: str) -> bool:
        """Return True where git allows this name for a ref."""
        return bool(_PLAIN_REF.fullmatch(ref)) or self.git.execute("check-ref-format", ref, ok=(0, 1)).returncode == 0

    def merge_base(self, base: str, head: str) -> str:
        """Return the commit at which `head` left `base`, as pull requests compare; `base` itself where they share
        nothing. Raises GitError when either is missing."""
        if self.loose.is_on_first_parent_path(head, base):
            return base
        output = self.git.execute("merge-base", "--end-of-options", base, head, ok=(0, 1))
        return output.text if output.returncode == 0 and output.text else base

    def read_file(self, commit: str, path: str, max_bytes: int | None = None) -> bytes | None:
        """Return a file's content as `commit` has it, from loose objects or by asking git; None when it has none there,
        or there is no such commit. Raises BadInput when it has more than `max_bytes`."""
        sha = self.loose.resolve_path(f"{commit}:{path}")
        fits = sha and (max_bytes is None or ((size := self.loose.object_size(sha)) is not None and size <= max_bytes))
        data = self.loose.content("blob", sha) if sha and fits else None
        return data if data is not None else read_file(self.git, commit, path, max_bytes)

    def list_folder(self, commit: str, folder: str) -> list[str]:
        """Return the paths of what lies directly in a folder as `commit` has it; none where it has no such folder."""
        command = ("ls-tree", "-z", "--name-only", "--end-of-options")
        listed = ask_about_objects(self.git, *command, objects=[f"{commit}:{folder}"], missing_ok=True) or b""
        return [f"{folder}/{os.fsdecode(name)}" for name in listed.split(b"\0")[:-1]]

    def list_files(self, tree: str) -> Iterator[tuple[str, str, str]]:
        """Yield (path, mode, hash) of every file, link and submodule of a commit or tree, in git's order. Raises
        GitError when it is missing."""
        listed = ask_about_objects(self.git, "ls-tree", "-r", "-z", "--full-tree", "--end-of-options", objects=[tree])
        for line in listed.split(b"\0")[:-1]:
            header, _, path = line.partition(b"\t")
            mode, _, sha = header.decode().split()
            yield os.fsdecode(path), mode, sha

    def find_damage(self, tip: str) -> str:
        """Return git's message about what is missing below a commit; empty when everything it needs is here.

        What the remote's branches already hold was checked when it was fetched, and is not checked again.
        """
        walk = ("rev-list", "--objects", "--quiet", "--not", "--glob=refs/remotes/*", "--not", "--end-of-options", tip)
        checked = self.git.execute(*walk, ok=(0, 1, 128))
        return "" if checked.returncode == 0 else checked.stderr.strip() or "unreadable"

    def newest_whole_commit(self, tip: str) -> str | None:
        """Return the newest commit on `tip`'s first-parent path below which nothing is missing, None when there is
        none."""
        walk = self.git.execute("rev-list", "--first-parent", "--end-of-options", tip, ok=(0, 128))
        return next((commit for commit in walk.text.splitlines() if not self.find_damage(commit)), None)
