"""A delivery's workspace, leased to one attempt: what a step works with."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.agents.builtin.tools import Toolbox
from perdure.adapters.checks.seeds import Seed
from perdure.adapters.checks.tests import CommandPlace
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.checkouts import Checkouts
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.sandbox.base import Command, GitView, Sandbox
from perdure.adapters.sandbox.environment import place
from perdure.adapters.sandbox.missing import missing_inside
from perdure.adapters.sandbox.room import Room, Roomed
from perdure.adapters.system.files import write_whole
from perdure.adapters.system.removal import remove
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.lease import Lease
from perdure.adapters.worker.replies import Replies
from perdure.adapters.worker.setting_up import keeps_files, read_binds
from perdure.adapters.worker.spend import SpendLog
from perdure.models.contract import Contract
from perdure.models.errors import Superseded, WorkCutOff
from perdure.models.ids import checkout_name
from perdure.models.work import ChangeSize

_TESTED = "base-tested.json"

NOTED = ("base", _TESTED)
"""Files in which a workspace keeps what is known of its base: true of every delivery on the same one."""


@dataclass(frozen=True)
class WorkspaceSession:
    """Held for as long as the lease: nobody else writes to this workspace.

    git        what commands see of the vault
    env        variables every command of the delivery gets (leased ports)
    directory  what is known about the workspace: journals, logs, replies
    room       where tests run, beside those of other deliveries
    """

    workspace: Workspace
    lease: Lease
    contract: Contract
    sandbox: Sandbox
    git: GitView
    env: Mapping[str, str]
    directory: Path
    room: Room

    @property
    def vault(self) -> Vault:
        return self.workspace.vault

    @property
    def spend(self) -> SpendLog:
        return SpendLog(self.directory)

    @property
    def replies(self) -> Replies:
        return Replies(self.directory)

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def inside(self) -> Path | None:
        """The worktree as commands see it; None: where it is."""
        return place(self.sandbox.grade, checkout_name(self.vault.url))

    def check(self) -> None:
        """Nobody has overtaken us, and nobody has taken the worktree away. Raises Superseded, WorkCutOff."""
        self.lease.check()
        if not self.workspace.in_place():
            raise WorkCutOff(f"the worktree {self.workspace.path} is gone")

    def restore(self, checkpoint: str) -> None:
        """Make the worktree exactly what the checkpoint holds, unless it is that already."""
        self.lease.check()
        if not checkpoints.is_at(self.workspace, checkpoint):
            checkpoints.restore(self.workspace, checkpoint)

    def size_of(self, commit: str) -> ChangeSize:
        """Of all that differs from the base, as the pull request compares it."""
        files, added, deleted = self.vault.diff_stat(self.vault.merge_base(self.contract.base_sha, commit), commit)
        return ChangeSize(files=files, added=added, deleted=deleted)

    def command(self) -> Command:
        """Return what all commands of this delivery share; script and output are for the caller to fill in."""
        return Command(
            script="",
            worktree=self.workspace.path,
            inside=self.inside,
            output=self.logs / "command.log",
            timeout_s=0,
            shared=self.workspace.record().kept,
            git_dir=self.git,
            env=self.env,
            lock=self.lease.sandbox_lock,
            fence=self.lease.check,
        )

    def place(self, log_dir: Path, source: Path | None = None) -> CommandPlace:
        """Return where tests run: `source`, shown where the worktree is otherwise (DESIGN §7), with what setup made.

        Virtual environments hold absolute paths: tested elsewhere, the agent's files were imported instead.
        """
        common = self.command()
        return CommandPlace(
            Roomed(self.sandbox, self.room, lambda words: now_doing(doing=words)),
            worktree=self.workspace.path,
            log_dir=log_dir,
            inside=common.inside,
            source=source,
            shared=common.shared,
            git_dir=common.git_dir,
            env=self.env,
            lock=common.lock,
            fence=common.fence,
            seed=self.seed(),
        )

    def toolbox(
        self, read_files: Mapping[str, str], *, writable: bool, on_spawn: Callable[[], None], label: str
    ) -> Toolbox:
        """The agent's hands. `label` names the directory of this turn's full outputs."""
        common = self.command()
        binds = read_binds(self.directory)
        return Toolbox(
            worktree=self.workspace.path,
            inside=common.inside,
            sandbox=self.sandbox,
            log_dir=self.logs / label,
            check=self.check,
            read_files=dict(read_files),
            on_spawn=on_spawn,
            git_dir=common.git_dir,
            env=common.env,
            lock=common.lock,
            writable=writable,
            shared=common.shared,
            missing=lambda output, code: missing_inside(output, code, binds),
        )

    @property
    def checkouts(self) -> Checkouts:
        return Checkouts.of(self.workspace.home, self.vault, keeps=keeps_files(self.sandbox.grade, self.contract))

    @asynccontextmanager
    async def checkout(self, commit: str) -> AsyncIterator[Path]:
        """A clean checkout of a commit, for as long as it is needed: what a verdict is about.

        Only who has made one puts it away: in what a killed attempt has left, a git of its own may still be writing.
        """
        try:
            yield await in_thread(self._made, commit)
        finally:
            with suppress(Superseded):  # then somebody else's may be there
                self.lease.check()
                await in_thread(self.checkouts.put_away, self._clean)

    def renewed(self, commit: str) -> Path:
        """The same checkout, clean again."""
        self.lease.check()
        self.checkouts.put_away(self._clean)
        return self._made(commit)

    def _made(self, commit: str) -> Path:
        self.lease.check()
        self.checkouts.make(commit, self._clean, admin=self.workspace.record().admin)
        return self._clean

    @property
    def _clean(self) -> Path:
        return self.directory / "clean"

    def note_base(self, key: str) -> None:
        """Remember the base, with all that its results depend on, by this key."""
        write_whole(self.directory / "base", key.encode())

    def note_tested(self, went: Mapping[str, str], seconds: float) -> None:
        """Remember for the agents how each test command, by its name, went on the base, and what all of them took."""
        write_whole(self.directory / _TESTED, json.dumps({"went": dict(went), "seconds": seconds}).encode())

    def tested(self) -> tuple[dict[str, str], float]:
        """Return what was noted; nothing where an older release, or another host, prepared this."""
        try:
            found = json.loads((self.directory / _TESTED).read_bytes())
            return {str(name): str(words) for name, words in found["went"].items()}, float(found["seconds"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}, 0.0

    def seed(self) -> Seed | None:
        """The output of compilers on the base; None where an older release prepared this."""
        try:
            return Seed(self.workspace.home.seeds, (self.directory / "base").read_text())
        except FileNotFoundError:
            return None

    def drop_nested(self, paths: Sequence[str]) -> None:
        """Remove `.git` entries below the worktree's root; the files beside them stay."""
        for path in paths:
            remove(self.workspace.path / path)
