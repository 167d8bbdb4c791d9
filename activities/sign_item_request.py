"""The signing of a backlog item's request, so that it counts as the request of whoever sent the backlog.

Effect: none. A backlog that came with this home's proof may name a repository or a checkout on its host; so may its
deliveries, whose requests only its workflow can write.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from perdure.models.landing import SignRequestInput, SignRequestResult
from perdure.models.proof import is_valid_proof, request_proof


class SignItemRequestActivity(OnHost):
    """The activity that signs the request of a backlog's item."""

    @activity.defn
    async def vouch(self, work: SignRequestInput) -> SignRequestResult:
        """Sign the request of an item's delivery with this home's key and return the proof; an empty one where the
        backlog's own proof does not hold here."""
        key, claimed_proof = self._host.home.key(), work.backlog_request.get("proof")
        request_fields = {name: value for name, value in work.backlog_request.items() if name != "items"}
        if not isinstance(claimed_proof, str) or not is_valid_proof(claimed_proof, key, work.backlog, request_fields):
            return SignRequestResult()
        return SignRequestResult(proof=request_proof(key, work.workflow_id, work.request))
