"""The activities of a delivery that need the forge's token, and run where that is. No model output chooses host,
repository or branch.

check_access       no effect: asks, before a cent is spent, whether this delivery could be published
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
from perdure.adapters.forges.body import EngineObservations, pull_request_body, pull_request_title
from perdure.adapters.forges.markdown import picture_files
from perdure.adapters.forges.status import status_comment
from perdure.adapters.forges.template import read_template
from perdure.adapters.git.publish import check_push_allowed, count_commits, publish_branch, publish_first_commit
from perdure.adapters.git.remote import FIRST_COMMIT, remote_heads
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread, in_thread_to_end
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.sealed_facts import (
    link_fact,
    pull_request_fact,
    require_comment,
    require_commit,
    require_no_secret,
    require_publishable,
    require_verdict,
)
from perdure.adapters.worker.sealed_publishing import restate_artifacts, restate_comment, restate_pull_request
from perdure.adapters.worker.turn.documents import (
    read_findings,
    read_picture,
    read_plan,
    read_report,
    read_review,
    read_screenshots,
)
from perdure.models.crash import CrashPoint
from perdure.models.delivery import publishing
from perdure.models.delivery.turn import Contract
from perdure.models.errors import Diverged
from perdure.models.phases import Step
from perdure.text import shell_word


class ForgeActivities(OnHost):
    """The activities of a delivery that need the forge's token."""

    @activity.defn
    async def check_access(self, work: publishing.AccessCheckInput) -> publishing.AccessCheckResult:
        """Check that the delivery's branch could be pushed and its pull request opened, and return notes for people
        about that. Nothing is checked, and there are no notes, when the origin has no forge with accounts. Raises
        ForgeRefused, which names what is missing, and ForgeUnavailable."""
        update_heartbeat(doing="asking the forge")
        return await in_thread(self._check_forge, work)

    def _check_forge(self, work: publishing.AccessCheckInput) -> publishing.AccessCheckResult:
        """Ask the forge whether the delivery's branches could be pushed and a pull request opened, and return its
        notes; without a forge with accounts return none. When no token is used for git, as over ssh, ask the remote by
        dry runs too. Raises ForgeRefused when something is missing, ForgeUnavailable when the forge does not answer."""
        vault: Vault = Workspace.open(self._host.home, work.delivery).vault
        contract = self._host.load_contract(vault, work.delivery, work.contract)
        forge = self._host.forges.forge(contract.repository)
        if not isinstance(forge, HostedForge):
            return publishing.AccessCheckResult()
        branches = tuple(contract.branches.values()) or (contract.branch,)
        access = forge.check_access(contract.base, branches, empty=contract.base_sha == FIRST_COMMIT)
        if self._host.forges.credential(contract.repository) is None:  # git over ssh has a key of its own
            check_push_allowed(vault.with_keys(self._host.forges), contract)
        return publishing.AccessCheckResult(notes=access.notes)

    @activity.defn
    async def publish_artifacts(self, work: publishing.ArtifactLinksInput) -> publishing.ArtifactLinks:
        """Push plan, test report, review, findings, screenshots and receipt as one commit to the artifact branch, and
        return their addresses by name; in an empty repository its first commit is pushed before. Nothing is pushed and
        none returned when no branch is configured, or the forge has no accounts.

        Raises ForgeRefused when a branch of that name is not Perdure's, ForgeUnavailable when the forge does not
        answer, Superseded when a newer attempt has taken over the workspace.
        """
        async with self._host.lease_workspace(work.delivery) as (workspace, lease):
            update_heartbeat(doing="publishing plan, tests and review")
            lease.check()
            return await in_thread_to_end(self._publish_files, workspace.vault.with_keys(self._host.forges), work)

    def _publish_files(self, vault: Vault, work: publishing.ArtifactLinksInput) -> publishing.ArtifactLinks:
        """Collect the delivery's documents and pictures, push them as one commit on the artifact branch, and return the
        address of each by name; none without such a branch or a forge with accounts. In an empty repository the first
        commit is pushed before. Raises ForgeRefused, ForgeUnavailable."""
        contract, facts = self._host.load_contract(vault, work.delivery, work.contract), self._host.facts(work.delivery)
        work = restate_artifacts(facts, contract, work)
        branch = contract.config.artifacts.branch
        forge = self._host.forges.forge(contract.repository)
        if not branch or not isinstance(forge, HostedForge):
            return publishing.ArtifactLinks()
        screenshots = read_screenshots(vault, work.delivery, work.screenshots)
        report = read_report(vault, work.delivery, work.report)
        experiment_line = report.experiment.summary_line if report is not None and report.experiment is not None else ""
        files = artifacts.artifact_files(
            read_plan(vault, work.delivery, work.plan),
            read_review(vault, work.delivery, work.review),
            report,
            self._host.receipt(work.delivery).model_copy(update={"experiment": experiment_line}),
            read_findings(vault, work.delivery, work.findings),
            screenshots,
            picture_files(screenshots, lambda shot: read_picture(vault, work.delivery, shot)),
        )
        publish_first_commit(vault, contract)  # before any other branch: a forge takes the first one for the default
        commit = artifacts.publish_artifacts(vault, contract.repository, branch, work.delivery, files)
        crash_point(CrashPoint.AFTER_ARTIFACTS)
        links = {name: artifacts.permalink(forge.web_url, commit, work.delivery, name) for name in files}
        facts.seal_facts(*(link_fact(name, url) for name, url in links.items()))
        return publishing.ArtifactLinks(links=links)

    @activity.defn
    async def push_branch(self, work: publishing.PushInput) -> publishing.PushResult:
        """Push the delivery's branch, open no pull request, and return a line for people. Raises ForgeRefused when the
        remote refuses, ForgeUnavailable when it does not answer (the workflow waits and tries again), Superseded when a
        newer attempt has taken over the workspace, Diverged when the commit is not what was tested."""
        async with self._host.lease_workspace(work.delivery) as (workspace, lease):
            contract = await in_thread(self._host.load_contract, workspace.vault, work.delivery, work.contract)
            facts = self._host.facts(work.delivery)
            await in_thread(require_commit, facts, workspace.vault, contract, work.head)
            await in_thread(require_no_secret, facts, workspace.vault, contract, work.head, blockers=True)
            await in_thread(require_verdict, facts, contract, work.tests)
            update_heartbeat(doing="pushing")
            vault = workspace.vault.with_keys(self._host.forges)
            result = await in_thread(_push_and_count, vault, contract, work)
            crash_point(CrashPoint.AFTER_PUSH)
            lease.check()
            return result

    @activity.defn(name=Step.OPEN_PULL_REQUEST)
    async def open_pull_request(self, work: publishing.ShipInput) -> publishing.ShipResult:
        """Push the delivery's branch, open its one pull request, or update the one that is open, and return it. When
        the origin has no forge that Perdure speaks to, the result is a message instead.

        Raises ForgeRefused when remote or forge refuses, ForgeUnavailable when it does not answer (the workflow waits
        and tries again), Superseded when a newer attempt has taken over the workspace, Diverged when the commit is not
        what was tested.
        """
        async with self._host.lease_workspace(work.delivery) as (workspace, lease):
            contract = await in_thread(self._host.load_contract, workspace.vault, work.delivery, work.contract)
            facts = self._host.facts(work.delivery)
            await in_thread(require_publishable, facts, workspace.vault, contract, work)
            update_heartbeat(doing="pushing")
            await in_thread(_push_branch, workspace.vault.with_keys(self._host.forges), contract, work)
            crash_point(CrashPoint.AFTER_PUSH)
            lease.check()
            return await in_thread_to_end(_create_pull_request, self._host, workspace.vault, contract, work)

    @activity.defn
    async def comment(self, work: publishing.CommentInput) -> publishing.CommentResult:
        """Write the delivery's one comment on its issue, or edit it, and return its address; nothing is written, and
        the address is empty, when there is no issue, or no forge with accounts. Raises ForgeRefused, ForgeUnavailable,
        Superseded when a newer attempt has taken over the workspace, and Diverged when it names a verdict or a pull
        request that this home has not made."""
        async with self._host.lease_workspace(work.delivery) as (workspace, lease):
            update_heartbeat(doing="telling the issue")
            lease.check()
            return await in_thread_to_end(self._write_comment, workspace.vault, work)

    def _write_comment(self, vault: Vault, work: publishing.CommentInput) -> publishing.CommentResult:
        """Write the delivery's status, with receipt and spending, as its one comment on its issue, in place of the
        earlier text; return the comment's address. Without an issue, or a forge with accounts, write nothing and return
        an empty one. Raises ForgeRefused, ForgeUnavailable, Diverged."""
        contract = self._host.load_contract(vault, work.delivery, work.contract)
        facts = self._host.facts(work.delivery)
        require_comment(facts, contract, work)
        work = restate_comment(facts, contract, work)
        forge = self._host.forges.forge(contract.repository)
        if contract.issue is None or not isinstance(forge, HostedForge):
            return publishing.CommentResult()
        receipt, spend = self._host.receipt(work.delivery), self._host.spend_log(work.delivery).total_spend()
        text = status_comment(work, contract, receipt, spend)
        url = forge.write_status_comment(contract.issue.number, work.delivery, text)
        crash_point(CrashPoint.AFTER_COMMENT)
        return publishing.CommentResult(url=url)


