"""Clean checkouts of commits; large ones are kept when nobody needs them any more, for the next to begin with; likewise
the files of worktrees.

Writing 30,000 files takes seconds, removing them too, and a change is tested in half a dozen checkouts. Of one that is
put away everything goes that anybody has touched since git wrote it, which its ctime tells, and what git does not
track; git then brings what is left to the next commit.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.door import Git, GitError
from perdure.adapters.git.surface import remove_touched
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.boot import boot
from perdure.adapters.system.home import Home
from perdure.adapters.system.removal import discard
from perdure.models.limits import DISK_FREE_BYTES, WORKSPACE_KEPT

LARGE = 1000
"""Tracked files from which on a checkout is kept: 30,000 take 2 s to write, so fewer than these 0.07."""

MOST = 8
"""Kept of one repository: two deliveries on two processors have as many in use while their changes are tried."""

FREE_LEAST_BYTES = 4 * DISK_FREE_BYTES
"""Of the disk: with less nothing is kept, and what is goes, long before a worker would not start."""

HALF_MOVED_S = 600.0
"""After which one that was being moved in is a dead worker's: it takes two renames."""

_LINK = (0o160000).to_bytes(4, "big")
"""The mode of a submodule's entry in an index; other bytes may look like it."""

_ENTRIES_AT = slice(8, 12)  # of an index, the number of its entries, big-endian (gitformat-index)


