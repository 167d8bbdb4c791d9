"""Vouch: say that an item's delivery is wanted by whoever sent its backlog, so that its request counts as theirs.

Effect: none. A backlog that came with this home's proof may name a repository or a checkout on its host; so may its
deliveries, whose requests only its workflow can write.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from perdure.models.landing import Vouched, VouchInput
from perdure.models.proof import proof, proves


class Vouching(OnHost):
    @activity.defn
    async def vouch(self, work: VouchInput) -> Vouched:
        """An empty proof where the backlog's own does not hold here."""
        key, given = self._host.home.key(), work.said.get("proof")
        said = {name: value for name, value in work.said.items() if name != "items"}
        if not isinstance(given, str) or not proves(given, key, work.backlog, said):
            return Vouched()
        return Vouched(proof=proof(key, work.workflow_id, work.request))
