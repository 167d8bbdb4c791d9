"""The record of a delivery's workspace: what was made where, and what may be done with it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from perdure.models.base import HistoryModel
from perdure.models.errors import WorkspaceLost


class WorkspaceRecord(HistoryModel):
    """The record of a workspace, written when it is made.

    path         the worktree; admin: its directory in the vault (its `.git` file names it too, but an agent might
    change that)
    exact_base   tree of the base commit's files as a checkout writes them, byte for byte: what a change is measured
    from
    generation   0, or which later directory this is (`<delivery>~<n>`)
    setup_paths  relative paths that setup made: in no checkpoint, no commit, and left alone by a restore
    inode, device  of the worktree: another directory at the same path is not this workspace
    made_ns      the time its files were written, by the clock of their disk
    reusable     another delivery may begin with its files when this one has ended
    """

    delivery: str
    vault: str
    path: str
    admin: str
    base_sha: str
    exact_base: str
    inode: int
    device: int
    created_at: datetime
    generation: int = 0
    setup_done: bool = False
    setup_paths: tuple[str, ...] = ()
    ended_at: datetime | None = None
    made_ns: int = 0
    reusable: bool = False


def read_record(path: Path) -> WorkspaceRecord:
    """Read a workspace's record from its file. Raises WorkspaceLost when it is missing or unreadable."""
    try:
        return WorkspaceRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise WorkspaceLost("this host has no readable record of the workspace", where=str(path)) from error
