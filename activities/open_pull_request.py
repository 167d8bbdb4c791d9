"""Open pull request: push the delivery's branch, then open exactly one pull request for it.

Effect: the branch on the remote and one pull request. Looks first: the remote's tip, the forge's open pull request of
this head. Key: the head branch. No model output chooses host, repository, base or branch.
"""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.forges.base import HostedForge, Proposal
from perdure.adapters.forges.body import Looks, body, title
from perdure.adapters.forges.pictures import picture_files
from perdure.adapters.forges.template import read_template
from perdure.adapters.git.publish import publish
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread, to_the_end
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.turn.written import (
    read_findings,
    read_picture,
    read_plan,
    read_report,
    read_review,
    read_screenshots,
)
from perdure.models.contract import Contract
from perdure.models.crash import CrashPoint
from perdure.models.phases import Step
from perdure.models.publishing import ShipInput, Shipped


class PullRequests:
    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn(name=Step.OPEN_PULL_REQUEST)
    async def open_pull_request(self, work: ShipInput) -> Shipped:
        """Raises ForgeRefused, ForgeUnavailable (the workflow waits, visibly, and tries again), Superseded."""
        async with self._host.lease(work.delivery) as (workspace, lease):
            contract = await in_thread(self._host.contract, workspace.vault, work.delivery, work.policy)
            now_doing(doing="pushing")
            await in_thread(
                publish,
                workspace.vault.with_keys(self._host.forges),
                contract,
                branch=work.branch,
                head=work.head,
                tested=work.tests.tree if work.tests is not None else "",
                again=f"perdure retry {work.workflow_id}",
            )
            crash_point(CrashPoint.AFTER_PUSH)
            lease.check()
            return await to_the_end(_open, self._host, workspace.vault, contract, work)


def _open(host: Host, vault: Vault, contract: Contract, work: ShipInput) -> Shipped:
    forge = host.forges.forge(contract.repository)
    if forge is None:
        message = f"{work.branch} is pushed; opening pull requests there is not supported yet: open it yourself"
        return Shipped(message=message, summary=f"pushed {work.branch}")
    plan = read_plan(vault, work.delivery, work.plan)
    review = read_review(vault, work.delivery, work.review)
    form = read_template(vault, contract.base_sha)
    screenshots = read_screenshots(vault, work.delivery, work.screenshots)
    local = not isinstance(forge, HostedForge)
    report = read_report(vault, work.delivery, work.tests.report if work.tests is not None else "")
    looks = Looks(read_findings(vault, work.delivery, work.findings), screenshots, beside=local, report=report)
    tried = work.tests.experiment if work.tests is not None else ""
    receipt = host.receipt(work.delivery).model_copy(update={"experiment": tried})
    written = body(work, contract, plan, review, receipt, form, looks)
    pictures = picture_files(screenshots, lambda shot: read_picture(vault, work.delivery, shot)) if local else {}
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
        beside=pictures,
    )
    opened = forge.create(proposal)
    crash_point(CrashPoint.AFTER_PULL_REQUEST)
    pull = opened.pull_request
    return Shipped(
        pull_request=pull,
        message="; ".join(opened.notes),
        summary=f"pull request #{pull.number}" + (" (draft)" if pull.draft else ""),
    )
