"""Removal of what is kept of deliveries that ended, and packing of the vault: what `perdure gc` does on the disk. It
tells whether a delivery is merged, for which activities record here the branches that it makes; which deliveries are
old enough to go is decided in `perdure.local.retention`, which calls it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from perdure.adapters.git.command import GitError
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace, WorkspaceRecord, read_record, remove_unrecorded_worktrees
from perdure.adapters.system.directories import remove_path
from perdure.adapters.system.files import write_whole
from perdure.adapters.system.home import Home
from perdure.models import ids
from perdure.models.errors import PerdureError, WorkspaceLost

PRUNE_AFTER = timedelta(weeks=2)
"""The time since an object of the vault that nothing refers to was last touched, after which it is dropped. Before that
somebody may be about to refer to it."""


_BRANCHES = "branches.json"


@dataclass(frozen=True)
class KeptDelivery:
    """A delivery of this host: its workspace's record, and its checkpoint and artifact refs in the vault.

    branches  its own branches on the origin: what is on them is published, and not merged
    """

    record: WorkspaceRecord
    vault: Vault
    refs: tuple[str, ...]
    branches: tuple[str, ...] = ()

    @property
    def delivery(self) -> str:
        return self.record.delivery

    @property
    def branch_ref(self) -> str:
        """Return the vault's own ref of the delivery's commits."""
        return f"refs/heads/{ids.branch_name(self.delivery)}"


def kept_deliveries(home: Home) -> Iterator[KeptDelivery]:
    """Yield every delivery of which this host has a record, by name; one whose record or vault cannot be read is left
    out."""
    for path in sorted((home.root / "workspaces").glob("*/record.json")):
        try:
            workspace = Workspace.open(home, path.parent.name)
            record = workspace.record()
        except WorkspaceLost:
            continue
        own = (f"refs/perdure/{record.delivery}/", f"refs/artifacts/{record.delivery}/")
        refs = tuple(ref for prefix in own for ref in workspace.vault.list_refs(prefix))
        yield KeptDelivery(record, workspace.vault, refs, _recorded_branches(home, record.delivery))


def unrecorded_deliveries(home: Home) -> list[str]:
    """Return the deliveries with a directory here and no readable record: refused, or cut off before they had a
    worktree."""
    names = []
    for directory in sorted((home.root / "workspaces").glob("*/")):
        try:
            read_record(directory / "record.json")
        except WorkspaceLost:
            names.append(directory.name)
    return names


def remove_unrecorded_delivery(home: Home, delivery: str) -> None:
    """Remove the worktrees and the directory of a delivery that has no record. Raises PerdureError or OSError with what
    could not be removed."""
    if reason := remove_unrecorded_worktrees(home, delivery):
        raise PerdureError(reason)
    remove_path(home.workspace(delivery))


def record_branches(home: Home, delivery: str, branches: Iterable[str]) -> None:
    """Write down the names of the branches that a delivery makes on its origin."""
    write_whole(home.workspace(delivery) / _BRANCHES, json.dumps(list(branches)).encode())


def _recorded_branches(home: Home, delivery: str) -> tuple[str, ...]:
    """Return the names that `record_branches` wrote down; the delivery's usual branch name alone where it wrote none,
    or its file cannot be read."""
    try:
        return tuple(map(str, json.loads((home.workspace(delivery) / _BRANCHES).read_bytes())))
    except (OSError, ValueError, TypeError):  # it was never prepared to its end
        return (ids.branch_name(delivery),)


def is_unmerged(kept_delivery: KeptDelivery) -> bool:
    """Return True while a delivery's commits are not merged on its origin: none of the branches there, which are
    fetched now and without its own, holds its newest commit or all that it changed (squashed, picked). False when it
    has no commit in the vault.

    Raises ForgeRefused or ForgeUnavailable when a branch cannot be fetched, because an origin that does not answer
    proves nothing.
    """
    head = kept_delivery.vault.read_ref(kept_delivery.branch_ref)
    if head is None:
        return False
    names = [ref.removeprefix("refs/remotes/origin/") for ref in kept_delivery.vault.list_refs("refs/remotes/origin/")]
    tips = [
        tip
        for name in names
        if name not in kept_delivery.branches and (tip := kept_delivery.vault.fetch_branch(name)) is not None
    ]
    return not any(
        kept_delivery.vault.is_ancestor(head, tip) or _adds_nothing(kept_delivery.vault, tip, head) for tip in tips
    )


def _adds_nothing(vault: Vault, tip: str, head: str) -> bool:
    """Return True where merging `head` into `tip` would change no file. False where it would, where it conflicts, and
    where git cannot tell. Nothing is moved."""
    merged = vault.git.execute("merge-tree", "--write-tree", tip, head, ok=(0, 1, 128, 129))  # git 2.38; older ones: no
    return merged.returncode == 0 and merged.text == vault.tree_of(tip)


def remove_delivery(home: Home, kept_delivery: KeptDelivery) -> None:
    """Remove a delivery's worktree, its refs in the vault, and its directory on this host. Safe to repeat after a
    crash, for its record goes last.

    Its objects stay in the vault until `prune_vault`. Raises PerdureError with what could not be removed,
    WorkspaceLost, which is one, where there is no record.
    """
    if reason := Workspace.open(home, kept_delivery.delivery).remove():
        raise PerdureError(reason)
    with kept_delivery.vault.lock() as lock_fd:
        lines = "".join(
            f"delete {ref}\n"
            for ref in (*kept_delivery.refs, kept_delivery.branch_ref)
            if kept_delivery.vault.read_ref(ref)
        )
        kept_delivery.vault.git.execute("update-ref", "--stdin", stdin=lines.encode(), lock_fds=(lock_fd,))
    directory = home.workspace(kept_delivery.delivery)
    for path in directory.iterdir():
        if path.name != "record.json":  # last: with its record gone nobody would look for the rest
            remove_path(path)
    remove_path(directory)


def prune_vault(vault: Vault, remaining: Iterable[KeptDelivery]) -> str:
    """Drop from the vault the objects that nothing refers to and nobody has touched for PRUNE_AFTER, and pack the
    others and the refs, under the vault's lock. Return the reason if that was not done, an empty string if it was.

    Nothing is dropped while one of `remaining` has not ended and began longer ago than that: it may go back to a commit
    that only its history names. Before, the base commit of each of `remaining` gets a ref, so that it is kept. Without
    any of this vault the history that was packed for commands is removed, too, and what git-lfs stores.
    """
    others = [kept_delivery for kept_delivery in remaining if kept_delivery.vault.path == vault.path]
    if not others:  # what commands were shown of it is made again when it is missing
        shutil.rmtree(vault.path.with_suffix(".history"), ignore_errors=True)
        shutil.rmtree(vault.path / "lfs", ignore_errors=True)
    now = datetime.now(UTC)
    if unended := [
        kept_delivery
        for kept_delivery in others
        if kept_delivery.record.ended_at is None and now - kept_delivery.record.created_at > PRUNE_AFTER
    ]:
        return f"{vault.path.name} keeps its objects: {unended[0].delivery} has not ended"
    with vault.lock() as lock_fd:
        for kept_delivery in others:  # its origin may have moved away from the commit it began at
            if vault.has_commit(kept_delivery.record.base_sha):
                vault.git.execute(
                    "update-ref",
                    f"refs/artifacts/{kept_delivery.delivery}/base",
                    kept_delivery.record.base_sha,
                    lock_fds=(lock_fd,),
                )
        try:
            vault.git.execute(
                "repack", "-a", "-d", "-q", f"--unpack-unreachable={_prune_expiry()}", lock_fds=(lock_fd,)
            )
            vault.git.execute("prune", f"--expire={_prune_expiry()}", lock_fds=(lock_fd,))
            vault.git.execute("pack-refs", "--all", lock_fds=(lock_fd,))
        except GitError as error:
            return f"{vault.path.name} could not be packed: {error}"
    return ""


def _prune_expiry() -> str:
    """Return PRUNE_AFTER as git writes a time that is past."""
    return f"{int(PRUNE_AFTER.total_seconds())}.seconds.ago"
