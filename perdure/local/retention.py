"""The work of `perdure gc`: remove what ended long ago; keep what runs, and what exists nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.client import Client

from perdure.adapters.git.retention import (
    KeptDelivery,
    is_unmerged,
    kept_deliveries,
    prune_vault,
    remove_delivery,
    remove_unrecorded_delivery,
    unrecorded_deliveries,
)
from perdure.adapters.git.workspace import remove_old_worktrees
from perdure.adapters.system.files import size_on_disk
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import collect_kept_results
from perdure.adapters.worker.home_limit import needed_packages
from perdure.client.server.view import find_workflow
from perdure.models.errors import PerdureError


@dataclass(frozen=True)
class RetentionVerdict:
    """The verdict on one delivery. `why` is the reason why it stays; empty: it is removed. `refs`: how many the vault
    has of it."""

    delivery: str
    ended: datetime | None
    why: str
    refs: int


async def judge_delivery(
    client: Client, candidate: KeptDelivery, older_than: timedelta, *, also_unmerged: bool
) -> RetentionVerdict:
    """Decide whether a delivery is removed: it ended `older_than` ago, and is merged or `also_unmerged` is set.

    Raises RPCError when the server does not say whether it runs.
    """
    ended = await _find_end_time(client, candidate)
    why = _age_reason(ended, older_than) or ("" if also_unmerged else _unmerged_reason(candidate))
    return RetentionVerdict(candidate.delivery, ended, why, len(candidate.refs))


async def _judge_unrecorded(client: Client, home: Home, delivery: str, older_than: timedelta) -> RetentionVerdict:
    """Decide whether what is here of a delivery without a record is removed: it ended `older_than` ago, by the server's
    account, else nobody has added a file since.

    Raises RPCError when the server does not say whether it runs.
    """
    execution = await find_workflow(client, delivery)
    touched = datetime.fromtimestamp(home.workspace(delivery).stat().st_mtime, UTC)
    ended = execution.close_time if execution is not None else touched
    return RetentionVerdict(delivery, ended, _age_reason(ended, older_than), 0)


def _age_reason(ended: datetime | None, older_than: timedelta) -> str:
    """Return why a delivery is too young to be removed; empty: it is old enough."""
    if ended is None:
        return "has not ended"
    return f"ended less than {older_than.days} days ago" if datetime.now(UTC) - ended < older_than else ""


def _unmerged_reason(candidate: KeptDelivery) -> str:
    """Return why a delivery counts as not merged, also where that could not be found out; empty when it is merged."""
    try:
        return "is not merged" if is_unmerged(candidate) else ""
    except PerdureError as error:
        return f"may not be merged: {error.what}"


async def _find_end_time(client: Client, candidate: KeptDelivery) -> datetime | None:
    """Return when a delivery ended by the server's account, else by its own record; None while it has not ended.

    The server keeps deliveries that ended for 90 days.
    """
    execution = await find_workflow(client, candidate.delivery)
    return execution.close_time if execution is not None else candidate.record.ended_at  # gone after 90 days


async def collect_garbage(
    client: Client, home: Home, older_than: timedelta, *, also_unmerged: bool = False, dry: bool = False
) -> tuple[list[RetentionVerdict], list[str], int]:
    """Remove ended deliveries of this host, old worktrees, and setup results and package caches without use; prune
    vaults.

    A delivery is removed when `judge_delivery` finds no reason to keep it. Returns (a verdict on each delivery,
    problems, bytes freed); problems are lines about what could not be removed. With `dry` nothing is removed and only
    the verdicts are given. Raises RPCError when the server does not say whether a delivery runs.
    """
    before = 0 if dry else size_on_disk(home.root)
    candidates = list(kept_deliveries(home))
    verdicts = [
        await judge_delivery(client, candidate, older_than, also_unmerged=also_unmerged) for candidate in candidates
    ]
    unrecorded = [
        await _judge_unrecorded(client, home, delivery, older_than) for delivery in unrecorded_deliveries(home)
    ]
    if dry:
        return [*verdicts, *unrecorded], [], 0
    problems = remove_old_worktrees(home)
    for candidate, verdict in zip(candidates, verdicts, strict=True):
        if not verdict.why and (problem := await forget_ended_delivery(client, home, candidate, verdict.ended)):
            problems.append(problem)
    for verdict in unrecorded:
        if not verdict.why:
            try:
                remove_unrecorded_delivery(home, verdict.delivery)
            except (PerdureError, OSError) as error:
                problems.append(f"{verdict.delivery}: {error}")
    remaining = list(kept_deliveries(home))
    problems += collect_kept_results(home, older_than, needed_packages(home))
    vaults = {candidate.vault.path: candidate.vault for candidate in candidates}
    problems += filter(None, (prune_vault(vault, remaining) for vault in vaults.values()))
    return [*verdicts, *unrecorded], problems, max(before - size_on_disk(home.root), 0)


async def forget_ended_delivery(client: Client, home: Home, candidate: KeptDelivery, ended: datetime | None) -> str:
    """Remove a delivery's worktree, refs and records from this host, unless it runs again or did not end at `ended`.

    Nothing is removed from the server. Returns an empty string, or one line that says why it was not removed. Raises
    RPCError when the server does not say whether it runs.
    """
    if await _find_end_time(client, candidate) != ended:
        return f"{candidate.delivery} stays: it goes on again"
    try:
        remove_delivery(home, candidate)
    except (PerdureError, OSError) as error:
        return f"{candidate.delivery}: {error}"
    return ""
