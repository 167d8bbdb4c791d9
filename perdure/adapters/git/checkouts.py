"""A pool of clean checkouts of commits for one vault: it makes them, and keeps large ones, and the files of large
worktrees, for the next checkout to begin with. The worker's sessions and `git.workspace` use it. Also computes, for
checkpoints and activities, a commit's files as a checkout writes them, from its objects.

Writing 30,000 files takes seconds, removing them too, and a change is tested in half a dozen checkouts. From a checkout
that is put away everything is removed that git does not track, or that was touched after git wrote it, which its ctime
tells. Git then brings what remains to the next commit.

A kept checkout is not used after a restart of the host: a power cut can empty a file that has just been written, and
whoever then takes the files for the base ships the damage.
"""

from __future__ import annotations

import filecmp
import functools
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.command import Git, GitError
from perdure.adapters.git.filters import configured_filters, filters_digest
from perdure.adapters.git.objects import ObjectStore
from perdure.adapters.git.repository import CACHED_ANSWERS, Repository
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.worktree_scan import remove_touched
from perdure.adapters.system.directories import discard
from perdure.adapters.system.files import boot_id
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import KeyedStore, kept_results

LARGE_CHECKOUT_FILES = 1000
"""The number of tracked files from which on a checkout is kept. 30,000 take 2 s to write, so fewer than these take 0.07
s."""

CHECKOUT_NAMES = ("{}", ".{}.kept", ".{}.new", "..{}.new.kept")
"""The names of what may lie at the place of a checkout or a worktree and beside it: itself, the directory with its
index, the one that is to take its place, and the index of that."""

_GITLINK_MODE = (0o160000).to_bytes(4, "big")
"""The mode of a submodule's entry in an index. Other bytes of an index may look like it."""

_ENTRY_COUNT_SLICE = slice(8, 12)  # the number of entries in the header of an index, big-endian (gitformat-index)


