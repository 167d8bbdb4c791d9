"""Land: move the integration branch of a backlog to the delivery's one commit, tested exactly as it lands.

Effect: that branch on the remote, by a push with a lease; for a task of a plan, a branch of the vault. Looks first: its
tip; a commit that is there already has landed, and a branch that somebody else has moved is left alone. Key: the branch
and the commit it is moved from. No model output chooses host, repository or branch.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from activities.rebase import landing_trailers
from perdure.adapters.git.landing import find_landed, head_here, land, land_here
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.models.crash import CrashPoint
from perdure.models.errors import Diverged
from perdure.models.landing import Landed, LandInput
from perdure.models.phases import Step


class LandingHere(OnHost):
    @activity.defn(name=Step.LAND)
    async def land(self, work: LandInput) -> Landed:
        """Raises ForgeRefused, ForgeUnavailable (the workflow waits and tries again), Diverged, Superseded."""
        async with self._host.lease(work.delivery) as (workspace, lease):
            now_doing(doing=f"moving {work.place.branch}")
            landed = await in_thread(_land, workspace.vault.with_keys(self._host.forges), work)
            crash_point(CrashPoint.AFTER_LANDING)
            lease.check()
            return landed


def _land(vault: Vault, work: LandInput) -> Landed:
    tree = vault.tree_of(work.commit)
    if work.tests is not None and work.tests.tree != tree:
        raise Diverged(f"tests ran on tree {work.tests.tree[:12]}, which is not what {work.commit[:12]} holds")
    branch, here = work.place.branch, work.place.within is not None
    head = (land_here if here else land)(vault, branch, work.onto, work.commit)
    commit = work.commit
    if head != commit:  # somebody was faster; or has built on what an attempt of ours had pushed
        head = head_here(vault, branch) if here else vault.fetch_branch(branch) or head
        commit = find_landed(vault, work.onto, head, landing_trailers(work.delivery, work.place))
    if commit:
        return Landed(commit=commit, head=head, summary=f"landed on {branch} as {commit[:7]}")
    return Landed(head=head, summary=f"somebody else moved {branch} to {head[:7]}")
