"""`perdure gc`: what ended long ago goes, what runs or is nowhere else stays."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.client import Client

from perdure.adapters.checks.seeds import SEED_KEPT
from perdure.adapters.checks.seeds import sweep as sweep_seeds
from perdure.adapters.git.checkouts import sweep as sweep_checkouts
from perdure.adapters.git.retention import KeptDelivery, forget, kept, prune, unmerged
from perdure.adapters.git.workspace import sweep
from perdure.adapters.system.files import size_on_disk
from perdure.adapters.system.home import Home
from perdure.adapters.system.removal import remove
from perdure.adapters.worker.setting_up import read_binds
from perdure.client.view import look_up
from perdure.models.errors import PerdureError
from perdure.models.limits import WORKSPACE_KEPT


@dataclass(frozen=True)
class RetentionVerdict:
    """The verdict on one delivery. `why` it stays; empty: it goes."""

    delivery: str
    ended: datetime | None
    why: str
    refs: int


async def judge(client: Client, one: KeptDelivery, older_than: timedelta, *, also_unmerged: bool) -> RetentionVerdict:
    """Raises RPCError when the server does not say whether it runs."""
    ended = await _ended(client, one)
    if ended is None:
        why = "has not ended"
    elif datetime.now(UTC) - ended < older_than:
        why = f"ended less than {older_than.days} days ago"
    else:
        why = "" if also_unmerged else _not_merged(one)
    return RetentionVerdict(one.delivery, ended, why, len(one.refs))


def _not_merged(one: KeptDelivery) -> str:
    try:
        return "is not merged" if unmerged(one) else ""
    except PerdureError as error:
        return f"may not be merged: {error.what}"


async def _ended(client: Client, one: KeptDelivery) -> datetime | None:
    """The time it ended: the newest of what its record and the server say; None while either says that it goes on."""
    seen = await look_up(client, one.delivery)
    return seen.close_time if seen is not None else one.record.ended_at  # the server keeps those that ended for 90 days


async def collect(
    client: Client, home: Home, older_than: timedelta, *, also_unmerged: bool = False, dry: bool = False
) -> tuple[list[RetentionVerdict], list[str], int]:
    """(each delivery of this host, what could not be removed, bytes freed). `dry`: nothing is removed."""
    before = 0 if dry else size_on_disk(home.root)
    all_of_them = list(kept(home))
    verdicts = [await judge(client, one, older_than, also_unmerged=also_unmerged) for one in all_of_them]
    if dry:
        return verdicts, [], 0
    problems = sweep(home)
    for one, verdict in zip(all_of_them, verdicts, strict=True):
        if not verdict.why and (problem := await forget_ended(client, home, one, verdict.ended)):
            problems.append(problem)
    left = list(kept(home))
    problems += forget_caches(home, left, older_than)
    sweep_checkouts(home, min(older_than, WORKSPACE_KEPT).total_seconds())
    sweep_seeds(home.seeds, min(older_than, SEED_KEPT).total_seconds())
    vaults = {one.vault.path: one.vault for one in all_of_them}
    problems += filter(None, (prune(vault, left) for vault in vaults.values()))
    return verdicts, problems, max(before - size_on_disk(home.root), 0)


async def forget_ended(client: Client, home: Home, one: KeptDelivery, ended: datetime | None) -> str:
    """Remove one that ended then, unless somebody has begun it again since. Returns what went wrong, if so."""
    if await _ended(client, one) != ended:
        return f"{one.delivery} stays: it goes on again"
    try:
        forget(home, one)
    except (PerdureError, OSError) as error:
        return f"{one.delivery}: {error}"
    return ""


def forget_caches(home: Home, remaining: Iterable[KeptDelivery], older_than: timedelta) -> list[str]:
    """Remove packages that no setup has used for so long, unless a worktree that is there may need them offline.

    Returns what could not be removed.
    """
    needed, problems = set(), []
    for one in remaining:
        if Path(one.record.path).exists():
            with contextlib.suppress(OSError, ValueError):  # setup did not come to its end: nothing needs them yet
                needed.add(read_binds(home.workspace(one.delivery)).cache)
    for path in home.caches.glob("*"):
        try:
            if path.name not in needed and time.time() - path.stat().st_mtime >= older_than.total_seconds():
                remove(path)
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
    return problems
