"""Comment: the delivery's one comment on its issue says how it stands.

Effect: one comment. Looks first: the comment that carries the delivery's hidden marker is edited. Key: the delivery.
"""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.forges.base import HostedForge
from perdure.adapters.forges.status import status_comment
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import to_the_end
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.host import Host
from perdure.models.crash import CrashPoint
from perdure.models.publishing import Commented, CommentInput


class Comments:
    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn
    async def comment(self, work: CommentInput) -> Commented:
        """Raises ForgeRefused, ForgeUnavailable, Superseded."""
        async with self._host.lease(work.delivery) as (workspace, lease):
            now_doing(doing="telling the issue")
            lease.check()
            return await to_the_end(self._comment, workspace.vault, work)

    def _comment(self, vault: Vault, work: CommentInput) -> Commented:
        contract = self._host.contract(vault, work.delivery, work.policy)
        forge = self._host.forges.forge(contract.repository)
        if contract.issue is None or not isinstance(forge, HostedForge):
            return Commented()
        receipt, spend = self._host.receipt(work.delivery), self._host.spend(work.delivery).total()
        text = status_comment(work, contract, receipt, spend)
        url = forge.comment(contract.issue.number, work.delivery, text)
        crash_point(CrashPoint.AFTER_COMMENT)
        return Commented(url=url)
