"""A delivery's workspace, leased to one attempt: its sandboxed commands, tools, clean checkouts, records and stores, as
activities and turns use them. `host` takes the lease and makes the session."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.agents.builtin.tools import Toolbox
from perdure.adapters.checks.compiler_caches import CompilerCache
from perdure.adapters.checks.tests import CommandPlace
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.sandbox.base import GitView, HostSlots, Sandbox, SandboxCommand, SlottedSandbox
from perdure.adapters.sandbox.environment import explain_hidden_command, worktree_path_inside
from perdure.adapters.system.directories import remove_path
from perdure.adapters.system.files import write_whole
from perdure.adapters.system.keyed_store import KeyedStore, kept_results
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.journal import ReplyStore, SpendLog
from perdure.adapters.worker.lease import Lease
from perdure.adapters.worker.workspace_setup import may_share_files, read_binds
from perdure.models.delivery.turn import Contract
from perdure.models.delivery.work import ChangeSize
from perdure.models.errors import Superseded, WorkCutOff
from perdure.models.ids import checkout_name

_TESTED = "base-tested.json"

BASE_FACT_FILES = ("base", _TESTED)
"""Files in which a workspace keeps what is known of its base: true of every delivery on the same one."""


@dataclass(frozen=True)
class WorkspaceSession:
    """A leased workspace, for as long as the lease is held: nobody else writes to it.

    git            what commands see of the vault
    env            variables every command of the delivery gets (leased ports)
    directory      what is known about the workspace: journals, logs, replies
    command_slots  where tests run, beside those of other deliveries
    """

    workspace: Workspace
    lease: Lease
    contract: Contract
    sandbox: Sandbox
    git: GitView
    env: Mapping[str, str]
    directory: Path
    command_slots: HostSlots

    @property
    def vault(self) -> Vault:
        return self.workspace.vault

    @property
    def spend_log(self) -> SpendLog:
        return SpendLog(self.directory)

    @property
    def replies(self) -> ReplyStore:
        return ReplyStore(self.directory)

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def inside(self) -> Path | None:
        """Return the path at which commands see the worktree; None: its own."""
        return worktree_path_inside(self.sandbox.grade, checkout_name(self.vault.url))

    def check(self) -> None:
        """Raise Superseded when a newer attempt has taken over, WorkCutOff when the worktree's directory was removed or
        replaced."""
        self.lease.check()
        if not self.workspace.is_in_place():
            raise WorkCutOff(f"the worktree {self.workspace.path} is gone")

    def restore(self, checkpoint: str) -> None:
        """Make the worktree exactly what the checkpoint holds, unless it is that already. Raises Superseded, before
        anything is changed, when a newer attempt has taken over."""
        self.lease.check()
        left_by_us = self.lease.left_at == checkpoint
        if not checkpoints.is_at_checkpoint(self.workspace, checkpoint, written_by_us_alone=left_by_us):
            checkpoints.restore_checkpoint(self.workspace, checkpoint)

    def change_size(self, commit: str) -> ChangeSize:
        """Return the size of all that differs between the base and a commit, as the pull request compares them."""
        files, added, deleted = self.vault.diff_stat(self.vault.merge_base(self.contract.base_sha, commit), commit)
        return ChangeSize(files=files, added=added, deleted=deleted)

    def base_command(self) -> SandboxCommand:
        """Return a command with what all commands of this delivery share: worktree, paths that setup made, git,
        variables, the lock file that its processes hold while they live, and the fence, a function that refuses to
        start it when a newer attempt has taken over.

        Script and time limit are for the caller to fill in; so is the output, which goes to command.log else.
        """
        return SandboxCommand(
            script="",
            worktree=self.workspace.path,
            inside=self.inside,
            output=self.logs / "command.log",
            timeout_s=0,
            shared=self.workspace.record().setup_paths,
            git_dir=self.git,
            env=self.env,
            lock=self.lease.sandbox_lock,
            fence=self.lease.check,
        )

    def command_place(self, log_dir: Path, source: Path | None = None) -> CommandPlace:
        """Return where tests run: with `source` shown at the worktree's path, beside what setup made, each command in
        one of the host's command slots, and its logs in `log_dir`. `source` None: in the worktree itself. While a
        command waits for a slot, the heartbeats say so.

        Virtual environments hold absolute paths: with the source tested at another path, the agent's files were
        imported instead.
        """
        common = self.base_command()
        return CommandPlace(
            SlottedSandbox(self.sandbox, self.command_slots, lambda message: update_heartbeat(doing=message)),
            worktree=self.workspace.path,
            log_dir=log_dir,
            inside=common.inside,
            source=source,
            shared=common.shared,
            git_dir=common.git_dir,
            env=self.env,
            lock=common.lock,
            fence=common.fence,
            compiler_cache=self.compiler_cache(),
        )

    def make_toolbox(
        self, read_files: Mapping[str, str], *, writable: bool, on_spawn: Callable[[], None], label: str
    ) -> Toolbox:
        """Make the tools with which an agent works in this worktree.

        read_files  path → version of every file that the conversation knows
        writable    commands may write to the worktree
        on_spawn    called once a sandboxed command has been started
        label       names the directory of this turn's full outputs
        """
        common = self.base_command()
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
            explain_missing=lambda output, code: explain_hidden_command(output, code, binds),
        )

    @property
    def checkouts(self) -> CheckoutPool:
        """Return the maker of clean checkouts for this vault; it keeps new ones for other deliveries only where files
        of this one may be shared."""
        return CheckoutPool.for_vault(
            self.workspace.home, self.vault, keeps_new=may_share_files(self.sandbox.grade, self.contract)
        )

    @asynccontextmanager
    async def clean_checkout(self, commit: str) -> AsyncIterator[Path]:
        """Make a clean checkout of a commit, for tests whose verdict counts, yield its path, and put it away after the
        block: into the pool for the next checkout, or removed. Raises Superseded when a newer attempt has taken over
        before the block begins.

        After a takeover within the block it stays where it is, without an error: the newer attempt's checkout may lie
        there by then, and git of a killed attempt may still be writing into what is left.
        """
        try:
            yield await in_thread(self._make_checkout, commit)
        finally:
            with suppress(Superseded):  # then somebody else's may be there
                self.lease.check()
                await in_thread(self.checkouts.put_away, self._checkout_path)

    def renew_checkout(self, commit: str) -> Path:
        """Put the checkout away, make it again, clean, and return its path, which is the same. Raises Superseded when a
        newer attempt has taken over."""
        self.lease.check()
        self.checkouts.put_away(self._checkout_path)
        return self._make_checkout(commit)

    def _make_checkout(self, commit: str) -> Path:
        """Check a commit out and return the path. Raises Superseded when a newer attempt has taken over."""
        self.lease.check()
        self.checkouts.check_out(commit, self._checkout_path, admin=self.workspace.record().admin)
        return self._checkout_path

    @property
    def _checkout_path(self) -> Path:
        return self.directory / "clean"

    def record_base_key(self, key: str) -> None:
        """Write down the key of the base, which covers all that its results depend on."""
        write_whole(self.directory / "base", key.encode())

    def record_base_tests(self, results: Mapping[str, str], seconds: float) -> None:
        """Write down for the agents how each test command, by its name, went on the base, and the seconds that all of
        them took."""
        write_whole(self.directory / _TESTED, json.dumps({"went": dict(results), "seconds": seconds}).encode())

    def base_test_results(self) -> tuple[dict[str, str], float]:
        """Return what `record_base_tests` wrote: the result in words of each test command on the base, by its name, and
        the seconds of all. Empty and 0 where an older release, or another host, prepared this."""
        try:
            stored = json.loads((self.directory / _TESTED).read_bytes())
            return {str(name): str(result) for name, result in stored["went"].items()}, float(stored["seconds"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}, 0.0

    @property
    def baselines(self) -> KeyedStore:
        """Return the store of what tests said on base commits."""
        return kept_results(self.workspace.home, "baselines")

    def compiler_cache(self) -> CompilerCache | None:
        """Return the cache of what compilers made for the base, found by the key that `record_base_key` wrote; None
        where there is no key, because an older release prepared this."""
        try:
            return CompilerCache(kept_results(self.workspace.home, "seeds"), (self.directory / "base").read_text())
        except FileNotFoundError:
            return None

    def remove_nested_git(self, paths: Sequence[str]) -> None:
        """Remove `.git` entries below the worktree's root, at these relative paths; the files beside them stay."""
        for path in paths:
            remove_path(self.workspace.path / path)
