"""Setup of a workspace by the worker: the repository owner's commands, with network, once, before any model call; or
the files that they made for another delivery, where they would make the same (perdure.adapters.worker.environments).
Beside it what is read of a setup later: what the sandbox shows, how long it took, and whether its files may serve other
deliveries. Used by `host`, sessions and the activities that prepare and test."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from perdure.adapters.git.checkpoint import restore_base
from perdure.adapters.git.filters import filters_digest
from perdure.adapters.git.workspace import PORTS_FILE, Workspace
from perdure.adapters.repository.host import load_host_config
from perdure.adapters.repository.setup import SetupBranch, copy_files, run_setup_in_workspace
from perdure.adapters.sandbox.base import HostSlots
from perdure.adapters.sandbox.environment import Binds, compute_binds, toolchain_state, worktree_path_inside
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.adapters.sandbox.reach import Reach
from perdure.adapters.sandbox.setup import package_source_settings
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.adapters.system.directories import UnsupportedFileType
from perdure.adapters.system.files import sync_all, try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.system.opened_files import OpenedFiles
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.environments import CommitFiles, Environments, json_digest
from perdure.adapters.worker.lease import Lease
from perdure.models.base import HistoryModel
from perdure.models.config.repository import SandboxGrade
from perdure.models.delivery.turn import Contract
from perdure.models.duration import parse_duration
from perdure.models.ids import cache_name, checkout_name
from perdure.text import shorten

ENVIRONMENT_POLL_S = 0.2
"""Seconds between two looks whether another delivery's setup of the same files has ended; to wait for it wins
minutes."""


class SetupRecord(HistoryModel):
    """A finished setup of a workspace: the seconds it took, and whether what it made was reused from another
    delivery's."""

    seconds: float = 0.0
    reused: bool = False


