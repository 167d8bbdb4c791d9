"""Check access: whether this delivery could be published, before a cent is spent.

Effect: none. Runs where the forge's token is.
"""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.forges.base import HostedForge
from perdure.adapters.git.first import FIRST_COMMIT
from perdure.adapters.git.publish import try_out
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.host import Host
from perdure.models.publishing import Checked, CheckInput


class AccessCheck:
    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn
    async def check_access(self, work: CheckInput) -> Checked:
        """Raises ForgeRefused, which names what is missing, and ForgeUnavailable."""
        now_doing(doing="asking the forge")
        return await in_thread(self._check, work)

    def _check(self, work: CheckInput) -> Checked:
        vault: Vault = Workspace.open(self._host.home, work.delivery).vault
        contract = self._host.contract(vault, work.delivery, work.policy)
        forge = self._host.forges.forge(contract.repository)
        if not isinstance(forge, HostedForge):
            return Checked()
        branches = tuple(contract.branches.values()) or (contract.branch,)
        found = forge.check(contract.base, branches, empty=contract.base_sha == FIRST_COMMIT)
        if self._host.forges.credential(contract.repository) is None:  # over ssh git is not the API's token
            try_out(vault.with_keys(self._host.forges), contract)
        return Checked(notes=found.notes)
