"""Conflicts that a commit would have with other open deliveries of its repository on this host, were all to land."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.git.landing import forecast
from perdure.adapters.git.record import WorkspaceRecord
from perdure.adapters.git.workspace import Workspace
from perdure.models.errors import WorkspaceLost
from perdure.models.ids import branch_name

PAIRS_MOST = 20
"""Looked at for one commit, at 6 ms each: more are not open at once on an ordinary host."""

FOUND_MOST, PATH_CHARS = 3, 200
"""Told of one commit: history keeps it, and a person reads it in one line."""


@dataclass(frozen=True)
class _Other:
    delivery: str
    base: str
    commit: str


def foreseen(workspace: Workspace, commit: str, near: str) -> dict[str, str]:
    """By delivery, the first path on which both would conflict; a look and no promise, at most FOUND_MOST.

    near  what the deliveries' names begin with that are looked at first
    """
    vault, mine = workspace.vault, workspace.record()
    found = dict[str, str]()
    for other in _open(workspace, mine, near)[:PAIRS_MOST]:
        paths = forecast(vault, commit, other.commit)
        if paths and other.base != mine.base_sha:  # what has landed between the two is nobody's who is open
            known = {*forecast(vault, commit, other.base), *forecast(vault, mine.base_sha, other.commit)}
            paths = tuple(path for path in paths if path not in known)
        if paths:
            shown = paths[0].encode(errors="surrogateescape").decode(errors="replace")
            found[other.delivery] = shown[:PATH_CHARS]
        if len(found) == FOUND_MOST:
            break
    return found


def _open(workspace: Workspace, mine: WorkspaceRecord, near: str) -> list[_Other]:
    """Those with a commit of their own, by name, what begins with `near` first."""
    found, vault = list[_Other](), workspace.vault
    directory = workspace.home.workspace(workspace.delivery).parent
    names = sorted((path.name for path in directory.iterdir()), key=lambda name: (not name.startswith(near), name))
    for name in names:
        with suppress(WorkspaceLost, OSError):
            there = Workspace.open(workspace.home, name).record()
            if name == workspace.delivery or there.ended_at is not None or Path(there.vault) != vault.path:
                continue
            tip = vault.read_ref(f"refs/heads/{branch_name(name)}")
            if tip and tip != there.base_sha:
                found.append(_Other(name, there.base_sha, tip))
    return found
