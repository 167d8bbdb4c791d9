"""Push branch: bring a delivery's commits to the remote, and open nothing.

Effect: the branch on the remote. Looks first: the remote's tip; a branch that is there already is done, one that has
moved is left alone. Key: the branch. No model output chooses host, repository or branch.
"""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.git.publish import commits_between, publish
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.host import Host
from perdure.models.contract import Contract
from perdure.models.crash import CrashPoint
from perdure.models.publishing import Pushed, PushInput


class Pushing:
    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn
    async def push_branch(self, work: PushInput) -> Pushed:
        """Raises ForgeRefused, ForgeUnavailable (the workflow waits, visibly, and tries again), Superseded."""
        async with self._host.lease(work.delivery) as (workspace, lease):
            contract = await in_thread(self._host.contract, workspace.vault, work.delivery, work.policy)
            now_doing(doing="pushing")
            vault = workspace.vault.with_keys(self._host.forges)
            pushed = await in_thread(_push, vault, contract, work)
            crash_point(CrashPoint.AFTER_PUSH)
            lease.check()
            return pushed


def _push(vault: Vault, contract: Contract, work: PushInput) -> Pushed:
    publish(
        vault,
        contract,
        branch=work.branch,
        head=work.head,
        tested=work.tests.tree if work.tests is not None else "",
        again=f"perdure retry {work.workflow_id}",
    )
    made = commits_between(vault, contract.head or contract.base_sha, work.head)
    return Pushed(summary=f"{made} commit{'' if made == 1 else 's'} pushed to {work.branch}")
