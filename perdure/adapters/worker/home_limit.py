"""Keeps a home below its limit of bytes, when a delivery ends: worktrees of deliveries that ended and what is kept for
later ones go, the oldest first. Checkpoints, commits and artifacts stay: only `perdure gc` removes those."""

from __future__ import annotations

import contextlib
import shutil
from datetime import timedelta
from pathlib import Path

from perdure.adapters.git.workspace import read_record, remove_old_worktrees
from perdure.adapters.system.files import size_on_disk
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import collect_kept_results
from perdure.adapters.worker.workspace_setup import read_binds
from perdure.models.errors import WorkspaceLost

_AGES = (timedelta(days=3), timedelta(days=1), timedelta(hours=1))
"""The time since something ended or was used last from which on it goes, until the home is small enough. A setup that
runs, and a person who looks at what has just failed, take less than the last."""


def shrink_home(home: Home, limit_bytes: int) -> list[str]:
    """Remove from a home that takes more bytes of its disk what ended or was not used for some time, by steps from the
    oldest, until it takes no more. Nothing that a delivery needs which has not ended is removed. Return messages about
    what could not be removed."""
    problems: list[str] = []
    for age in _AGES:
        if shutil.disk_usage(home.root).used <= limit_bytes or size_on_disk(home.root) <= limit_bytes:
            break
        problems += [*remove_old_worktrees(home, age), *collect_kept_results(home, age, needed_packages(home))]
    return problems


def needed_packages(home: Home) -> set[str]:
    """Return the names of the package caches that a worktree may need offline. One whose setup has not recorded its
    cache needs none."""
    needed = set()
    for path in (home.root / "workspaces").glob("*/record.json"):
        with contextlib.suppress(OSError, ValueError, WorkspaceLost):  # unfinished setup: nothing to keep
            if Path(read_record(path).path).exists():
                needed.add(read_binds(path.parent).cache)
    return needed
