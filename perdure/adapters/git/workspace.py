"""The worktree of one delivery on this host: made, compared with its record, rebuilt when it differs, and removed; and
its shadow, a second git directory on the vault's objects, by which checkpoints change no byte of a file. Used by the
worker, activities and other modules of git. What checkpoints hold is in `git.checkpoint`."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from perdure.adapters.git.checkouts import CHECKOUT_NAMES, CheckoutPool, exact_tree, submodule_paths
from perdure.adapters.git.command import Git, GitError
from perdure.adapters.git.objects import is_full_hash
from perdure.adapters.git.vault import Vault
from perdure.adapters.sandbox.setup import path_without_links
from perdure.adapters.system.directories import remove_path
from perdure.adapters.system.files import boot_id, hold_timed_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.models import limits
from perdure.models.base import HistoryModel
from perdure.models.errors import Superseded, WorkspaceLost

HIDDEN = (".venv", "node_modules", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
"""Names that are in no checkpoint and no commit, at any depth, whatever the repository's .gitignore says."""

PORTS_FILE = ".ports.env"

_ATTRIBUTES = "* -text -eol -crlf -ident -filter -working-tree-encoding\n"
_EXACT = (
    *("core.fileMode=true", "core.symlinks=true", "core.ignoreCase=false", "core.precomposeUnicode=false"),
    *("core.protectNTFS=false", "core.protectHFS=false", "core.autocrlf=false", "core.untrackedCache=false"),
)
"""Settings for any name and mode that this host's file system can hold."""


def open_shadow(worktree: Workspace, exact_base: str, lock_fd: int, fresh_index: Path | None = None) -> Git:
    """Return git for the shadow, the git directory by which checkpoints are made; it is made anew where it is
    incomplete, or the host has restarted since. The caller holds the worktree's lock, `lock_fd`.

    fresh_index  an index of these very files, which git has just written them with: none of them has to be read then
    """
    path = worktree.shadow
    git = Git(path, worktree.path, path, path / "index", worktree.vault.path / "objects", settings=_EXACT)
    if not is_shadow_intact(path):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        Git(cwd=path).execute(
            "init", "--quiet", "--bare", "--template=", "--initial-branch=none", str(path), lock_fds=(lock_fd,)
        )
        (path / "info").mkdir()
        (path / "info" / "attributes").write_text(_ATTRIBUTES)
        # What the base commit tracks stays tracked, even where .gitignore names it; and files that hold its exact
        # bytes are then known to, so that a restore does not write them again.
        if fresh_index is not None:
            shutil.copy2(fresh_index, path / "index")  # keeps its time: files of the same moment are compared again
        else:
            git.execute("read-tree", exact_base, lock_fds=(lock_fd,))
            git.execute("update-index", "-q", "--refresh", ok=(0, 1), lock_fds=(lock_fd,))
        (path / "boot").write_text(boot_id())
    return git


def reset_shadow_files(git: Git, tree: str, lock_fd: int) -> None:
    """Set the tracked files, and git's index, to those of a tree; what is not tracked stays. When git fails, as at an
    index that a power cut has emptied, the index is made anew and it is tried once more; then GitError is raised."""
    try:
        git.execute("read-tree", "--reset", "-u", tree, lock_fds=(lock_fd,))
    except GitError:  # an index that a power cut has emptied
        assert git.index is not None
        git.index.unlink(missing_ok=True)
        git.execute("read-tree", "--reset", "-u", tree, lock_fds=(lock_fd,))


def is_shadow_intact(path: Path) -> bool:
    """Return True where what a shadow believes about files can hold: it was made completely, and the host has not
    restarted since."""
    try:
        return (path / "index").exists() and (path / "boot").read_text() == boot_id()
    except FileNotFoundError:
        return False