def _push_and_count(vault: Vault, contract: Contract, work: publishing.PushInput) -> publishing.PushResult:
    """Push the delivery's branch and return a line with the number of its commits. Raises as `_push_branch`: Diverged,
    ForgeRefused, ForgeUnavailable."""
    _push_branch(vault, contract, work)
    commit_count = count_commits(vault, contract.head or contract.base_sha, work.head)
    return publishing.PushResult(
        summary=f"{commit_count} commit{'' if commit_count == 1 else 's'} pushed to {work.branch}"
    )


def _push_branch(vault: Vault, contract: Contract, work: publishing.PushInput | publishing.ShipInput) -> None:
    """Push `work.head` to the delivery's branch, in an empty repository its first commit before. Safe to repeat. Raises
    Diverged when the commit does not hold the tree that was tested (if any was), ForgeRefused when the remote refuses,
    ForgeUnavailable when it does not answer."""
    if work.branch not in (contract.branch, *contract.branches.values()):
        raise Diverged(f"{work.branch} is no branch of this delivery")
    publish_branch(
        vault,
        contract,
        branch=work.branch,
        head=work.head,
        tested_tree=work.tests.tree if work.tests is not None else "",
        retry_command=f"perdure retry {shell_word(work.workflow_id)}",
    )


def _pull_request_base(vault: Vault, contract: Contract) -> str:
    """Return the branch that the pull request is opened into: the contract's base; in a stack, when that branch is gone
    from the remote by now, the backlog's base. Asks the remote only for a stack."""
    landing = contract.landing
    if landing is None or not landing.ships or contract.base in remote_heads(vault.url, vault.keys).branches:
        return contract.base
    return landing.branch


