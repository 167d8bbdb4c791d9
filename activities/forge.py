"""The activities that need the forge's token: they run where it is. No model output chooses host, repository or branch.

check_access       no effect: could this delivery be published? Before a cent is spent
publish_artifacts  one commit on the artifact branch; files that are there already are adopted. Key: the delivery
push_branch        the branch on the remote; one that is there is done, one that moved is left alone. Key: the branch
open_pull_request  the branch and one pull request; looks first at both. Key: the head branch
comment            the delivery's one comment on its issue, found by its hidden marker and edited. Key: the delivery
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.forges import artifacts
from perdure.adapters.forges.base import HostedForge, Proposal
from perdure.adapters.forges.body import Looks, body, title
from perdure.adapters.forges.pictures import picture_files
from perdure.adapters.forges.status import status_comment
from perdure.adapters.forges.template import read_template
from perdure.adapters.git.first import FIRST_COMMIT
from perdure.adapters.git.publish import commits_between, publish, publish_first, try_out
from perdure.adapters.git.remote import remote_heads
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
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
from perdure.models import publishing
from perdure.models.contract import Contract
from perdure.models.crash import CrashPoint
from perdure.models.phases import Step


class Publishing(OnHost):
    @activity.defn
    async def check_access(self, work: publishing.CheckInput) -> publishing.Checked:
        """Raises ForgeRefused, which names what is missing, and ForgeUnavailable."""
        now_doing(doing="asking the forge")
        return await in_thread(self._check, work)

    def _check(self, work: publishing.CheckInput) -> publishing.Checked:
        vault: Vault = Workspace.open(self._host.home, work.delivery).vault
        contract = self._host.contract(vault, work.delivery, work.contract)
        forge = self._host.forges.forge(contract.repository)
        if not isinstance(forge, HostedForge):
            return publishing.Checked()
        branches = tuple(contract.branches.values()) or (contract.branch,)
        found = forge.check(contract.base, branches, empty=contract.base_sha == FIRST_COMMIT)
        if self._host.forges.credential(contract.repository) is None:  # over ssh git is not the API's token
            try_out(vault.with_keys(self._host.forges), contract)
        return publishing.Checked(notes=found.notes)

    @activity.defn
    async def publish_artifacts(self, work: publishing.ArtifactsInput) -> publishing.Artifacts:
        """Raises ForgeRefused (a branch of that name that is not ours), ForgeUnavailable, Superseded."""
        async with self._host.lease(work.delivery) as (workspace, lease):
            now_doing(doing="publishing plan, tests and review")
            lease.check()
            return await to_the_end(self._publish, workspace.vault.with_keys(self._host.forges), work)

    def _publish(self, vault: Vault, work: publishing.ArtifactsInput) -> publishing.Artifacts:
        contract = self._host.contract(vault, work.delivery, work.contract)
        branch = contract.config.artifacts.branch
        forge = self._host.forges.forge(contract.repository)
        if not branch or not isinstance(forge, HostedForge):
            return publishing.Artifacts()
        screenshots = read_screenshots(vault, work.delivery, work.screenshots)
        report = read_report(vault, work.delivery, work.report)
        tried = report.experiment.line if report is not None and report.experiment is not None else ""
        files = artifacts.artifact_files(
            read_plan(vault, work.delivery, work.plan),
            read_review(vault, work.delivery, work.review),
            report,
            self._host.receipt(work.delivery).model_copy(update={"experiment": tried}),
            read_findings(vault, work.delivery, work.findings),
            screenshots,
            picture_files(screenshots, lambda shot: read_picture(vault, work.delivery, shot)),
        )
        publish_first(vault, contract)  # before any other branch: a forge takes the first one for the default
        commit = artifacts.publish(vault, contract.repository, branch, work.delivery, files)
        crash_point(CrashPoint.AFTER_ARTIFACTS)
        links = {name: artifacts.permalink(forge.web, commit, work.delivery, name) for name in files}
        return publishing.Artifacts(links=links)

    @activity.defn
    async def push_branch(self, work: publishing.PushInput) -> publishing.Pushed:
        """Raises ForgeRefused, ForgeUnavailable (the workflow waits, visibly, and tries again), Superseded."""
        async with self._host.lease(work.delivery) as (workspace, lease):
            contract = await in_thread(self._host.contract, workspace.vault, work.delivery, work.contract)
            now_doing(doing="pushing")
            vault = workspace.vault.with_keys(self._host.forges)
            pushed = await in_thread(_pushed, vault, contract, work)
            crash_point(CrashPoint.AFTER_PUSH)
            lease.check()
            return pushed

    @activity.defn(name=Step.OPEN_PULL_REQUEST)
    async def open_pull_request(self, work: publishing.ShipInput) -> publishing.Shipped:
        """Raises ForgeRefused, ForgeUnavailable (the workflow waits, visibly, and tries again), Superseded."""
        async with self._host.lease(work.delivery) as (workspace, lease):
            contract = await in_thread(self._host.contract, workspace.vault, work.delivery, work.contract)
            now_doing(doing="pushing")
            await in_thread(_push, workspace.vault.with_keys(self._host.forges), contract, work)
            crash_point(CrashPoint.AFTER_PUSH)
            lease.check()
            return await to_the_end(_open, self._host, workspace.vault, contract, work)

    @activity.defn
    async def comment(self, work: publishing.CommentInput) -> publishing.Commented:
        """Raises ForgeRefused, ForgeUnavailable, Superseded."""
        async with self._host.lease(work.delivery) as (workspace, lease):
            now_doing(doing="telling the issue")
            lease.check()
            return await to_the_end(self._comment, workspace.vault, work)

    def _comment(self, vault: Vault, work: publishing.CommentInput) -> publishing.Commented:
        contract = self._host.contract(vault, work.delivery, work.contract)
        forge = self._host.forges.forge(contract.repository)
        if contract.issue is None or not isinstance(forge, HostedForge):
            return publishing.Commented()
        receipt, spend = self._host.receipt(work.delivery), self._host.spend(work.delivery).total()
        text = status_comment(work, contract, receipt, spend)
        url = forge.comment(contract.issue.number, work.delivery, text)
        crash_point(CrashPoint.AFTER_COMMENT)
        return publishing.Commented(url=url)


def _pushed(vault: Vault, contract: Contract, work: publishing.PushInput) -> publishing.Pushed:
    _push(vault, contract, work)
    made = commits_between(vault, contract.head or contract.base_sha, work.head)
    return publishing.Pushed(summary=f"{made} commit{'' if made == 1 else 's'} pushed to {work.branch}")


def _push(vault: Vault, contract: Contract, work: publishing.PushInput | publishing.ShipInput) -> None:
    publish(
        vault,
        contract,
        branch=work.branch,
        head=work.head,
        tested=work.tests.tree if work.tests is not None else "",
        again=f"perdure retry {work.workflow_id}",
    )


def _base(vault: Vault, contract: Contract, work: publishing.ShipInput) -> str:
    """The branch it is into; of one of a stack the backlog's base, where the branch it began from is gone by now."""
    place = contract.landing
    if place is None or not place.ships or work.base in remote_heads(vault.url, vault.keys).branches:
        return work.base
    return place.branch


def _open(host: Host, vault: Vault, contract: Contract, work: publishing.ShipInput) -> publishing.Shipped:
    forge = host.forges.forge(contract.repository)
    if forge is None:
        message = f"{work.branch} is pushed; opening pull requests there is not supported yet: open it yourself"
        return publishing.Shipped(message=message, summary=f"pushed {work.branch}")
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
        base=_base(vault.with_keys(host.forges), contract, work),
        draft=work.draft,
        labels=contract.config.ship.labels,
        reviewers=contract.config.ship.reviewers,
        beside=pictures,
    )
    opened = forge.create(proposal)
    crash_point(CrashPoint.AFTER_PULL_REQUEST)
    pull = opened.pull_request
    return publishing.Shipped(
        pull_request=pull,
        message="; ".join(opened.notes),
        summary=f"pull request #{pull.number}" + (" (draft)" if pull.draft else ""),
    )