def checkpoint_pathspecs(excluded: Iterable[str]) -> list[str]:
    """Return pathspecs for everything but HIDDEN names, the ports file and the `excluded` paths, such as what setup
    made. No .gitignore of an agent overrules them."""
    names = [pattern for name in HIDDEN for pattern in (f"**/{name}", f"**/{name}/**")]
    return [
        ".",
        *(f":(exclude,glob){name}" for name in names),
        *(f":(exclude,glob){pattern}" for path in (*excluded, PORTS_FILE) for pattern in _exclude_patterns(path)),
    ]


def _exclude_patterns(path: str) -> tuple[str, str]:
    """Return the two patterns that exclude a path and what is below it. The first character is a wildcard that matches
    only itself (for a character beyond ASCII: any of its length).

    No literal will do: where .gitignore names a path that is excluded literally too, git 2.39's `add` takes that for a
    wish to add it, and refuses.
    """
    first = f"[\\{path[0]}]" if path[0].isascii() else "?" * len(os.fsencode(path[0]))
    rest = "".join(f"\\{character}" if character in "\\*?[" else character for character in path[1:])
    return first + rest, f"{first}{rest}/**"


class WorkspaceRecord(HistoryModel):
    """The record of a workspace, written when it is made.

    path           the worktree
    admin          its directory in the vault (its `.git` file names it too, but an agent might change that)
    exact_base     tree of the base commit's files as a checkout writes them, byte for byte: what a change is measured
                   from
    generation     0, or which later directory this is (`<delivery>~<n>`)
    setup_paths    relative paths that setup made: in no checkpoint, no commit, and left alone by a restore
    inode, device  of the worktree: another directory at the same path is not this workspace
    made_ns        the time its files were written, by the clock of their disk
    reusable       another delivery may begin with its files when this one has ended
    """

    delivery: str
    vault: str
    path: str
    admin: str
    base_sha: str
    exact_base: str
    inode: int
    device: int
    created_at: datetime
    generation: int = 0
    setup_done: bool = False
    setup_paths: tuple[str, ...] = ()
    ended_at: datetime | None = None
    made_ns: int = 0
    reusable: bool = False


def read_record(path: Path) -> WorkspaceRecord:
    """Read a workspace's record from its file. Raises WorkspaceLost when it is missing or unreadable."""
    try:
        return WorkspaceRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise WorkspaceLost("this host has no readable record of the workspace", where=str(path)) from error


