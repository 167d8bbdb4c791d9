"""Close: give back what a delivery held on this host, and write its receipt. Never the last checkpoint."""

from __future__ import annotations

import logging

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.git.checkouts import sweep as sweep_checkouts
from perdure.adapters.git.door import GitError
from perdure.adapters.git.workspace import Workspace, sweep
from perdure.adapters.repository.ports import release
from perdure.adapters.system.removal import discard
from perdure.adapters.system.threads import in_thread
from perdure.models.errors import WorkspaceLost
from perdure.models.ledger import Usage
from perdure.models.work import Closed, CloseInput

log = logging.getLogger(__name__)


class Closing(OnHost):
    @activity.defn(name="close")
    async def close(self, work: CloseInput) -> Closed:
        """Ports are released and the worktree removed, or kept for a while; a removal that fails is only logged."""
        try:
            async with self._host.lease(work.delivery) as (workspace, _):
                message = await in_thread(self._tidy, workspace, work.keep)
        except WorkspaceLost as lost:
            message = lost.what
        if message:
            log.warning("%s: %s", work.delivery, message)
        return await in_thread(self._closed, work.delivery, work.tasks, message)

    def _tidy(self, workspace: Workspace, keep: bool) -> str:
        release(self._host.home, workspace.delivery)
        directory = self._host.home.workspace(workspace.delivery)
        for left in (self._host.home.trials(workspace.delivery), directory / "clean", directory / ".clean.kept"):
            discard(left)  # of runs that were killed
        workspace.end()
        message = "" if keep else workspace.remove(hands_over=True)
        packing = ""
        try:
            workspace.vault.pack_when_it_pays()
        except GitError as error:
            packing = str(error)
        sweep_checkouts(self._host.home)
        return "; ".join(part for part in (message, packing, *sweep(self._host.home)) if part)

    def _closed(self, delivery: str, tasks: tuple[str, ...], message: str) -> Closed:
        paid = self._host.spend(delivery)
        logs = self._host.take_in(delivery, tasks)
        return Closed(
            receipt=self._host.receipt(delivery),
            spend=paid.total(),
            usage=sum(paid.settled(), Usage()),
            message=message,
            notifies=bool(self._host.listeners.addresses),
            tasks_usd=round(sum(usage.cost_usd or 0.0 for log in logs for usage in log.settled()), 6),
        )
