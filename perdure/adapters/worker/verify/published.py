"""The state of a delivery at its remote and forge now."""

from __future__ import annotations

from perdure.adapters.forges.select import Forges
from perdure.adapters.git.remote import remote_tip
from perdure.models.limits import VERIFY_PAGE
from perdure.models.verify import PublishedFacts, PullFact


def published(forges: Forges, repository: str, branch: str, delivery: str) -> PublishedFacts:
    """Raises ForgeRefused, ForgeUnavailable."""
    tip = remote_tip(repository, branch, forges)
    forge = forges.forge(repository)
    if forge is None:
        return PublishedFacts(tip=tip)
    pulls = [
        PullFact(number=pull.number, state=pull.state, head=pull.head_sha, ours=pull.ours)
        for pull in forge.of_branch(branch, delivery)
    ]
    pulls.sort(key=lambda pull: (pull.state != "open" and not pull.ours, -pull.number))  # what counts comes first
    return PublishedFacts(tip=tip, forge=True, pulls=tuple(pulls[:VERIFY_PAGE]))