@dataclass(frozen=True)
class Workspace:
    """The worktree of one delivery on this host, at `path`, with its record and git's files about it in the home."""

    delivery: str
    path: Path
    vault: Vault
    home: Home

    @classmethod
    def create(cls, home: Home, vault: Vault, delivery: str, base_sha: str, *, generation: int = 0) -> Workspace:
        """Make the worktree at `base_sha`, write its record and return it. What lies at its path from before is
        removed: only the engine makes these.

        Metadata is written under the vault's lock (`git worktree add` is not safe in parallel), files without it.
        Raises WorkspaceLost when the vault does not have the commit; Superseded when the record is of a later
        generation already, and then the worktree is removed again: whoever ended the delivery did not know of it.
        """
        if not vault.has_commit(base_sha):
            raise WorkspaceLost(f"commit {base_sha[:12]} is not in the vault", where=str(vault.path))
        path = worktree_path(home, delivery, generation)
        workspace = cls(delivery, path, vault, home)
        path.parent.mkdir(parents=True, exist_ok=True)
        with workspace.lock_worktree(), vault.lock() as lock_fd:
            _remove_worktree(vault, path, lock_fd)
            vault.git.execute(
                # Forced twice: a `worktree add` that was cut off leaves its place locked.
                *("worktree", "add", "--quiet", "--force", "--force", "--detach", "--no-checkout"),
                *("--", str(path), base_sha),
                lock_fds=(lock_fd,),
            )
        admin = Path((path / ".git").read_text().strip().removeprefix("gitdir: "))
        with workspace.lock_worktree() as lock_fd:
            shutil.rmtree(workspace.shadow, ignore_errors=True)
            CheckoutPool.for_vault(home, vault).fill_worktree(base_sha, path, admin / "index")
            workspace.git(admin).execute("reset", "--hard", "--quiet", base_sha, lock_fds=(lock_fd,))
            made_ns = (admin / "index").stat().st_mtime_ns
            exact_base = exact_tree(vault, base_sha)
            if exact_base == vault.tree_of(base_sha):
                open_shadow(workspace, exact_base, lock_fd, fresh_index=admin / "index")
        status = path.stat()
        record = WorkspaceRecord(
            delivery=delivery,
            vault=str(vault.path),
            path=str(path),
            admin=str(admin),
            base_sha=base_sha,
            exact_base=exact_base,
            inode=status.st_ino,
            device=status.st_dev,
            made_ns=made_ns,
            generation=generation,
            created_at=datetime.now(UTC),
        )
        try:  # last: without a record that names this very directory, the next attempt begins again
            workspace.write_record(record)
        except Superseded:
            with workspace.lock_worktree(), vault.lock() as lock_fd:
                _remove_worktree(vault, path, lock_fd)
            raise
        return workspace

    @classmethod
    def open(cls, home: Home, delivery: str) -> Workspace:
        """Return the workspace that a delivery's record describes, unchecked. Raises WorkspaceLost when there is no
        readable record."""
        record = read_record(home.workspace(delivery) / "record.json")
        return cls(delivery, Path(record.path), Vault.open_existing(Path(record.vault)), home)

    @classmethod
    def open_or_rebuild(
        cls, home: Home, vault: Vault, delivery: str, base_sha: str, *, generation: int = 0
    ) -> tuple[Workspace, list[str]]:
        """Return a valid workspace of this generation, and what was wrong with the one before; that list is empty when
        it was valid, or there was none.

        One that was wrong or missing is made anew at `base_sha`, and its record says `setup_done=False`: run setup,
        then restore. A valid one no longer counts as ended. Raises WorkspaceLost when the vault does not have the
        commit, Superseded when the record is of a later generation.
        """
        try:
            workspace = cls.open(home, delivery)
            record = workspace.record()
        except WorkspaceLost:
            return cls.create(home, vault, delivery, base_sha, generation=generation), []
        problems = workspace.find_problems()
        if record.generation != generation:
            problems = [f"it is generation {record.generation}, not {generation}"]
        if not problems:
            workspace.write_record(record.model_copy(update={"ended_at": None}))
            return workspace, []
        return cls.create(home, vault, delivery, base_sha, generation=generation), problems

    @property
    def private(self) -> Path:
        """Return the directory of git's own files about this very worktree. A later generation has another one, so that
        nothing is shared."""
        return self.home.workspace(self.delivery) / "git" / self.path.name

    @property
    def shadow(self) -> Path:
        """Return the git directory of checkpoints (see open_shadow)."""
        return self.private / "shadow.git"

    @contextlib.contextmanager
    def lock_worktree(self) -> Iterator[int]:
        """Hold the lock of this worktree while the block runs, so that no other git touches it, and yield the
        descriptor for `lock_fds=`. Raises LockBusy when it is not free in time.

        A restore thereby waits for the git of a killed worker, which lives some milliseconds longer than it. Whoever
        holds the lock knows that no lock file in git's directories about this worktree has a living owner: all of them
        are removed.
        """
        with hold_timed_lock(self.private / "lock") as lock_fd:
            directories = [self.private]
            with contextlib.suppress(WorkspaceLost):
                record = self.record()
                directories += [Path(record.admin)] if record.path == str(self.path) else []
            for directory, _, names in (listed for top in directories for listed in os.walk(top)):
                for name in names:
                    if name.endswith(".lock"):
                        Path(directory, name).unlink(missing_ok=True)
            yield lock_fd

    def git(self, admin: Path | None = None) -> Git:
        """Return git as the worktree itself sees it: its HEAD, its index, the repository's attributes."""
        directory = admin or Path(self.record().admin)
        settings = ("core.fsync=all",)  # this index is shown to agents, after a power cut too
        return Git(directory, self.path, self.vault.path, directory / "index", settings=settings)

    def record(self) -> WorkspaceRecord:
        """Read the workspace's record. Raises WorkspaceLost when it is missing or unreadable."""
        return read_record(self.home.workspace(self.delivery) / "record.json")

    def write_record(self, record: WorkspaceRecord) -> None:
        """Replace the record, durably. Raises Superseded when the present one is of a later generation.

        A writer that slept through a takeover would otherwise lead everybody back to the directory that it was driven
        from.
        """
        directory = self.home.workspace(self.delivery)
        with hold_timed_lock(directory / "record.lock"):
            with contextlib.suppress(WorkspaceLost):
                if self.record().generation > record.generation:
                    raise Superseded(f"{self.delivery} has moved to another directory; this attempt wrote nothing")
            write_whole(directory / "record.json", record.model_dump_json(indent=1).encode())

    def finish_setup(self, copied: Iterable[str] = (), *, reusable: bool = False) -> WorkspaceRecord:
        """Record that setup is done, and what it made: every untracked path, and the files in `copied`. Return the new
        record.

        `reusable`: another delivery may begin with the worktree's files when this one has ended. Raises WorkspaceLost
        when there is no record, Superseded when it is of a later generation.
        """
        setup_paths = tuple(sorted({*self.untracked_paths(), *(os.path.normpath(name) for name in copied)}))
        record = self.record().model_copy(update={"setup_done": True, "setup_paths": setup_paths, "reusable": reusable})
        self.write_record(record)
        return record

    def untracked_paths(self) -> tuple[str, ...]:
        """Return every path that git does not track, ignored ones too, without the ports file; for a directory that is
        untracked as a whole, or a submodule that is not empty, only itself."""
        listed = self.git().execute("ls-files", "--others", "--directory", "-z").names
        return tuple(sorted({name.rstrip("/") for name in listed} - {PORTS_FILE} | self.filled_submodules()))

    def filled_submodules(self) -> set[str]:
        """Return the paths of the base's submodules at which files are, but for one that is reached by a link."""
        places = {name: path_without_links(self.path, name) for name in self._list_submodules()}
        return {name for name, path in places.items() if path and path.is_dir() and os.listdir(path)}

    def empty_submodules(self) -> set[str]:
        """Return the paths of the base's submodules at which no file is."""
        return set(self._list_submodules()) - self.filled_submodules()

    def _list_submodules(self) -> tuple[str, ...]:
        return submodule_paths(self.vault, self.record().exact_base)

    def reset_tracked_files(self) -> None:
        """Set tracked files back to the base: what setup did to them (a rewritten lock file) is nobody's work."""
        record = self.record()
        with self.lock_worktree() as lock_fd:
            reset_shadow_files(open_shadow(self, record.exact_base, lock_fd), record.exact_base, lock_fd)

    def mark_ended(self) -> None:
        """Record that the delivery is over; `remove_old_worktrees` removes the worktree when it was kept long
        enough."""
        self.write_record(self.record().model_copy(update={"ended_at": datetime.now(UTC)}))

    def mark_active(self) -> None:
        """Record that the delivery goes on after all, so that its worktree is not removed for being old."""
        self.write_record(self.record().model_copy(update={"ended_at": None}))

    def advance_head(self, commit: str) -> None:
        """Set the worktree's own HEAD and index to a commit, without touching its files, so that `git status` and `git
        log` inside make sense. Waits for the worktree's lock. Raises GitError when the commit is missing."""
        record = self.record()
        with self.lock_worktree() as lock_fd:
            self.git(Path(record.admin)).execute("update-ref", "--no-deref", "HEAD", commit, lock_fds=(lock_fd,))
            self.git(Path(record.admin)).execute("read-tree", commit, lock_fds=(lock_fd,))

    def find_problems(self) -> list[str]:
        """Return what the record, the disk and git disagree about, as messages; empty when they agree. A missing record
        is one such problem. Nothing is changed."""
        try:
            record = self.record()
        except WorkspaceLost as error:
            return [error.what]
        return [*self._disk_problems(record), *self._git_problems(record)]

    def is_in_place(self) -> bool:
        """Return True while the directory is the one that was made; False when another one has taken its place, or it
        or its record is gone. A tool that writes a file would make an empty one there, whose checkpoint would show all
        else as deleted."""
        try:
            record, status = self.record(), self.path.lstat()
        except (OSError, WorkspaceLost):
            return False
        return (status.st_ino, status.st_dev) == (record.inode, record.device)

    def _disk_problems(self, record: WorkspaceRecord) -> list[str]:
        """Return how the worktree's directory and its `.git` file differ from the record; empty when they agree."""
        if (record.delivery, record.path, record.vault) != (self.delivery, str(self.path), str(self.vault.path)):
            return ["the record tells of another workspace"]
        if self.path.is_symlink() or not self.path.is_dir():
            return [f"{self.path} is not there"]
        status = self.path.stat()
        if (status.st_ino, status.st_dev) != (record.inode, record.device):
            return [f"{self.path} is another directory than the one that was made"]
        pointer = self.path / ".git"
        if pointer.is_symlink() or not pointer.is_file() or pointer.read_text() != f"gitdir: {record.admin}\n":
            return [f"{pointer} does not point into the vault"]
        return []

    def _git_problems(self, record: WorkspaceRecord) -> list[str]:
        """Return what the vault lacks or records otherwise about this worktree (its entry, the commit of its HEAD, the
        base commit), as messages; empty when all is well."""
        admin = Path(record.admin)
        try:
            points_back, head = ((admin / name).read_text(errors="replace").strip() for name in ("gitdir", "HEAD"))
            head = head if is_full_hash(head) else self.git(admin).text("rev-parse", "--verify", "HEAD")
            if Path(points_back) != self.path / ".git" or not self.vault.has_commit(head):
                return ["git does not know this worktree"]
        except (OSError, GitError) as error:
            return [f"git does not know this worktree: {error}"]
        return [] if self.vault.has_commit(record.base_sha) else ["the vault has lost the base commit"]

    def remove(self, *, keeps_files: bool = False) -> str:
        """Remove the worktree, with earlier generations and what git knows of it. Return the reason when that failed,
        an empty string when it worked. The record stays.

        keeps_files  its files may be put into the pool of checkouts: nobody but the caller can have been there
        """
        checkouts = CheckoutPool.for_vault(self.home, self.vault)
        try:
            if keeps_files:
                with contextlib.suppress(OSError, GitError, WorkspaceLost):
                    self._keep_files(checkouts)
            with self.lock_worktree(), self.vault.lock() as held:
                for path in {self.path, *list_worktree_places(self.home, self.delivery)}:
                    _remove_worktree(self.vault, path, held)
            shutil.rmtree(self.private.parent)
        except (OSError, GitError) as error:
            return f"{self.path} could not be removed: {error}"
        return ""

    def _keep_files(self, checkouts: CheckoutPool) -> None:
        """Move the worktree's files into the pool of checkouts, as the base commit has them; remove them where the pool
        has no room.

        Does nothing unless the record allows it, the directory is still the one that was made, no attribute changes
        bytes, and the worktree has enough files for the pool (CheckoutPool.min_files). Raises OSError, GitError or
        WorkspaceLost when it fails.
        """
        record = self.record()
        if (
            record.reusable
            and record.made_ns
            and self.is_in_place()
            and record.exact_base == self.vault.tree_of(record.base_sha)
        ):
            with self.lock_worktree() as lock_fd:
                git = open_shadow(self, record.exact_base, lock_fd)
                checkouts.keep_worktree(self.path, git, record.exact_base, record.made_ns)


