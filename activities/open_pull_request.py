"""Open pull request: push the delivery's branch, then open exactly one pull request for it.

Effect: the branch on the remote and one pull request. Looks first: the remote's tip, the forge's open pull request of
this head. Key: the head branch. No model output chooses host, repository, base or branch.
"""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.forges.base import Proposal
from perdure.adapters.forges.body import body, title
from perdure.adapters.forges.template import read_template
from perdure.adapters.git.branch import push
from perdure.adapters.git.remote import remote_tip
from perdure.adapters.git.vault import Vault
from perdure.adapters.host.attempt import now_doing
from perdure.adapters.host.crash import crash_point
from perdure.adapters.host.host import Host
from perdure.adapters.host.threads import in_thread, to_the_end
from perdure.adapters.turn.written import read_plan, read_review
from perdure.models.contract import Contract
from perdure.models.crash import CrashPoint
from perdure.models.errors import Diverged, ForgeRefused
from perdure.models.phases import Step
from perdure.models.work import ShipInput, Shipped


class PullRequests:
    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn(name=Step.OPEN_PULL_REQUEST)
    async def open_pull_request(self, work: ShipInput) -> Shipped:
        """Raises ForgeRefused, ForgeUnavailable (the workflow waits, visibly, and tries again), Superseded."""
        async with self._host.lease(work.delivery) as (workspace, lease):
            contract = await in_thread(self._host.contract, workspace.vault, work.delivery, work.policy)
            now_doing(doing="pushing")
            await in_thread(_push, workspace.vault.with_keys(self._host.forges), contract, work)
            crash_point(CrashPoint.AFTER_PUSH)
            lease.check()
            return await to_the_end(_open, self._host, workspace.vault, contract, work)


def _push(vault: Vault, contract: Contract, work: ShipInput) -> None:
    """With a lease on what the remote has: absent, or something this delivery pushed before, never others' work."""
    if work.tests is not None and work.tests.tree != vault.tree_of(work.head):
        raise Diverged(f"tests ran on tree {work.tests.tree[:12]}, which is not what {work.head[:12]} holds")
    tip = remote_tip(contract.repository, work.branch, vault.keys)
    if tip is not None and tip != work.head and not _ours(vault, contract, work, tip):
        raise ForgeRefused(
            f"branch {work.branch} on the remote holds commits that are not this delivery's ({tip[:12]})",
            where=contract.repository,
            fix=f"rename or delete that branch, then: perdure retry {work.workflow_id}",
        )
    push(vault, contract.repository, work.head, work.branch, tip)


def _ours(vault: Vault, contract: Contract, work: ShipInput, tip: str) -> bool:
    """What an earlier push or an earlier run put there: an ancestor of the head, or a commit with our trailer."""
    if vault.fetch_branch(work.branch) != tip:
        return False
    if vault.is_ancestor(tip, work.head):
        return True
    return f"Perdure-Delivery: {work.delivery}" in vault.git.text("log", "-1", "--format=%B", "--end-of-options", tip)


def _open(host: Host, vault: Vault, contract: Contract, work: ShipInput) -> Shipped:
    forge = host.forges.forge(contract.repository)
    if forge is None:
        message = f"{work.branch} is pushed; opening pull requests there is not supported yet: open it yourself"
        return Shipped(message=message, summary=f"pushed {work.branch}")
    plan = read_plan(vault, work.delivery, work.plan)
    review = read_review(vault, work.delivery, work.review)
    form = read_template(vault, contract.base_sha)
    written = body(work, contract, plan, review, host.receipt(work.delivery), form)
    proposal = Proposal(
        delivery=work.delivery,
        title=title(work),
        body=written,
        head=work.branch,
        head_sha=work.head,
        base=work.base,
        draft=work.draft,
        labels=contract.config.ship.labels,
        reviewers=contract.config.ship.reviewers,
    )
    opened = forge.create(proposal)
    crash_point(CrashPoint.AFTER_PULL_REQUEST)
    pull = opened.pull_request
    return Shipped(
        pull_request=pull,
        message="; ".join(opened.notes),
        summary=f"pull request #{pull.number}" + (" (draft)" if pull.draft else ""),
    )