@dataclass(frozen=True)
class CheckoutPool:
    """The pool of checkouts of one vault that nobody uses at the moment, and the way to make a checkout from it.

    store      where they are kept, with the vault's name as key
    keeps_new  False: none is added
    min_files  a checkout with fewer tracked files is not kept
    """

    vault: Vault
    store: KeyedStore
    keeps_new: bool = True
    min_files: int = LARGE_CHECKOUT_FILES

    @classmethod
    def for_vault(cls, home: Home, vault: Vault, *, keeps_new: bool = True) -> CheckoutPool:
        """Return the pool of a vault in this home."""
        return cls(vault, kept_results(home, "checkouts"), keeps_new)

    def check_out(self, commit: str, into: Path, *, admin: str = "") -> None:
        """Check a commit or tree out at `into`, as a clone would have it (filters are not run), replacing what lies
        there.

        Begins with a kept checkout where there is one. The index of a large checkout is stored beside it, so that
        `put_away` can keep it. `admin` is a worktree's directory in the vault, to which the checkout's `.git` file then
        points: git works inside when the checkout is shown at that worktree's path. Raises GitError when git fails.
        """
        into.parent.mkdir(parents=True, exist_ok=True)
        if not self._reuse_kept(commit, into):
            into.mkdir()
            beside = _companion_dir(into)  # which the next one removes where this process is killed
            beside.mkdir()
            self._git(into, beside / "index").execute("read-tree", "--reset", "-u", "--end-of-options", commit)
            if not self.keeps_new or _entry_count(beside / "index") < self.min_files:
                discard(beside)
        if admin:
            (into / ".git").write_text(f"gitdir: {admin}\n")

    def fill_worktree(self, commit: str, worktree: Path, index: Path) -> None:
        """Replace a new worktree that holds nothing but `.git` with the files of a kept checkout, brought to `commit`,
        and move git's index of them to `index`. Do nothing where no checkout can be used."""
        aside = _staging_path(worktree)
        if self._reuse_kept(commit, aside):
            shutil.copy2(worktree / ".git", aside / ".git")
            discard(worktree)
            aside.rename(worktree)
            (_companion_dir(aside) / "index").rename(index)
        self._remove_checkout(aside)

    def keep_worktree(self, worktree: Path, shadow: Git, tree: str, since_ns: int) -> None:
        """Put the files of a worktree whose delivery has ended into the pool, after setting them to those of `tree`. A
        worktree with fewer than `min_files` files stays where it is.

        shadow    git with the index that knows the files, byte for byte: for repositories whose attributes change none
        since_ns  the time at which the files were written

        Raises GitError when git fails; OSError where an earlier call was killed half-way, for its git may still be at
        work.
        """
        if self.keeps_new and shadow.index is not None and _entry_count(shadow.index) >= self.min_files:
            _companion_dir(worktree).mkdir()
            shadow.execute("read-tree", "--reset", "-u", tree)
            shutil.copy2(shadow.index, _companion_dir(worktree) / "index")
            self.put_away(worktree, since_ns)

    @property
    def _key(self) -> str:
        return self.vault.path.stem + filters_digest(self.vault.git)

    def put_away(self, into: Path, since_ns: int = 0) -> None:
        """Move a checkout into the pool for another one to begin with, or remove it where it is small or there is no
        room. What can be neither kept nor removed stays, without an error.

        since_ns  files touched from this time on are not kept; 0: since the checkout was made
        """
        index = _companion_dir(into) / "index"
        if self.keeps_new and index.exists():
            with suppress(OSError, GitError):
                if self.store.has_room(self._key):
                    self._remove_changes(into, index, since_ns or index.stat().st_mtime_ns)
                    with self.store.stage_entry(self._key) as kept:
                        index.rename(kept / "index")
                        (kept / "boot").write_text(boot_id())
                        into.rename(kept / "tree")
        self._remove_checkout(into)

    def _remove_changes(self, into: Path, index: Path, since_ns: int) -> None:
        """Remove from a checkout every file that git does not track and every file touched at `since_ns` or later, with
        `.git` and the directories of submodules. Raises OSError or GitError when that fails."""
        discard(into / ".git")
        remove_touched(into, since_ns)
        git = self._git(into, index)
        if _GITLINK_MODE in index.read_bytes():  # git leaves the directory of a submodule, which may hold anything
            for line in git.execute("ls-files", "--stage", "-z").names:
                if line.startswith("160000 "):
                    discard(into / line.partition("\t")[2])
        git.execute("clean", "-ffdxq")

    def _reuse_kept(self, commit: str, into: Path) -> bool:
        """Move a kept checkout to `into`, in place of what lies there, bring it to `commit` and return True. Return
        False, with nothing left at `into`, where there is none or it cannot be used. Of several takers only one gets a
        checkout."""
        self._remove_checkout(into)
        if self._claim_checkout(into) and self._bring_to_commit(commit, into):
            return True
        self._remove_checkout(into)
        return False

    def _claim_checkout(self, into: Path) -> bool:
        """Move a kept checkout, whichever it is, to `into`, and its index to the directory beside it, and return True;
        return False when none is kept, or the one that was taken is not whole."""
        if self.store.move_out(self._key, _companion_dir(into)):
            with suppress(OSError):
                (_companion_dir(into) / "tree").rename(into)
                return True
        return False

    def _bring_to_commit(self, commit: str, into: Path) -> bool:
        """Bring the files of a claimed checkout to `commit`. Return False where they cannot be trusted: the host has
        restarted since, `commit` has other .gitattributes, or git fails."""
        try:
            if (_companion_dir(into) / "boot").read_text() != boot_id():  # a power cut may have emptied files
                return False
            git = self._git(into, _companion_dir(into) / "index")
            attributes = ("--", ":(glob)**/.gitattributes")
            if git.execute("diff-index", "--cached", "--name-only", "-z", commit, *attributes).names:
                return False  # other attributes write other bytes of the same blob, which git does not look for
            git.execute("read-tree", "--reset", "-u", "--end-of-options", commit)
        except (OSError, GitError):
            return False
        return True

    def _git(self, tree: Path, index: Path) -> Git:
        """Return git for the work tree `tree` with its own index, on the vault's objects."""
        return Git(self.vault.path, tree, self.vault.path, index)

    def _remove_checkout(self, into: Path) -> None:
        """Remove a checkout and the directory beside it."""
        discard(into)
        discard(_companion_dir(into))


