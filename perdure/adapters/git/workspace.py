"""The worktree of one delivery: made, checked three ways, rebuilt when it is not what its record says, removed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from perdure.adapters.git import shadow
from perdure.adapters.git.checkouts import Checkouts
from perdure.adapters.git.door import Git, GitError
from perdure.adapters.git.exact import exact_tree
from perdure.adapters.git.locks import locked
from perdure.adapters.git.loose import is_full
from perdure.adapters.git.record import WorkspaceRecord, read_record
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.files import write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.system.removal import remove
from perdure.models import limits
from perdure.models.errors import Superseded, WorkspaceLost


@dataclass(frozen=True)
class Workspace:
    delivery: str
    path: Path
    vault: Vault
    home: Home

    @classmethod
    def create(cls, home: Home, vault: Vault, delivery: str, base_sha: str, *, generation: int = 0) -> Workspace:
        """Make the worktree at `base_sha`. What lies at its path from before is removed: only the engine makes these.

        Metadata is written under the vault's lock (`git worktree add` is not safe in parallel), files without it.
        Raises WorkspaceLost when the vault does not have the commit.
        """
        if not vault.has(base_sha):
            raise WorkspaceLost(f"commit {base_sha[:12]} is not in the vault", where=str(vault.path))
        path = worktree(home, delivery, generation)
        workspace = cls(delivery, path, vault, home)
        path.parent.mkdir(parents=True, exist_ok=True)
        with workspace.alone(), vault.lock() as held:
            _take_away(vault, path, held)
            vault.git.run(
                # Forced twice: a `worktree add` that was cut off leaves its place locked.
                *("worktree", "add", "--quiet", "--force", "--force", "--detach", "--no-checkout"),
                *("--", str(path), base_sha),
                hold=(held,),
            )
        admin = Path((path / ".git").read_text().strip().removeprefix("gitdir: "))
        with workspace.alone() as held:
            shutil.rmtree(workspace.shadow, ignore_errors=True)
            Checkouts.of(home, vault).begin(base_sha, path, admin / "index")
            workspace.git(admin).run("reset", "--hard", "--quiet", base_sha, hold=(held,))
            made_ns = (admin / "index").stat().st_mtime_ns
            exact_base = exact_tree(vault, base_sha)
            if exact_base == vault.tree_of(base_sha):
                shadow.git_for(workspace, exact_base, held, known=admin / "index")
        there = path.stat()
        workspace.write(  # last: without a record that names this very directory, the next attempt begins again
            WorkspaceRecord(
                delivery=delivery,
                vault=str(vault.path),
                path=str(path),
                admin=str(admin),
                base_sha=base_sha,
                exact_base=exact_base,
                inode=there.st_ino,
                device=there.st_dev,
                made_ns=made_ns,
                generation=generation,
                created_at=datetime.now(UTC),
            )
        )
        return workspace

    @classmethod
    def open(cls, home: Home, delivery: str) -> Workspace:
        """The workspace a record tells of, unchecked. Raises WorkspaceLost when there is no readable record."""
        record = read_record(home.workspace(delivery) / "record.json")
        return cls(delivery, Path(record.path), Vault.at(Path(record.vault)), home)

    @classmethod
    def open_or_rebuild(
        cls, home: Home, vault: Vault, delivery: str, base_sha: str, *, generation: int = 0
    ) -> tuple[Workspace, list[str]]:
        """A valid workspace and what was wrong with the one before (nothing: it was valid, or there was none).

        A rebuilt or new one is at `base_sha` and its record says `setup_done=False`: run setup, then restore.
        """
        try:
            workspace = cls.open(home, delivery)
            record = workspace.record()
        except WorkspaceLost:
            return cls.create(home, vault, delivery, base_sha, generation=generation), []
        problems = workspace.validate()
        if record.generation != generation:
            problems = [f"it is generation {record.generation}, not {generation}"]
        if not problems:
            workspace.write(record.model_copy(update={"ended_at": None}))
            return workspace, []
        return cls.create(home, vault, delivery, base_sha, generation=generation), problems

    @property
    def private(self) -> Path:
        """Git's own files about this very directory; a later generation has others, so that nothing is shared."""
        return self.home.workspace(self.delivery) / "git" / self.path.name

    @property
    def shadow(self) -> Path:
        """The git directory of checkpoints (perdure.adapters.git.shadow)."""
        return self.private / "shadow.git"

    @contextlib.contextmanager
    def alone(self) -> Iterator[int]:
        """Be the only one whose git touches this worktree; yields the descriptor for `hold=`.

        A restore thereby waits for the git of a killed worker, which lives some milliseconds longer than it. Whoever
        holds it knows that no lock file in git's directories about this worktree has a living owner: all of them go.
        """
        with locked(self.private / "lock") as held:
            directories = [self.private]
            with contextlib.suppress(WorkspaceLost):
                record = self.record()
                directories += [Path(record.admin)] if record.path == str(self.path) else []
            for directory, _, names in (found for top in directories for found in os.walk(top)):
                for name in names:
                    if name.endswith(".lock"):
                        Path(directory, name).unlink(missing_ok=True)
            yield held

    def git(self, admin: Path | None = None) -> Git:
        """Git as the worktree itself sees it: its HEAD, its index, the repository's attributes."""
        directory = admin or Path(self.record().admin)
        return Git(directory, self.path, self.vault.path, directory / "index")

    def record(self) -> WorkspaceRecord:
        """Raises WorkspaceLost when it is missing or unreadable."""
        return read_record(self.home.workspace(self.delivery) / "record.json")

    def write(self, record: WorkspaceRecord) -> None:
        """Replace the record, durably. Raises Superseded when it already tells of a later generation.

        A writer that slept through a takeover would otherwise lead everybody back to the directory it was chased from.
        """
        directory = self.home.workspace(self.delivery)
        with locked(directory / "record.lock"):
            with contextlib.suppress(WorkspaceLost):
                if self.record().generation > record.generation:
                    raise Superseded(f"{self.delivery} has moved to another directory; this attempt wrote nothing")
            write_whole(directory / "record.json", record.model_dump_json(indent=1).encode())

    def finish_setup(self, copied: Iterable[str] = (), *, keeps: bool = False) -> WorkspaceRecord:
        """Write down that setup is done, and what it made: every untracked path, and the files in `copied`."""
        kept = tuple(sorted({*self.untracked(), *(os.path.normpath(name) for name in copied)}))
        record = self.record().model_copy(update={"setup_done": True, "kept": kept, "keeps": keeps})
        self.write(record)
        return record

    def untracked(self) -> tuple[str, ...]:
        """Every path that git does not track, ignored ones too; of a directory that is untracked as a whole, itself."""
        listed = self.git().run("ls-files", "--others", "--directory", "-z").names
        return tuple(sorted({name.rstrip("/") for name in listed} - {shadow.PORTS_FILE}))

    def forget_changes(self) -> None:
        """Put tracked files back to the base: what setup did to them (a rewritten lock file) is nobody's work."""
        record = self.record()
        with self.alone() as held:
            shadow.put(shadow.git_for(self, record.exact_base, held), record.exact_base, held)

    def end(self) -> None:
        """Note that the delivery is over; `sweep` removes the worktree when it was kept long enough."""
        self.write(self.record().model_copy(update={"ended_at": datetime.now(UTC)}))

    def begin_again(self) -> None:
        """The delivery goes on after all: not for `sweep` any more."""
        self.write(self.record().model_copy(update={"ended_at": None}))

    def advance(self, commit: str) -> None:
        """Let the worktree's own HEAD and index follow a commit: `git status` and `git log` inside then make sense."""
        record = self.record()
        with self.alone() as held:
            self.git(Path(record.admin)).run("update-ref", "--no-deref", "HEAD", commit, hold=(held,))
            self.git(Path(record.admin)).run("read-tree", commit, hold=(held,))

    def validate(self) -> list[str]:
        """Say what the record, the disk and git disagree about; empty when they agree."""
        try:
            record = self.record()
        except WorkspaceLost as error:
            return [error.what]
        return [*self._disk_problems(record), *self._git_problems(record)]

    def in_place(self) -> bool:
        """True while the directory is the one that was made: a tool that writes a file would make another, empty one
        in its place, and a checkpoint of that would tell of everything else as deleted."""
        try:
            record, there = self.record(), self.path.lstat()
        except (OSError, WorkspaceLost):
            return False
        return (there.st_ino, there.st_dev) == (record.inode, record.device)

    def _disk_problems(self, record: WorkspaceRecord) -> list[str]:
        if (record.delivery, record.path, record.vault) != (self.delivery, str(self.path), str(self.vault.path)):
            return ["the record tells of another workspace"]
        if self.path.is_symlink() or not self.path.is_dir():
            return [f"{self.path} is not there"]
        there = self.path.stat()
        if (there.st_ino, there.st_dev) != (record.inode, record.device):
            return [f"{self.path} is another directory than the one that was made"]
        pointer = self.path / ".git"
        if pointer.is_symlink() or not pointer.is_file() or pointer.read_text() != f"gitdir: {record.admin}\n":
            return [f"{pointer} does not point into the vault"]
        return []

    def _git_problems(self, record: WorkspaceRecord) -> list[str]:
        admin = Path(record.admin)
        try:
            points_back, head = ((admin / name).read_text(errors="replace").strip() for name in ("gitdir", "HEAD"))
            head = head if is_full(head) else self.git(admin).text("rev-parse", "--verify", "HEAD")
            if Path(points_back) != self.path / ".git" or not self.vault.has(head):
                return ["git does not know this worktree"]
        except (OSError, GitError) as error:
            return [f"git does not know this worktree: {error}"]
        return [] if self.vault.has(record.base_sha) else ["the vault has lost the base commit"]

    def remove(self, *, hands_over: bool = False) -> str:
        """Remove the worktree, with earlier generations and what git knows of it. Returns what went wrong, if so.

        hands_over  its files may be kept for another delivery: nobody but the caller can have been there
        """
        tree = self.home.tree(self.delivery)
        checkouts = Checkouts.of(self.home, self.vault)
        try:
            if hands_over:
                with contextlib.suppress(OSError, GitError, WorkspaceLost):
                    self._hand_over(checkouts)
            with self.alone(), self.vault.lock() as held:
                for path in {self.path, tree, *tree.parent.glob(f"{tree.name}~*")}:
                    _take_away(self.vault, path, held)
                    checkouts.tidy(path)
            shutil.rmtree(self.private.parent)
        except (OSError, GitError) as error:
            return f"{self.path} could not be removed: {error}"
        return ""

    def _hand_over(self, checkouts: Checkouts) -> None:
        record = self.record()
        if (
            record.keeps
            and record.made_ns
            and self.in_place()
            and record.exact_base == self.vault.tree_of(record.base_sha)
        ):
            with self.alone() as held:
                git = shadow.git_for(self, record.exact_base, held)
                checkouts.hand_over(self.path, git, record.exact_base, record.made_ns)


def worktree(home: Home, delivery: str, generation: int) -> Path:
    """Return the place of a generation of a delivery's worktree."""
    tree = home.tree(delivery)
    return tree if generation == 0 else tree.with_name(f"{tree.name}~{generation}")


def sweep(home: Home, older_than: timedelta = limits.WORKSPACE_KEPT) -> list[str]:
    """Remove the worktrees of deliveries that ended longer ago than that. Returns what could not be removed."""
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
        if workspace.path.exists() or Path(record.admin).exists():
            failed.append(workspace.remove())
    return [message for message in failed if message]


def _take_away(vault: Vault, path: Path, held: int) -> None:
    """Remove a worktree, also one that git does not recognise any more, and prune what git knows of it."""
    if path.exists() or path.is_symlink():
        vault.git.run("worktree", "remove", "--force", "--force", "--", str(path), ok=(0, 128), hold=(held,))
    remove(path)
    vault.git.run("worktree", "prune", "--expire=now", hold=(held,))