@dataclass(frozen=True)
class _SetupContext:
    """The arguments of `set_up_workspace`, which see, and what follows from them."""

    home: Home
    workspace: Workspace
    lease: Lease
    contract: Contract
    grade: SandboxGrade
    env: Mapping[str, str]
    caps: ResourceCaps | None
    command_slots: HostSlots | None = None

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the setup commands."""
        return self.contract.config.setup.commands or ()

    @property
    def copies(self) -> tuple[str, ...]:
        """Return the names of files that are copied from the owner's checkout into the worktree, as they are
        configured."""
        return self.contract.config.setup.copy_files if self.contract.source else ()

    @property
    def copied(self) -> frozenset[str]:
        """Return the normalized relative paths of these files."""
        return frozenset(os.path.normpath(name) for name in self.copies)

    @property
    def inside(self) -> Path | None:
        """Return the path at which commands see the worktree; None: its own."""
        return worktree_path_inside(self.grade, checkout_name(self.workspace.vault.url))

    @property
    def is_foreign(self) -> bool:
        return is_foreign(self.contract)

    def make_binds(self) -> Binds:
        """Compute what of the host the sandbox shows, from PATH, the toolchains behind it and the worktree as it is
        now."""
        path = self.env.get("PATH", "")
        binds = compute_binds(self.workspace.path, path, Path.home(), self.env, self.home.root)
        return binds.model_copy(update={"cache": self.package_cache()})

    def package_cache(self) -> str:
        """Return the name of the delivery's package cache: one for each repository, base branch and sandbox grade, and
        a separate one for each branch that strangers may have written, because setup runs what lies in the cache.

        The grades are kept apart because a weaker one's setup can replace what a stronger one's sandbox mounts.
        """
        vault, url = self.workspace.vault.path.name, self.workspace.vault.url
        branch = self.contract.branch if self.is_foreign else ""
        return cache_name(checkout_name(url), vault, self.contract.base, branch, self.grade)

    def environment_key(self, *, foreign: bool) -> str:
        """Return the digest of everything but the repository's files that decides what setup makes: repository, base
        branch (none for what was made on a foreign branch), commands and hosts, sandbox, system, toolchains, and
        settings of packages."""
        return json_digest(
            {
                "repository": self.workspace.vault.path.name + filters_digest(self.workspace.vault.git),
                "base": "" if foreign else self.contract.base,
                "setup": [self.commands, self.contract.config.setup.hosts],
                "sandbox": [str(self.inside), self.grade],
                "host": [platform.machine(), platform.libc_ver(), platform.freedesktop_os_release()],
                "toolchain": toolchain_state(self.env.get("PATH", ""), Path.home(), self.env),
                "sources": package_source_settings(self.env, Path.home()),
            }
        )


async def set_up_workspace(
    home: Home,
    workspace: Workspace,
    lease: Lease,
    contract: Contract,
    grade: SandboxGrade,
    env: Mapping[str, str],
    environments: Environments,
    caps: ResourceCaps | None = None,
    command_slots: HostSlots | None = None,
) -> None:
    """Reset the worktree to the base, run the `[setup]` commands there, or, in grade `full` with a cache, put the files
    there that they made before; copy the owner's files, and compute what the sandbox shows. That and the time it took
    are written to the workspace's directory, and the workspace's record says that setup is done.

    The binds are computed once, here, and stored: an agent that could make them wider would only have to leave a link
    behind for the next command. Raises SetupFailed when a command fails, SandboxUnavailable,
    WorkCutOff, and Superseded when a newer attempt has taken over.
    """
    context = _SetupContext(home, workspace, lease, contract, grade, env, caps, command_slots)
    directory = home.workspace(workspace.delivery)
    started = time.monotonic()
    # An attempt that died here may have left half of what it made, a power cut may have emptied what it checked out.
    await in_thread(restore_base, workspace)
    if context.commands and grade is SandboxGrade.FULL and environments.is_enabled:
        binds, reused = await _reuse_or_make(context, environments)
    else:
        await _run_setup_commands(context)
        binds, reused = await in_thread(context.make_binds), False
    lease.check()
    await in_thread(write_whole, directory / "binds.json", binds.model_dump_json().encode())
    if context.commands:
        await in_thread(sync_all, workspace.path)  # nobody looks at it again: what is called done has to last
    record = SetupRecord(seconds=time.monotonic() - started, reused=reused)
    await in_thread(write_whole, directory / "setup.json", record.model_dump_json().encode())
    await in_thread(workspace.finish_setup, contract.config.setup.copy_files, reusable=may_share_files(grade, contract))


def may_share_files(grade: SandboxGrade, contract: Contract) -> bool:
    """Return whether files of this delivery may serve another one (perdure.adapters.git.checkouts).

    In grade `full` alone: elsewhere a process can outlive its command and go on writing. Not from a branch of
    strangers: it shares nothing with its base.
    """
    return grade is SandboxGrade.FULL and not is_foreign(contract)


def is_foreign(contract: Contract) -> bool:
    """Return whether the delivery begins on a branch that its base has not taken over: strangers may have written what
    is there."""
    return contract.existing or contract.head not in ("", contract.base_sha)


def has_same_setup(
    home: Home, workspace: Workspace, lease: Lease, contract: Contract, environments: Environments, commit: str
) -> bool:
    """Return whether setup on another commit would make what it made in this workspace, because it opened nothing that
    differs there. True without setup commands; False where the cache holds no entry that is right for both."""
    context = _SetupContext(home, workspace, lease, contract, SandboxGrade(contract.grade), os.environ, None)
    if not context.commands:
        return True
    base = CommitFiles.load(workspace.vault, workspace.record().base_sha)
    other = CommitFiles.load(workspace.vault, commit)
    keys = {context.environment_key(foreign=foreign) for foreign in (False, context.is_foreign)}
    return any(environments.fits_both(key, base, other) for key in keys)


def is_base_setup_worthwhile(
    home: Home, workspace: Workspace, lease: Lease, contract: Contract, environments: Environments
) -> bool:
    """Return whether a delivery on a branch of strangers should run setup on its base first: what that makes is kept
    for all such branches, where none of theirs may be, and nothing is kept for this base yet.

    False where a file at the top of the repository differs: setup reads most of those, and would make something else.
    """
    context = _SetupContext(home, workspace, lease, contract, SandboxGrade(contract.grade), os.environ, None)
    kept = context.grade is SandboxGrade.FULL and environments.is_enabled and bool(context.commands)
    if not kept or not context.is_foreign:
        return False
    base, head = (
        CommitFiles.load(workspace.vault, commit) for commit in (contract.base_sha, workspace.record().base_sha)
    )
    differing = {path for path in {*base.files, *head.files} if base.files.get(path) != head.files.get(path)}
    if any("/" not in path for path in differing):
        return False
    return not environments.fits_both(context.environment_key(foreign=False), base, base)


def has_lost_packages(home: Home, contract: Contract) -> bool:
    """Return whether packages that setup has fetched are not there any more: somebody removed them, or an earlier
    release kept them elsewhere. False without setup commands, and where setup has left no record of what the sandbox
    shows."""
    with contextlib.suppress(OSError, ValueError):
        name = read_binds(home.workspace(contract.delivery)).cache
        return bool(name and contract.config.setup.commands) and not (home.caches / name).is_dir()
    return False


def read_binds(directory: Path) -> Binds:
    """Read what the sandbox shows, as it was computed after setup, from the workspace's directory."""
    return Binds.model_validate_json((directory / "binds.json").read_bytes())


def read_setup_record(directory: Path) -> SetupRecord:
    """Read how setup went from the workspace's directory; a default record where an older release did it."""
    with contextlib.suppress(OSError, ValidationError):
        return SetupRecord.model_validate_json((directory / "setup.json").read_bytes())
    return SetupRecord()