def _create_pull_request(
    host: Host, vault: Vault, contract: Contract, work: publishing.ShipInput
) -> publishing.ShipResult:
    """Render title and body of the delivery's pull request and open it on the forge, or update the one that is open;
    return it with the forge's notes.

    Without a forge that Perdure speaks to, return only a message that the branch is pushed. A local forge also gets the
    pictures, which it keeps beside the pull request. Raises ForgeRefused, ForgeUnavailable.
    """
    forge = host.forges.forge(contract.repository)
    if forge is None:
        message = f"{work.branch} is pushed; opening pull requests there is not supported yet: open it yourself"
        return publishing.ShipResult(message=message, summary=f"pushed {work.branch}")
    spend = host.spend_log(work.delivery).total_spend()
    work = restate_pull_request(host.facts(work.delivery), vault, contract, spend, work)
    plan = read_plan(vault, work.delivery, work.plan)
    review = read_review(vault, work.delivery, work.review)
    template = read_template(vault, contract.base_sha)
    screenshots = read_screenshots(vault, work.delivery, work.screenshots)
    is_local = not isinstance(forge, HostedForge)
    report = read_report(vault, work.delivery, work.tests.report if work.tests is not None else "")
    evidence = EngineObservations(
        read_findings(vault, work.delivery, work.findings), screenshots, pictures_beside=is_local, report=report
    )
    experiment_line = work.tests.experiment if work.tests is not None else ""
    receipt = host.receipt(work.delivery).model_copy(update={"experiment": experiment_line})
    body_text = pull_request_body(work, contract, plan, review, receipt, template, evidence)
    pictures = picture_files(screenshots, lambda shot: read_picture(vault, work.delivery, shot)) if is_local else {}
    proposal = Proposal(
        delivery=work.delivery,
        title=pull_request_title(work),
        body=body_text,
        head=work.branch,
        head_sha=work.head,
        base=_pull_request_base(vault.with_keys(host.forges), contract),
        draft=work.draft,
        draft_reason=work.draft_reason,
        labels=contract.config.ship.labels,
        reviewers=contract.config.ship.reviewers,
        attachments=pictures,
    )
    result = forge.open_or_update_pull(proposal)
    crash_point(CrashPoint.AFTER_PULL_REQUEST)
    pull = result.pull_request
    host.facts(work.delivery).seal_facts(pull_request_fact(pull))
    return publishing.ShipResult(
        pull_request=pull,
        message="; ".join(result.notes),
        summary=f"pull request #{pull.number}" + (" (draft)" if pull.draft else ""),
    )