@dataclass(frozen=True)
class Checkouts:
    """Of one vault.

    kept   the directory of those that nobody uses
    keeps  False: none is added
    large  tracked files from which on one is
    """

    vault: Vault
    kept: Path
    keeps: bool = True
    large: int = LARGE

    @classmethod
    def of(cls, home: Home, vault: Vault, *, keeps: bool = True) -> Checkouts:
        return cls(vault, home.checkouts / vault.path.stem, keeps)

    def make(self, commit: str, into: Path, *, admin: str = "") -> None:
        """Check a commit or tree out, as a clone would have it (filters are not run), in the place of what lies there.

        `admin`: a worktree's directory in the vault, so that git works inside, where it is shown at that one's path.
        """
        into.parent.mkdir(parents=True, exist_ok=True)
        if not self._taken(commit, into):
            into.mkdir()
            with tempfile.TemporaryDirectory(prefix=".index-", dir=into.parent) as scratch:
                index = Path(scratch, "index")
                self._git(into, index).run("read-tree", "--reset", "-u", "--end-of-options", commit)
                if self.keeps and _entries(index) >= self.large:
                    _beside(into).mkdir()
                    index.rename(_beside(into) / "index")
        if admin:
            (into / ".git").write_text(f"gitdir: {admin}\n")

    def begin(self, commit: str, worktree: Path, index: Path) -> None:
        """Give a new worktree, of which there is nothing but `.git`, the files of a kept checkout, and git's index of
        them; nothing where there is none."""
        aside = _aside(worktree)
        if self._taken(commit, aside):
            shutil.copy2(worktree / ".git", aside / ".git")
            discard(worktree)
            aside.rename(worktree)
            (_beside(aside) / "index").rename(index)
        self._drop(aside)

    def hand_over(self, worktree: Path, shadow: Git, tree: str, since_ns: int) -> None:
        """Keep the files of a worktree whose delivery has ended, as they are in `tree`; small ones stay where they are.
        OSError where somebody died over this before: a git of his may still be at work there.

        shadow    git with the index that knows them, byte for byte: for repositories whose attributes change none
        since_ns  the time its files were written
        """
        if self.keeps and shadow.index is not None and _entries(shadow.index) >= self.large:
            _beside(worktree).mkdir()
            shadow.run("read-tree", "--reset", "-u", tree)
            shutil.copy2(shadow.index, _beside(worktree) / "index")
            self.put_away(worktree, since_ns)

    def tidy(self, worktree: Path) -> None:
        """Remove what a death has left beside it."""
        self._drop(_aside(worktree))
        discard(_beside(worktree))

    def put_away(self, into: Path, since_ns: int = 0) -> None:
        """Keep a checkout for another, or remove it; whatever cannot be kept or removed is left, and no error.

        since_ns  what was touched from then on is not kept; 0: since it was made
        """
        index = _beside(into) / "index"
        if self.keeps and index.exists():
            with suppress(OSError, GitError):
                self.kept.mkdir(parents=True, exist_ok=True)
                if len(list(self.kept.iterdir())) < MOST and _is_roomy(self.kept):
                    self._clean(into, index, since_ns or index.stat().st_mtime_ns)
                    (_beside(into) / "boot").write_text(boot())
                    name = uuid.uuid4().hex
                    moved = self.kept / f".{name}"
                    _beside(into).rename(moved)
                    into.rename(moved / "tree")
                    moved.rename(self.kept / name)
        self._drop(into)

    def _clean(self, into: Path, index: Path, since_ns: int) -> None:
        """Leave nothing there that git has not written, and nothing that is not as it wrote it."""
        discard(into / ".git")
        remove_touched(into, since_ns)
        git = self._git(into, index)
        if _LINK in index.read_bytes():  # to another repository: its directory may hold anything, and git leaves it
            for line in git.run("ls-files", "--stage", "-z").names:
                if line.startswith("160000 "):
                    discard(into / line.partition("\t")[2])
        git.run("clean", "-ffdxq")

    def _taken(self, commit: str, into: Path) -> bool:
        """True where one that was kept lies there now, as it has to be; else nothing does. Of several takers one gets
        it."""
        self._drop(into)
        if self._claimed(into) and self._brought(commit, into):
            return True
        self._drop(into)
        return False

    def _claimed(self, into: Path) -> bool:
        for found in self.kept.glob("[!.]*"):
            with suppress(OSError):
                found.rename(_beside(into))
                (_beside(into) / "tree").rename(into)
                return True
        return False

    def _brought(self, commit: str, into: Path) -> bool:
        try:
            if (_beside(into) / "boot").read_text() != boot():  # a power cut may have emptied files
                return False
            git = self._git(into, _beside(into) / "index")
            attributes = ("--", ":(glob)**/.gitattributes")
            if git.run("diff-index", "--cached", "--name-only", "-z", commit, *attributes).names:
                return False  # other attributes write other bytes of the same blob, which git does not look for
            git.run("read-tree", "--reset", "-u", "--end-of-options", commit)
        except (OSError, GitError):
            return False
        return True

    def _git(self, tree: Path, index: Path) -> Git:
        return Git(self.vault.path, tree, self.vault.path, index)

    def _drop(self, into: Path) -> None:
        discard(into)
        discard(_beside(into))


def sweep(home: Home, older_than_s: float = WORKSPACE_KEPT.total_seconds()) -> None:
    """Remove what was kept and not used for so long, or all of it where the disk is nearly full, and what a death has
    left half moved."""
    if home.checkouts.exists() and not _is_roomy(home.checkouts):
        older_than_s = 0.0
    for path in home.checkouts.glob("*/*"):
        with suppress(FileNotFoundError):
            unused_s = time.time() - path.stat().st_mtime
            if unused_s >= (HALF_MOVED_S if path.name.startswith(".") else older_than_s):
                gone = path.with_name(f".{uuid.uuid4().hex}")
                path.rename(gone)
                discard(gone)


def _is_roomy(path: Path) -> bool:
    return shutil.disk_usage(path).free >= FREE_LEAST_BYTES


def _beside(into: Path) -> Path:
    """The directory of a checkout's index, and of the whole of it while it moves. No delivery has such a name."""
    return into.with_name(f".{into.name}.kept")


def _aside(worktree: Path) -> Path:
    return worktree.with_name(f".{worktree.name}.new")


def _entries(index: Path) -> int:
    with index.open("rb") as data:
        return int.from_bytes(data.read(_ENTRIES_AT.stop)[_ENTRIES_AT])
