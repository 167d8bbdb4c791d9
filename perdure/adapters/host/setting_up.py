"""Setup of a workspace: the repository owner's commands, with network, once, before any model call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.git.checkpoint import restore_base
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.host.attempt import now_doing
from perdure.adapters.host.files import sync_all, write_whole
from perdure.adapters.host.home import Home
from perdure.adapters.host.lease import Lease
from perdure.adapters.host.threads import in_thread
from perdure.adapters.project.setup import copy_files, run_setup
from perdure.adapters.sandbox.environment import place
from perdure.adapters.sandbox.select import sandbox_for
from perdure.adapters.sandbox.toolchain import Binds, compute_binds
from perdure.models.config import SandboxGrade, seconds
from perdure.models.contract import Contract
from perdure.models.ids import checkout_name


async def set_up(
    home: Home, workspace: Workspace, lease: Lease, contract: Contract, grade: SandboxGrade, env: Mapping[str, str]
) -> None:
    """Run `[setup]` in a fresh worktree and compute what its sandbox shows.

    The binds are computed once, here, and stored: an agent that could make them wider would only have to leave a
    link behind for the next command (feasibility.md §1.2). Raises SetupFailed, SandboxUnavailable.
    """
    settings, directory = contract.config.setup, home.workspace(workspace.delivery)
    # An attempt that died here may have left half of what it made, a power cut may have emptied what it checked out.
    await in_thread(restore_base, workspace)
    if contract.source and settings.copy_files:
        await in_thread(copy_files, Path(contract.source), workspace.path, settings.copy_files)
    if settings.commands:
        binds = await in_thread(_binds, home, workspace, env)
        await run_setup(
            sandbox_for(grade, home, binds),
            workspace.path,
            settings.commands,
            seconds(settings.timeout),
            directory / "logs",
            lambda line: now_doing(doing=line[:80]),
            inside=place(grade, checkout_name(workspace.vault.url)),
            lock=lease.sandbox_lock,
            fence=lease.check,
        )
    lease.check()
    await in_thread(workspace.forget_changes)
    binds = await in_thread(_binds, home, workspace, env)
    await in_thread(write_whole, directory / "binds.json", binds.model_dump_json().encode())
    if settings.commands:
        await in_thread(sync_all, workspace.path)  # nobody looks at it again: what is called done has to last
    await in_thread(workspace.finish_setup, settings.copy_files)


def read_binds(directory: Path) -> Binds:
    """What was computed after setup."""
    return Binds.model_validate_json((directory / "binds.json").read_bytes())


def _binds(home: Home, workspace: Workspace, env: Mapping[str, str]) -> Binds:
    return compute_binds(workspace.path, env.get("PATH", ""), Path.home(), env, home.root)
