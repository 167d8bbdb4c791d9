"""Removes what is kept of deliveries that ended, once nobody can want it any more; and packs the vault."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from perdure.adapters.git.door import GitError
from perdure.adapters.git.record import WorkspaceRecord
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.files import write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.system.removal import remove
from perdure.models import ids
from perdure.models.errors import PerdureError, WorkspaceLost

PRUNE_AFTER = timedelta(weeks=2)
"""Since an object of the vault that nothing refers to was last touched: somebody may be about to refer to it (H15)."""


_BRANCHES = "branches.json"


@dataclass(frozen=True)
class KeptDelivery:
    """One delivery of this host: what its workspace's record says, and its checkpoint and artifact refs.

    branches  of the origin that are its own: what stands there is published, and not merged
    """

    record: WorkspaceRecord
    vault: Vault
    refs: tuple[str, ...]
    branches: tuple[str, ...] = ()

    @property
    def delivery(self) -> str:
        return self.record.delivery

    @property
    def branch(self) -> str:
        """The vault's own ref of its commits."""
        return f"refs/heads/{ids.branch_name(self.delivery)}"


def kept(home: Home) -> Iterator[KeptDelivery]:
    """Every delivery this host has a record of, by name; one whose record or vault cannot be read is left out."""
    for path in sorted((home.root / "workspaces").glob("*/record.json")):
        try:
            workspace = Workspace.open(home, path.parent.name)
            record = workspace.record()
        except WorkspaceLost:
            continue
        own = (f"refs/perdure/{record.delivery}/", f"refs/artifacts/{record.delivery}/")
        refs = tuple(ref for prefix in own for ref in workspace.vault.refs(prefix))
        yield KeptDelivery(record, workspace.vault, refs, _branches(home, record.delivery))


def note_branches(home: Home, delivery: str, branches: Iterable[str]) -> None:
    """Write down the names of the branches that a delivery makes on its origin."""
    write_whole(home.workspace(delivery) / _BRANCHES, json.dumps(list(branches)).encode())


def _branches(home: Home, delivery: str) -> tuple[str, ...]:
    try:
        return tuple(map(str, json.loads((home.workspace(delivery) / _BRANCHES).read_bytes())))
    except (OSError, ValueError, TypeError):  # it was never prepared to its end
        return (ids.branch_name(delivery),)


def unmerged(one: KeptDelivery) -> bool:
    """True while the origin's branches but its own, as they are now, lack something that the delivery committed.

    Merged, squashed or picked, all it changed is there already: merging it would change nothing. Raises what fetching
    raises, because an origin that does not answer proves nothing.
    """
    head = one.vault.read_ref(one.branch)
    if head is None:
        return False
    names = [ref.removeprefix("refs/remotes/origin/") for ref in one.vault.refs("refs/remotes/origin/")]
    tips = [tip for name in names if name not in one.branches and (tip := one.vault.fetch_branch(name)) is not None]
    return not any(one.vault.is_ancestor(head, tip) or _adds_nothing(one.vault, tip, head) for tip in tips)


def _adds_nothing(vault: Vault, tip: str, head: str) -> bool:
    merged = vault.git.run("merge-tree", "--write-tree", tip, head, ok=(0, 1, 128, 129))  # git 2.38; older ones: no
    return merged.returncode == 0 and merged.text == vault.tree_of(tip)


def forget(home: Home, one: KeptDelivery) -> None:
    """Remove a delivery's worktree, its refs in the vault, and what is written down about it. Safe to repeat.

    Its objects stay until `prune`. Raises PerdureError with what could not be removed.
    """
    if words := Workspace.open(home, one.delivery).remove():
        raise PerdureError(words)
    with one.vault.lock() as held:
        lines = "".join(f"delete {ref}\n" for ref in (*one.refs, one.branch) if one.vault.read_ref(ref))
        one.vault.git.run("update-ref", "--stdin", stdin=lines.encode(), hold=(held,))
    directory = home.workspace(one.delivery)
    for path in directory.iterdir():
        if path.name != "record.json":  # last: with its record gone nobody would look for the rest
            remove(path)
    remove(directory)


def prune(vault: Vault, remaining: Iterable[KeptDelivery]) -> str:
    """Pack the vault and drop what nothing refers to and nobody has touched for PRUNE_AFTER; why not, if not.

    A delivery that has worked for longer may go back to a commit that only its history names: then nothing is dropped.
    """
    others = [one for one in remaining if one.vault.path == vault.path]
    if not others:  # what commands were shown of it is made again when it is missing
        shutil.rmtree(vault.path.with_suffix(".history"), ignore_errors=True)
    now = datetime.now(UTC)
    if old := [one for one in others if one.record.ended_at is None and now - one.record.created_at > PRUNE_AFTER]:
        return f"{vault.path.name} keeps its objects: {old[0].delivery} has not ended"
    with vault.lock() as held:
        for one in others:  # its origin may have moved away from the commit it began at
            if vault.has(one.record.base_sha):
                vault.git.run("update-ref", f"refs/artifacts/{one.delivery}/base", one.record.base_sha, hold=(held,))
        try:
            vault.git.run("repack", "-a", "-d", "-q", f"--unpack-unreachable={_ago()}", hold=(held,))
            vault.git.run("prune", f"--expire={_ago()}", hold=(held,))
            vault.git.run("pack-refs", "--all", hold=(held,))
        except GitError as error:
            return f"{vault.path.name} could not be packed: {error}"
    return ""


def _ago() -> str:
    return f"{int(PRUNE_AFTER.total_seconds())}.seconds.ago"
