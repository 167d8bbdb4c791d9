"""The spending of a delivery by this host's spend log: for the Treasury, when the delivery itself is silent.

Effect: none.
"""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.host import Host
from perdure.models.ledger import Spend
from perdure.models.treasury import SpentInput


class SpendLogs:
    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn
    async def spent(self, work: SpentInput) -> Spend:
        """All its runs together; nothing where nothing was ever paid."""
        return await in_thread(self._host.spend(work.delivery).total)