async def _reuse_or_make(context: _SetupContext, environments: Environments) -> tuple[Binds, bool]:
    """Put in place what setup made for another delivery, or run setup and keep what it made for the next. Returns what
    the sandbox shows, and True where it was reused.

    On a foreign branch, what the base's setup made counts too, where it opened nothing that differs on the branch; what
    the branch's own setup makes is for its own commit alone.

    Waits, at most once, while another delivery makes the same. Raises SetupFailed when a command fails,
    SandboxUnavailable, WorkCutOff, and Superseded when a newer attempt has taken over.
    """
    workspace = context.workspace
    commit = await in_thread(CommitFiles.load, workspace.vault, workspace.record().base_sha)
    key = await in_thread(context.environment_key, foreign=context.is_foreign)
    base_key = await in_thread(context.environment_key, foreign=False)
    async with _hold_setup_lock(environments.lock_path(key, commit), context.lease):
        for usable_key in dict.fromkeys((base_key, key)):
            binds = await in_thread(environments.place_files, usable_key, commit, workspace.path)
            if binds is None:
                continue
            context.lease.check()
            await in_thread(copy_files, Path(context.contract.source), workspace.path, context.copies)
            return binds, True
        opened = await _run_setup_commands(context, commit)
        binds = await in_thread(context.make_binds)
        await in_thread(_store_environment, context, environments, key, commit, opened, binds)
        return binds, False


async def _run_setup_commands(context: _SetupContext, commit: CommitFiles | None = None) -> OpenedFiles:
    """Copy the owner's files into the worktree, run the setup commands there, and return which of the commit's files
    they opened. `commit` None: nobody needs that. Without commands only the files are copied.

    Waits for one of the host's command slots. Changes that the commands made to tracked files are undone; git is made
    to ignore what lies in directories of dependencies. Raises SetupFailed when a command fails, SandboxUnavailable,
    WorkCutOff, and Superseded when a newer attempt has taken over.
    """
    workspace, contract, setup = context.workspace, context.contract, context.contract.config.setup
    await in_thread(copy_files, Path(context.contract.source), workspace.path, context.copies)
    if not context.commands:
        return OpenedFiles()
    sandbox = sandbox_for(context.grade, context.home, await in_thread(context.make_binds), context.caps)
    directories = {*commit.names, *(name.rpartition("/")[0] for name in context.copied)} if commit else ()
    slot = (
        context.command_slots.acquire_slot(lambda message: update_heartbeat(doing=message))
        if context.command_slots
        else contextlib.nullcontext()
    )
    async with slot:
        return await run_setup_in_workspace(
            sandbox,
            workspace,
            SetupBranch(contract.base, contract.base_sha, contract.branch),
            context.commands,
            parse_duration(setup.timeout),
            context.home.workspace(workspace.delivery) / "logs",
            lambda line: update_heartbeat(doing=shorten(line, 80)),
            inside=context.inside,
            reach=Reach(setup.hosts, frozenset(load_host_config(context.env).setup_hosts)),
            lock=context.lease.sandbox_lock,
            fence=context.lease.check,
            watched=directories,
        )


def _store_environment(
    context: _SetupContext, environments: Environments, key: str, commit: CommitFiles, opened: OpenedFiles, binds: Binds
) -> None:
    """Keep what setup made for other deliveries; where its files cannot be copied nothing is kept, and no error raised.
    Raises Superseded.

    Nothing is kept where setup opened a copied file or the ports file. On a foreign branch, or where tracked files have
    several links, `opened` is marked as incomplete, so that the result is bound to the whole commit, not only to the
    opened files.
    """
    worktree, copied = context.workspace.path, context.copied
    if opened.files & {*copied, PORTS_FILE}:
        return
    context.lease.check()
    if context.is_foreign or any(
        os.lstat(worktree / path).st_nlink > 1 for path in commit.files if os.path.lexists(worktree / path)
    ):
        opened.all_seen = False
    names = tuple(name for name in context.workspace.untracked_paths() if name not in copied)
    with contextlib.suppress(OSError, UnsupportedFileType):  # it is kept to save time, and nothing depends on it
        environments.store(key, commit.setup_inputs(opened), worktree, names, copied, binds)


@asynccontextmanager
async def _hold_setup_lock(lock: Path, lease: Lease) -> AsyncIterator[None]:
    """Hold the lock while the block runs; where another delivery holds it, wait until that has released it and run the
    block without it. So one of several deliveries makes the same files while the others wait, once, because it may
    fail.

    Raises Superseded when a newer attempt takes over while this one waits.
    """
    descriptor = try_lock(lock)  # not in a thread: cancelled then, nobody would know the descriptor, and it stays held
    if descriptor is None:
        update_heartbeat(doing="waiting for another delivery's setup of the same files")
        while (descriptor := try_lock(lock)) is None:
            lease.check()
            await asyncio.sleep(ENVIRONMENT_POLL_S)
        os.close(descriptor)
        yield
        return
    try:
        yield
    finally:
        os.close(descriptor)
