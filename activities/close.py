"""Activity `close`: gives back what a delivery holds on this host (ports, worktree, leftovers of killed runs), and
counts up its receipt. The last checkpoint is never removed."""

from __future__ import annotations

import logging
from contextlib import suppress

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.git.command import GitError
from perdure.adapters.git.object_journal import settle_objects
from perdure.adapters.git.workspace import (
    Workspace,
    list_worktree_places,
    remove_old_worktrees,
    remove_unrecorded_worktrees,
)
from perdure.adapters.repository.ports import release_ports
from perdure.adapters.system.directories import discard
from perdure.adapters.system.keyed_store import kept_results
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.home_limit import shrink_home
from perdure.models.budget.ledger import Usage
from perdure.models.delivery.work import CloseInput, CloseResult
from perdure.models.errors import WorkspaceLost

log = logging.getLogger(__name__)


class CloseActivity(OnHost):
    """The activity that ends a delivery on this host."""

    @activity.defn(name="close")
    async def close(self, work: CloseInput) -> CloseResult:
        """Release the delivery's ports, remove its worktree, or keep it for a while when `work.keep` is set, and return
        receipt, spending and what went wrong. What the plan's tasks (`work.tasks`) paid and survived is added to the
        delivery's spend log and journal. What cannot be removed, and a workspace of which this host has no record, is
        logged and put into the result's message; it is no error. Raises Superseded when a newer attempt has taken over
        the workspace."""
        try:
            async with self._host.lease_workspace(work.delivery) as (workspace, _):
                message = await in_thread(self._release_workspace, workspace, work.keep)
        except WorkspaceLost as error:
            message = "; ".join(filter(None, (error.what, await self._release_unrecorded(work.delivery))))
        if message:
            log.warning("%s: %s", work.delivery, message)
        return await in_thread(self._close_result, work.delivery, work.tasks, message)

    async def _release_unrecorded(self, delivery: str) -> str:
        """Release the ports of a delivery without a readable record, and remove its worktrees, whose making was cut
        off; return what could not be removed, or an empty text. Raises Superseded when a newer attempt has come."""
        home = self._host.home
        await in_thread(release_ports, home, delivery)
        if not await in_thread(list_worktree_places, home, delivery):
            return ""
        async with self._host.leases.acquire(delivery, home.tree(delivery).name) as lease:
            return await in_thread(remove_unrecorded_worktrees, home, delivery) if lease.proved else ""

    def _release_workspace(self, workspace: Workspace, keep: bool) -> str:
        """Release the ports, remove the leftovers of killed runs, mark the workspace as ended, remove the worktree
        unless `keep` is set, pack its objects, and repack a vault that has grown large.

        Also removes worktrees of deliveries of this home that ended long ago, kept checkouts that are too many or were
        not used for long, and more of both where the home is larger than its limit. Returns what could not be removed
        or repacked, separated by `; `; empty: nothing went wrong.
        """
        release_ports(self._host.home, workspace.delivery)
        directory = self._host.home.workspace(workspace.delivery)
        killed_runs = (self._host.home.trials(workspace.delivery), directory / "clean", directory / ".clean.kept")
        for leftover in (*killed_runs, *directory.glob("logs/*/reports-*")):  # read, and kept as `report-…`
            discard(leftover)
        workspace.mark_ended()
        message = "" if keep else workspace.remove(keeps_files=True)
        pack_error = ""
        try:
            with suppress(GitError):  # where an object is damaged, all stay as they are
                workspace.vault.pack_delivery(workspace.delivery, workspace.record().base_sha)
            workspace.vault.pack_if_large()
            settle_objects(workspace.vault.path)
        except (GitError, OSError) as error:
            pack_error = str(error)
        kept_results(self._host.home, "checkouts").remove_surplus()
        problems = remove_old_worktrees(self._host.home)
        problems += shrink_home(self._host.home, self._host.home.size_limit(self._host.config.home.gigabytes))
        return "; ".join(part for part in (message, pack_error, *problems) if part)

    def _close_result(self, delivery: str, tasks: tuple[str, ...], message: str) -> CloseResult:
        """Add what the plan's tasks (given by their keys) paid, and the deaths they survived, to the delivery's own
        spend log and journal, and return its receipt, spending and usage, what the tasks paid, and `message` about what
        went wrong."""
        spend_log = self._host.spend_log(delivery)
        task_logs = self._host.include_tasks(delivery, tasks)
        return CloseResult(
            receipt=self._host.receipt(delivery),
            spend=spend_log.total_spend(),
            usage=sum(spend_log.settled_usages(), Usage()),
            message=message,
            notifies=bool(self._host.listeners.addresses),
            tasks_usd=round(sum(usage.cost_usd or 0.0 for log in task_logs for usage in log.settled_usages()), 6),
        )