def _companion_dir(into: Path) -> Path:
    """Return the directory beside a checkout that holds its index and, while the checkout is moved, all of it. No
    delivery has such a name."""
    return into.with_name(f".{into.name}.kept")


def _staging_path(worktree: Path) -> Path:
    """Return the path beside a worktree where a kept checkout is prepared to take its place."""
    return worktree.with_name(f".{worktree.name}.new")


def _entry_count(index: Path) -> int:
    """Return the number of entries in an index file, from its header."""
    with index.open("rb") as data:
        return int.from_bytes(data.read(_ENTRY_COUNT_SLICE.stop)[_ENTRY_COUNT_SLICE])


_REWRITING_ATTRIBUTES = ("eol", "crlf", "ident", "working-tree-encoding", "filter")
"""Attributes that make a checkout write other bytes than the commit holds; of filters those that run in the vault."""

_UNCHANGED_VALUES = frozenset({"unspecified", "unset", "lf", "input"})
"""Values of attributes with which a checkout writes what the commit holds: line feeds are written anyway."""

_GITLINK = "160000"


@dataclass(frozen=True)
class _TreeFile:
    """A file, link or submodule of a tree."""

    mode: str
    sha: str
    path: str


def exact_tree(repository: Repository, commit: str) -> str:
    """Return the tree of the files that a checkout of `commit` writes: the commit's own tree where no attribute changes
    bytes. Otherwise it is written to the repository, by way of a checkout in a temporary directory. Raises GitError
    when the commit is missing."""
    files = _list_files(repository, commit)
    if not any(_is_attributes(file.path) for file in files):
        return repository.tree_of(commit)
    with tempfile.TemporaryDirectory(prefix="perdure-exact-") as scratch:
        tree = Path(scratch, "tree")
        tree.mkdir()
        git = Git(repository.path, tree, repository.path, Path(scratch, "index"))
        git.execute("read-tree", commit)
        values = _attribute_values(git, files)
        rewritten = [file for file in files if file.path in values]
        if not rewritten:
            return repository.tree_of(commit)
        _check_out(git, [*rewritten, *(file for file in files if _is_attributes(file.path))])
        store = ObjectStore(repository.path / "objects")
        exact = [
            _TreeFile(file.mode, store.write_blob((tree / file.path).read_bytes()), file.path) for file in rewritten
        ]
        git.execute("read-tree", commit)
        _add_to_index(git, exact)
        return git.text("write-tree")


@functools.lru_cache(CACHED_ANSWERS)
def submodule_paths(repository: Repository, tree: str) -> tuple[str, ...]:
    """Return the paths of links to other repositories (submodules) in a tree: directories that a checkout makes and
    leaves empty. Answers are cached."""
    return tuple(file.path for file in _list_files(repository, tree) if file.mode == _GITLINK)


