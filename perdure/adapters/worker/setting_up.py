"""Setup of a workspace: the repository owner's commands, with network, once, before any model call.

Or what they made for another delivery, where they would make the same (perdure.adapters.worker.environments).
"""

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
from perdure.adapters.git.shadow import PORTS_FILE
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.copying import copy_files
from perdure.adapters.repository.host import load_host_config
from perdure.adapters.repository.setup import ignore_dependencies, run_setup
from perdure.adapters.sandbox.environment import place
from perdure.adapters.sandbox.reach import Reach
from perdure.adapters.sandbox.room import Room
from perdure.adapters.sandbox.select import sandbox_for
from perdure.adapters.sandbox.setup import sources
from perdure.adapters.sandbox.toolchain import Binds, compute_binds, fingerprint
from perdure.adapters.sandbox.usage import Caps
from perdure.adapters.system.copies import NotPlain
from perdure.adapters.system.files import sync_all, try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.system.opened import OpenedFiles, watched
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.environments import Commit, Environments, digest
from perdure.adapters.worker.lease import Lease
from perdure.models.amounts import seconds
from perdure.models.base import Recorded
from perdure.models.config import SandboxGrade
from perdure.models.contract import Contract
from perdure.models.ids import cache_name, checkout_name

ENVIRONMENT_POLL_S = 0.2
"""Between two looks whether another delivery's setup of the same files has ended; it wins minutes."""


class SetUp(Recorded):
    """A finished setup of a workspace: how long it took, and whether what it made was there already."""

    seconds: float = 0.0
    known: bool = False


@dataclass(frozen=True)
class _Setting:
    """Arguments of set_up, which see, and what follows from them."""

    home: Home
    workspace: Workspace
    lease: Lease
    contract: Contract
    grade: SandboxGrade
    env: Mapping[str, str]
    caps: Caps | None
    room: Room | None = None

    @property
    def commands(self) -> tuple[str, ...]:
        return self.contract.config.setup.commands or ()

    @property
    def copies(self) -> tuple[str, ...]:
        return self.contract.config.setup.copy_files if self.contract.source else ()

    @property
    def copied(self) -> frozenset[str]:
        return frozenset(os.path.normpath(name) for name in self.copies)

    @property
    def inside(self) -> Path | None:
        return place(self.grade, checkout_name(self.workspace.vault.url))

    @property
    def foreign(self) -> bool:
        return is_foreign(self.contract)

    def binds(self) -> Binds:
        path = self.env.get("PATH", "")
        found = compute_binds(self.workspace.path, path, Path.home(), self.env, self.home.root)
        return found.model_copy(update={"cache": self.cache()})

    def cache(self) -> str:
        """Packages of one repository and base branch, and of a foreign branch alone: setup runs what lies there.

        And of one grade: a weaker one's setup can replace what a stronger one's sandbox mounts.
        """
        vault, url = self.workspace.vault.path.name, self.workspace.vault.url
        branch = self.contract.branch if self.foreign else ""
        return cache_name(checkout_name(url), vault, self.contract.base, branch, self.grade)

    def question(self) -> str:
        """Everything but the repository's files that decides what setup makes."""
        return digest(
            {
                "repository": self.workspace.vault.path.name,
                "base": "" if self.foreign else self.contract.base,
                "setup": [self.commands, self.contract.config.setup.hosts],
                "sandbox": [str(self.inside), self.grade],
                "host": [platform.machine(), platform.libc_ver(), platform.freedesktop_os_release()],
                "toolchain": fingerprint(self.env.get("PATH", ""), Path.home(), self.env),
                "sources": sources(self.env, Path.home()),
            }
        )


async def set_up(
    home: Home,
    workspace: Workspace,
    lease: Lease,
    contract: Contract,
    grade: SandboxGrade,
    env: Mapping[str, str],
    environments: Environments,
    caps: Caps | None = None,
    room: Room | None = None,
) -> None:
    """Run `[setup]` in a fresh worktree, or put there what it made before, and compute what its sandbox shows.

    The binds are computed once, here, and stored: an agent that could make them wider would only have to leave a
    link behind for the next command (feasibility.md §1.2). Raises SetupFailed, SandboxUnavailable.
    """
    setting = _Setting(home, workspace, lease, contract, grade, env, caps, room)
    directory = home.workspace(workspace.delivery)
    started = time.monotonic()
    # An attempt that died here may have left half of what it made, a power cut may have emptied what it checked out.
    await in_thread(restore_base, workspace)
    if setting.commands and grade is SandboxGrade.FULL and environments.on:
        binds, known = await _reused(setting, environments)
    else:
        await _made(setting)
        binds, known = await in_thread(setting.binds), False
    lease.check()
    await in_thread(write_whole, directory / "binds.json", binds.model_dump_json().encode())
    if setting.commands:
        await in_thread(sync_all, workspace.path)  # nobody looks at it again: what is called done has to last
    done = SetUp(seconds=time.monotonic() - started, known=known)
    await in_thread(write_whole, directory / "setup.json", done.model_dump_json().encode())
    await in_thread(workspace.finish_setup, contract.config.setup.copy_files, keeps=keeps_files(grade, contract))