def worktree_path(home: Home, delivery: str, generation: int) -> Path:
    """Return the path of a generation of a delivery's worktree."""
    tree = home.tree(delivery)
    return tree if generation == 0 else tree.with_name(f"{tree.name}~{generation}")


def list_worktree_places(home: Home, delivery: str) -> list[Path]:
    """Return all that lies in the place of a delivery's worktree or a later generation's, and what checkouts on their
    way there have left beside them."""
    tree = home.tree(delivery)
    names = [form.format(name) for name in (tree.name, f"{tree.name}~*") for form in CHECKOUT_NAMES]
    return [path for name in names for path in tree.parent.glob(name)]


def remove_unrecorded_worktrees(home: Home, delivery: str) -> str:
    """Remove a delivery's worktrees that have no readable record: their making was cut off. Return the reason when that
    failed, an empty string when it worked, or there is none."""
    try:
        for path in list_worktree_places(home, delivery):
            remove_path(path)
        for path in home.vaults.glob("*.git"):
            vault = Vault.open_existing(path)
            with vault.lock() as lock_fd:
                _prune_worktrees(vault, lock_fd)
    except (OSError, GitError, WorkspaceLost) as error:
        return f"{home.tree(delivery)} could not be removed: {error}"
    return ""


def remove_old_worktrees(home: Home, older_than: timedelta = limits.WORKSPACE_RETENTION) -> list[str]:
    """Remove the worktrees of deliveries that ended longer ago than that, and those without a record that nobody has
    touched for that long; records stay. Return messages about those that could not be removed, or whose record cannot
    be read; empty when all went well."""
    failed = []
    for path in sorted((home.root / "workspaces").glob("*/record.json")):
        try:
            record = read_record(path)
            if record.ended_at is None or datetime.now(UTC) - record.ended_at < older_than:
                continue
            workspace = Workspace.open(home, record.delivery)
        except WorkspaceLost as error:
            failed.append(f"{path}: {error.what}")
            continue
        if workspace.path.exists() or Path(record.admin).exists() or list_worktree_places(home, record.delivery):
            failed.append(workspace.remove())
    latest = (datetime.now(UTC) - older_than).timestamp()
    for path in sorted((home.root / "trees").glob("*")):
        delivery = _delivery_of_place(path)
        with contextlib.suppress(FileNotFoundError):  # that of another name was removed with it
            if not (home.workspace(delivery) / "record.json").exists() and path.lstat().st_mtime <= latest:
                failed.append(remove_unrecorded_worktrees(home, delivery))
    return [message for message in failed if message]