def checkout_attributes(
    repository: Repository, tree: str, attributes: Sequence[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Return path → values of the attributes by which a checkout of this tree writes other bytes than it holds, and of
    `text`, for its regular files that have one.

    attributes  look for these as well
    """
    files = _list_files(repository, tree)
    if not any(_is_attributes(file.path) for file in files):
        return {}
    with tempfile.TemporaryDirectory(prefix="perdure-attributes-") as scratch:
        git = Git(repository.path, Path(scratch), repository.path, Path(scratch, "index"))
        git.execute("read-tree", tree)
        return _attribute_values(git, files, attributes)


def filtered_paths(repository: Repository, tree: str) -> dict[str, str]:
    """Return path → name of the filter for each regular file of a tree for which .gitattributes names one. Filters are
    programs of a clone's owner (git-lfs, git-crypt); of one that does not run in the vault (`git.filters`), a checkout
    writes what the commit holds."""
    values = {path: row[-2] for path, row in checkout_attributes(repository, tree, ("filter",)).items()}
    return {path: value for path, value in values.items() if value not in ("unspecified", "unset", "set", "")}


def cleaned_paths(repository: Repository, tree: str, paths: Collection[str]) -> set[str]:
    """Return those of these regular files that a tree holds as their filters, which run in the vault, store them: what
    a checkout makes of them gives back the same when it is added."""
    cleaned = set[str]()
    files = _list_files(repository, tree)
    attribute_files = [file for file in files if _is_attributes(file.path)]
    for file in [file for file in files if file.path in paths]:
        with tempfile.TemporaryDirectory(prefix="perdure-clean-") as scratch, suppress(GitError):
            checkout = Path(scratch, "tree")
            checkout.mkdir()
            git = Git(repository.path, checkout, repository.path, Path(scratch, "index"))
            _check_out(git, [file, *attribute_files])
            git.execute("read-tree", "--empty")
            git.execute("update-index", "--add", "-z", "--stdin", stdin=os.fsencode(file.path) + b"\0")
            if f" {file.sha} " in git.text("ls-files", "--stage"):
                cleaned.add(file.path)
    return cleaned


def differing_checkouts(repository: Repository, tree: str, other: str, paths: Collection[str]) -> dict[str, bytes]:
    """Return path → bytes that a checkout of `tree` writes, of those of these regular files, the same in both trees,
    that a checkout of `other` writes with other bytes. Only these are held in memory."""
    if not paths:
        return {}
    with tempfile.TemporaryDirectory(prefix="perdure-bytes-") as scratch:
        directories = Path(scratch, "tree"), Path(scratch, "other")
        for name, directory in zip((tree, other), directories, strict=True):
            directory.mkdir()
            git = Git(repository.path, directory, repository.path, directory.with_suffix(".index"))
            files = [file for file in _list_files(repository, name) if file.path in paths or _is_attributes(file.path)]
            _check_out(git, files)
        own, shown = directories
        differing = [path for path in paths if not filecmp.cmp(own / path, shown / path, shallow=False)]
        return {path: (own / path).read_bytes() for path in differing}


def _is_attributes(path: str) -> bool:
    """Return whether git reads attributes from this path."""
    return os.path.basename(path) == ".gitattributes"


def _list_files(repository: Repository, tree: str) -> list[_TreeFile]:
    """Return every file, link and submodule of a tree."""
    return [_TreeFile(mode, sha, path) for path, mode, sha in repository.list_files(tree)]


def _attribute_values(
    git: Git, files: Iterable[_TreeFile], attributes: Sequence[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Return path → values of _REWRITING_ATTRIBUTES, of these attributes and of `text`, by the .gitattributes in git's
    index, for each regular file that has one of them; `filter` counts as unset there where that one does not run."""
    attributes = (*_REWRITING_ATTRIBUTES, *attributes)
    paths = [file.path for file in files if file.mode.startswith("100")]
    asked = b"".join(os.fsencode(path) + b"\0" for path in paths)
    command = ("check-attr", "-z", "--stdin", "--cached", *attributes, "text")
    fields = git.execute(*command, stdin=asked).stdout.split(b"\0")  # `names` leaves out a value that is empty
    width, values = len(attributes) + 1, [os.fsdecode(value) for value in fields[2::3]]
    place, filters = _REWRITING_ATTRIBUTES.index("filter"), configured_filters(git)
    values[place::width] = [name if name in filters else "unset" for name in values[place::width]]
    by_path = {path: tuple(values[number * width : (number + 1) * width]) for number, path in enumerate(paths)}
    return {path: row for path, row in by_path.items() if not _UNCHANGED_VALUES.issuperset(row[:-1])}


def _check_out(git: Git, files: Iterable[_TreeFile]) -> None:
    """Write these files alone to the work tree, the way a checkout of all of them would. Git's index then holds only
    them."""
    git.execute("read-tree", "--empty")
    _add_to_index(git, files)
    partial_tree = git.text("write-tree")
    git.execute("read-tree", "--empty")
    git.execute("read-tree", "--reset", "-u", partial_tree)


def _add_to_index(git: Git, files: Iterable[_TreeFile]) -> None:
    """Add files to git's index by their hashes, without looking at the work tree."""
    lines = b"".join(f"{file.mode} {file.sha}\t".encode() + os.fsencode(file.path) + b"\0" for file in files)
    git.execute("update-index", "-z", "--index-info", stdin=lines)
