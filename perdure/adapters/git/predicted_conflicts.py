"""Conflicts that a commit would have with other open deliveries of its repository on this host, if all were to land."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.landing import conflicting_paths
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.git.workspace_record import WorkspaceRecord
from perdure.models.errors import WorkspaceLost
from perdure.models.ids import branch_name

MAX_PAIRS = 20
"""The most deliveries compared with one commit, at 6 ms each: an ordinary host has no more open at once."""

MAX_CONFLICTS, PATH_CHARS = 3, 200
"""The most conflicts of one commit that are reported, and characters of a path: history keeps them, and a person reads
them in one line."""


@dataclass(frozen=True)
class _OpenDelivery:
    """Another delivery that has not ended, with its base and its newest commit."""

    delivery: str
    base: str
    commit: str


def predict_conflicts(workspace: Workspace, commit: str, near: str) -> dict[str, str]:
    """Return, by delivery, the first path on which `commit` and that delivery's newest commit would conflict: a
    prediction and no promise, of at most MAX_CONFLICTS deliveries.

    near  deliveries whose names begin with it are compared first
    """
    vault, record = workspace.vault, workspace.record()
    conflicts = dict[str, str]()
    for other in _open_deliveries(workspace, record, near)[:MAX_PAIRS]:
        paths = conflicting_paths(vault, commit, other.commit)
        if paths and other.base != record.base_sha:  # conflicts with what landed between the bases do not count
            earlier_conflicts = {
                *conflicting_paths(vault, commit, other.base),
                *conflicting_paths(vault, record.base_sha, other.commit),
            }
            paths = tuple(path for path in paths if path not in earlier_conflicts)
        if paths:
            shown = paths[0].encode(errors="surrogateescape").decode(errors="replace")
            conflicts[other.delivery] = shown[:PATH_CHARS]
        if len(conflicts) == MAX_CONFLICTS:
            break
    return conflicts


def _open_deliveries(workspace: Workspace, mine: WorkspaceRecord, near: str) -> list[_OpenDelivery]:
    """Return the other deliveries of this vault that have not ended and have a commit of their own, ordered by name,
    those that begin with `near` first."""
    deliveries, vault = list[_OpenDelivery](), workspace.vault
    directory = workspace.home.workspace(workspace.delivery).parent
    names = sorted((path.name for path in directory.iterdir()), key=lambda name: (not name.startswith(near), name))
    for name in names:
        with suppress(WorkspaceLost, OSError):
            other_record = Workspace.open(workspace.home, name).record()
            if (
                name == workspace.delivery
                or other_record.ended_at is not None
                or Path(other_record.vault) != vault.path
            ):
                continue
            tip = vault.read_ref(f"refs/heads/{branch_name(name)}")
            if tip and tip != other_record.base_sha:
                deliveries.append(_OpenDelivery(name, other_record.base_sha, tip))
    return deliveries
