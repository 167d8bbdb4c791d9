"""Land: move the integration branch of a backlog to the delivery's one commit, tested exactly as it lands.

Effect: that branch on the remote, by a push with a lease; for a task of a plan, a branch of the vault. Looks first: its
tip; a commit that is there already has landed, and a branch that somebody else has moved is left alone. Key: the branch
and the commit it is moved from. No model output chooses host, repository or branch.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from activities.rebase import landing_trailers
from perdure.adapters.git.landing import find_landed, land_in_vault, land_on_remote, vault_branch_head
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.models.crash import CrashPoint
from perdure.models.errors import Diverged
from perdure.models.landing import LandInput, LandResult
from perdure.models.phases import Step


class LandActivity(OnHost):
    """The activity that lands a delivery's commit."""

    @activity.defn(name=Step.LAND)
    async def land(self, work: LandInput) -> LandResult:
        """Move the integration branch to the delivery's commit, and return where the branch is; the result has no
        commit where somebody else moved the branch first. Raises ForgeRefused, ForgeUnavailable (the workflow waits and
        tries again), Diverged, Superseded."""
        async with self._host.lease_workspace(work.delivery) as (workspace, lease):
            update_heartbeat(doing=f"moving {work.place.branch}")
            result = await in_thread(_land_commit, workspace.vault.with_keys(self._host.forges), work)
            crash_point(CrashPoint.AFTER_LANDING)
            lease.check()
            return result


def _land_commit(vault: Vault, work: LandInput) -> LandResult:
    """Push the commit to the integration branch with a lease on `work.onto`, or move the branch in the vault where a
    plan's task lands. Where the branch is elsewhere, look whether the delivery's commit is on it already, by its
    trailers.

    Raises Diverged where the tests ran on another tree than the commit holds.
    """
    tree = vault.tree_of(work.commit)
    if work.tests is not None and work.tests.tree != tree:
        raise Diverged(f"tests ran on tree {work.tests.tree[:12]}, which is not what {work.commit[:12]} holds")
    branch, in_vault = work.place.branch, work.place.within is not None
    head = (land_in_vault if in_vault else land_on_remote)(vault, branch, work.onto, work.commit)
    commit = work.commit
    if head != commit:  # somebody was faster, or has built on what a killed attempt of ours had pushed
        head = vault_branch_head(vault, branch) if in_vault else vault.fetch_branch(branch) or head
        commit = find_landed(vault, work.onto, head, landing_trailers(work.delivery, work.place))
    if commit:
        return LandResult(commit=commit, head=head, summary=f"landed on {branch} as {commit[:7]}")
    return LandResult(head=head, summary=f"somebody else moved {branch} to {head[:7]}")