def _delivery_of_place(path: Path) -> str:
    """Return the delivery that a path of `list_worktree_places` is of."""
    name = path.name
    if name.startswith("."):
        name = name.lstrip(".").removesuffix(".kept").removesuffix(".new")
    return name.partition("~")[0]


def _remove_worktree(vault: Vault, path: Path, lock_fd: int) -> None:
    """Remove a worktree, also one that git does not recognise any more, and prune what git knows of it. The caller
    holds the vault's lock."""
    if path.exists() or path.is_symlink():
        vault.git.execute("worktree", "remove", "--force", "--force", "--", str(path), ok=(0, 128), lock_fds=(lock_fd,))
    remove_path(path)
    _prune_worktrees(vault, lock_fd)


def _prune_worktrees(vault: Vault, lock_fd: int) -> None:
    """Remove what git knows of worktrees that are not there any more. The caller holds the vault's lock.

    A `worktree add` that was cut off leaves its place locked, which neither removes nor prunes it. Nobody else locks
    one, and none is being added while the vault is locked.
    """
    for mark in vault.path.glob("worktrees/*/locked"):
        mark.unlink()
    if any(vault.path.glob("worktrees/*")):
        vault.git.execute("worktree", "prune", "--expire=now", lock_fds=(lock_fd,))
