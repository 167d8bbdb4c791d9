"""A bare repository as data: refs moved by compare-and-swap, and questions about its history."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from perdure.adapters.git.door import Git, GitError
from perdure.adapters.git.loose import Loose, is_full
from perdure.adapters.system.crash import crash_point
from perdure.models.crash import CrashPoint
from perdure.models.errors import BadInput, PerdureError

T = TypeVar("T")

ABSENT = "0" * 40
REMEMBERED = 64
"""Answers about objects by their full names that a process keeps: they never change, and several steps ask."""

_PLAIN_REF = re.compile(r"refs/heads(/\w[\w-]*)+", re.ASCII)
_DIFF = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-renames")


class RefMoved(PerdureError):
    """A compare-and-swap lost: the ref is not where the mover believed. `actual` is None when it does not exist."""

    def __init__(self, ref: str, expected: str | None, actual: str | None) -> None:
        self.ref, self.expected, self.actual = ref, expected, actual
        super().__init__(f"{ref} is at {actual or 'nothing'}, not at {expected or 'nothing'}")


class RefLocked(PerdureError):
    """A `.lock` file is in the way: of a writer at work, or left behind by one that died."""

    def __init__(self, ref: str, lock: Path) -> None:
        self.ref, self.lock = ref, lock
        super().__init__(f"{ref} is locked", where=str(lock))


def show(git: Git, commit: str, path: str, most: int | None = None) -> bytes | None:
    """A file as `commit` has it, None when it has none there. BadInput when it has more than `most` bytes."""
    named = f"{commit}:{path}"
    if most is not None and int(git.run("cat-file", "-s", named, ok=(0, 128)).text or 0) > most:
        what = f"not read: it is longer than {most // 1024} KiB"
        raise BadInput(what, where=path, fix="shorten it on the base branch")
    found = git.run("cat-file", "blob", named, ok=(0, 128))
    return found.stdout if found.returncode == 0 else None


def remembered(answer: functools._lru_cache_wrapper[T], repository: Repository, *names: str) -> T:
    """The kept answer about objects, where all of them have their full names; else a new one, for a ref may move."""
    return (answer if all(map(is_full, names)) else answer.__wrapped__)(repository, *names)


@functools.lru_cache(REMEMBERED)
def _diff_stat(repository: Repository, a: str, b: str) -> tuple[int, int, int]:
    listed = repository.git.run("diff", *_DIFF, "--numstat", "-z", "--end-of-options", a, b).names
    counts = [re.match(r"(\d+|-)\t(\d+|-)\t", line) for line in listed]
    numbers = [[0 if n == "-" else int(n) for n in found.groups()] for found in counts if found]
    return len(listed), sum(n[0] for n in numbers), sum(n[1] for n in numbers)


@dataclass(frozen=True)
class Repository:
    """Methods take names of commits or trees (`sha`, `ref`, `sha:path`); one starting with a dash is a GitError."""

    path: Path

    @property
    def git(self) -> Git:
        return Git(git_dir=self.path)

    @property
    def loose(self) -> Loose:
        return Loose(self.path)

    def read_ref(self, ref: str) -> str | None:
        """The object a ref points at, None when there is no such ref."""
        if (at := self.loose.ref(ref)) is not None:
            return at
        found = self.git.run("rev-parse", "--verify", "--quiet", "--end-of-options", ref, ok=(0, 1))
        return found.text.splitlines()[-1] if found.returncode == 0 else None

    def refs(self, prefix: str) -> dict[str, str]:
        """All refs below `prefix` with what they point at."""
        listed = self.git.text("for-each-ref", "--format=%(refname) %(objectname)", prefix)
        return dict(line.split(" ", 1) for line in listed.splitlines())

    def move_ref(self, ref: str, new: str, old: str | None) -> None:
        """Point `ref` at `new` if it is at `old` (None: does not exist yet). Repeating a move that worked is fine.

        Raises RefMoved for a lost race, RefLocked when a lock file is in the way.
        """
        self._maybe_die_inside(ref)
        try:
            self.git.run("update-ref", ref, new, old or ABSENT)
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
        self.git.run("update-ref", "-d", ref)

    def remove_stale_locks(self, ref: str) -> bool:
        """Unlink a dead writer's `<ref>.lock`; only for a caller who has proved the writer dead (holes.md H14)."""
        try:
            self._lock_file(ref).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _lock_file(self, ref: str) -> Path:
        return self.path / f"{ref}.lock"

    def _maybe_die_inside(self, ref: str) -> None:
        # A git that loses its power here leaves its lock behind; SIGKILL of this process alone would not show that.
        if not os.environ.get("PERDURE_CRASH_AT"):
            return
        lock = self._lock_file(ref)
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch(exist_ok=False)
        crash_point(CrashPoint.INSIDE_REF_UPDATE)
        lock.unlink()

    def has(self, commit: str) -> bool:
        """True where a commit is here."""
        return self.loose.content("commit", commit) is not None or self._answers(
            "cat-file", "-e", f"{commit}^{{commit}}"
        )

    def is_ancestor(self, older: str, newer: str) -> bool:
        """True where `newer` contains `older`; a commit is its own ancestor."""
        return self._answers("merge-base", "--is-ancestor", older, newer)

    def _answers(self, *args: str) -> bool:
        return self.git.run(*args, ok=(0, 1, 128)).returncode == 0

    def first_parent_child(self, ancestor: str, tip: str) -> str | None:
        """The commit on `tip`'s first-parent path whose first parent is `ancestor`; None when there is none (H12)."""
        walk = self.git.text("rev-list", "--first-parent", "--parents", "--end-of-options", tip, f"^{ancestor}")
        for line in walk.splitlines():
            child, *parents = line.split()
            if parents and parents[0] == ancestor:
                return child
        return None

    def tree_of(self, commit: str) -> str:
        """The tree of a commit (or of `commit:path`)."""
        if (found := self.loose.named(commit) if ":" in commit else self.loose.tree_of(commit)) is not None:
            return found
        suffix = "" if ":" in commit else "^{tree}"
        return self.git.text("rev-parse", "--verify", "--end-of-options", commit + suffix).splitlines()[-1]

    def diff(self, a: str, b: str) -> str:
        """The change from `a` to `b` as a unified diff; bytes that are not UTF-8 are replaced."""
        changed = self.git.run("diff", *_DIFF, "--end-of-options", a, b)
        return changed.stdout.decode(errors="replace")

    def diff_stat(self, a: str, b: str) -> tuple[int, int, int]:
        """(files, lines added, lines deleted); a binary file counts as a file without lines."""
        return remembered(_diff_stat, self, a, b)

    def is_ref_name(self, ref: str) -> bool:
        """True where git lets a ref be called so."""
        return bool(_PLAIN_REF.fullmatch(ref)) or self.git.run("check-ref-format", ref, ok=(0, 1)).returncode == 0

    def merge_base(self, base: str, head: str) -> str:
        """The commit at which `head` left `base`, as pull requests compare. `base` itself where they share nothing."""
        if self.loose.contains(head, base):
            return base
        found = self.git.run("merge-base", "--end-of-options", base, head, ok=(0, 1))
        return found.text if found.returncode == 0 and found.text else base

    def show(self, commit: str, path: str, most: int | None = None) -> bytes | None:
        """A file as `commit` has it, None when it has none there. BadInput when it has more than `most` bytes."""
        sha = self.loose.named(f"{commit}:{path}")
        fits = sha and (most is None or ((size := self.loose.size(sha)) is not None and size <= most))
        data = self.loose.content("blob", sha) if sha and fits else None
        return data if data is not None else show(self.git, commit, path, most)

    def listed(self, commit: str, folder: str) -> list[str]:
        """Paths of what lies in a folder as `commit` has it; none where it has no such folder."""
        return self.git.run("ls-tree", "-z", "--name-only", "--end-of-options", commit, f"{folder}/").names

    def files(self, tree: str) -> Iterator[tuple[str, str, str]]:
        """(path, mode, object) of every file, link and submodule of a commit or tree, in git's order."""
        for line in self.git.run("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", tree).names:
            about, _, path = line.partition("\t")
            mode, _, sha = about.split()
            yield path, mode, sha

    def broken(self, tip: str) -> str:
        """Say what is missing below a commit, in git's words; empty when everything it needs is here (H13).

        What the remote's branches already hold was checked when it was fetched.
        """
        walk = ("rev-list", "--objects", "--quiet", "--not", "--glob=refs/remotes/*", "--not", "--end-of-options", tip)
        checked = self.git.run(*walk, ok=(0, 1, 128))
        return "" if checked.returncode == 0 else checked.stderr.strip() or "unreadable"

    def newest_whole(self, tip: str) -> str | None:
        """The newest commit on `tip`'s first-parent path below which nothing is missing, None when there is none."""
        walk = self.git.run("rev-list", "--first-parent", "--end-of-options", tip, ok=(0, 128))
        return next((commit for commit in walk.text.splitlines() if not self.broken(commit)), None)