def keeps_files(grade: SandboxGrade, contract: Contract) -> bool:
    """True where files of this delivery may serve another (perdure.adapters.git.checkouts).

    In grade `full` alone: elsewhere a process can outlive its command and go on writing. Not from a branch of
    strangers: it shares nothing with its base.
    """
    return grade is SandboxGrade.FULL and not is_foreign(contract)


def is_foreign(contract: Contract) -> bool:
    """True where it begins on a branch that its base has not taken over: strangers may have written what is there."""
    return contract.existing or contract.head not in ("", contract.base_sha)


def sets_up_alike(
    home: Home, workspace: Workspace, lease: Lease, contract: Contract, environments: Environments, commit: str
) -> bool:
    """True where setup on another commit would make what it made in this workspace: it opened nothing that differs."""
    setting = _Setting(home, workspace, lease, contract, SandboxGrade(contract.grade), os.environ, None)
    if not setting.commands:
        return True
    base = Commit.read(workspace.vault, workspace.record().base_sha)
    return environments.same(setting.question(), base, Commit.read(workspace.vault, commit))


def packages_gone(home: Home, contract: Contract) -> bool:
    """True where setup has fetched packages that are not there any more: somebody removed them, or an earlier release
    kept them elsewhere."""
    with contextlib.suppress(OSError, ValueError):
        name = read_binds(home.workspace(contract.delivery)).cache
        return bool(name and contract.config.setup.commands) and not (home.caches / name).is_dir()
    return False


def read_binds(directory: Path) -> Binds:
    """Read what was computed after setup."""
    return Binds.model_validate_json((directory / "binds.json").read_bytes())


def read_set_up(directory: Path) -> SetUp:
    """Read how setup went; nothing known where it was done by an older release."""
    with contextlib.suppress(OSError, ValidationError):
        return SetUp.model_validate_json((directory / "setup.json").read_bytes())
    return SetUp()


async def _reused(setting: _Setting, environments: Environments) -> tuple[Binds, bool]:
    """Return what the sandbox shows, and True where another delivery had made it; else make it, and keep it."""
    workspace = setting.workspace
    commit = await in_thread(Commit.read, workspace.vault, workspace.record().base_sha)
    question = await in_thread(setting.question)
    async with _in_turn(environments.lock(question, commit), setting.lease):
        binds = await in_thread(environments.place, question, commit, workspace.path)
        if binds is not None:
            setting.lease.check()
            await in_thread(copy_files, Path(setting.contract.source), workspace.path, setting.copies)
            return binds, True
        opened = await _made(setting, commit)
        binds = await in_thread(setting.binds)
        await in_thread(_keep, setting, environments, question, commit, opened, binds)
        return binds, False


async def _made(setting: _Setting, commit: Commit | None = None) -> OpenedFiles:
    """Run the commands, and tell what of the commit they opened (None: nobody asks)."""
    workspace, settings = setting.workspace, setting.contract.config.setup
    await in_thread(copy_files, Path(setting.contract.source), workspace.path, setting.copies)
    if not setting.commands:
        return OpenedFiles()
    sandbox = sandbox_for(setting.grade, setting.home, await in_thread(setting.binds), setting.caps)
    directories = {*commit.names, *(name.rpartition("/")[0] for name in setting.copied)} if commit else ()
    place = setting.room.place(lambda words: now_doing(doing=words)) if setting.room else contextlib.nullcontext()
    async with place, watched(workspace.path, directories) as opened:
        await run_setup(
            sandbox,
            workspace.path,
            setting.commands,
            seconds(settings.timeout),
            setting.home.workspace(workspace.delivery) / "logs",
            lambda line: now_doing(doing=line[:80]),
            inside=setting.inside,
            reach=Reach(settings.hosts, frozenset(load_host_config(setting.env).setup_hosts)),
            lock=setting.lease.sandbox_lock,
            fence=setting.lease.check,
        )
    setting.lease.check()
    await in_thread(ignore_dependencies, workspace.path)
    await in_thread(workspace.forget_changes)
    return opened


def _keep(
    setting: _Setting, environments: Environments, question: str, commit: Commit, opened: OpenedFiles, binds: Binds
) -> None:
    """Keep what setup made, unless it may have come from anything but the commit and the network."""
    tree, copied = setting.workspace.path, setting.copied
    if opened.files & {*copied, PORTS_FILE}:
        return
    setting.lease.check()
    if setting.foreign or any(
        os.lstat(tree / path).st_nlink > 1 for path in commit.files if os.path.lexists(tree / path)
    ):
        opened.all_seen = False
    names = tuple(name for name in setting.workspace.untracked() if name not in copied)
    with contextlib.suppress(OSError, NotPlain):  # it is kept to save time, and nothing depends on it
        fresh = environments.keep(question, commit.inputs(opened), tree, names, copied)
        sync_all(fresh)
        environments.finish(fresh, binds)


@asynccontextmanager
async def _in_turn(lock: Path, lease: Lease) -> AsyncIterator[None]:
    """Of several who would make the same at once, one does and the others wait for it: once, for it may fail."""
    descriptor = try_lock(lock)  # not in a thread: cancelled then, nobody would know the descriptor, and it stays held
    if descriptor is None:
        now_doing(doing="waiting for another delivery's setup of the same files")
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
