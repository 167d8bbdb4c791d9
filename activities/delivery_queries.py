"""Activities that answer questions about a delivery from vault, journals, remote and forge, without taking its lease:
facts for `perdure verify`, pages of text, spending, the check of an edited plan.

Clients start `verify`, `verify_published`, `read`, `read_issue` and `keep` apart from the delivery's workflow, so that
nothing of them goes into its history; the Treasury starts `spent`, the delivery's workflow `check_plan`. Only
`store_text` (activity `keep`) has an effect: an artifact, and the same text twice is one.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.checks.verdict import verdict_of
from perdure.adapters.git.remote import remote_tip
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.terms import fetch_issue
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker import verify
from perdure.adapters.worker.sealed_facts import plan_fact
from perdure.adapters.worker.turn.delivery_text import delivery_page
from perdure.adapters.worker.turn.documents import check_plan, read_report
from perdure.models.budget.ledger import Spend
from perdure.models.budget.treasury import SpentInput
from perdure.models.delivery.decisions import CheckPlanInput, CheckPlanResult, StoredText, StoreTextInput
from perdure.models.delivery.turn import TextPage, VaultReadInput
from perdure.models.delivery.verify import (
    ExperimentFact,
    HostFacts,
    PublishedFacts,
    PublishedFactsInput,
    PullFact,
    ReportFact,
    VerifyInput,
)
from perdure.models.errors import InvalidRequest, WorkspaceLost
from perdure.models.issue import ForgeIssue, ReadIssueInput
from perdure.models.limits import HANDED_IN_BYTES, VERIFY_PAGE
from perdure.text import shorten


class QueryActivities(OnHost):
    """The activities that answer questions about a delivery."""

    @activity.defn
    async def verify(self, work: VerifyInput) -> HostFacts:
        """Collect the facts by which `perdure verify` checks a delivery's receipt, a page of them: everything is on the
        first page, only checkpoints and commits on later ones. Raises WorkspaceLost when this host has no workspace of
        the delivery."""
        return await in_thread(self._collect_facts, work)

    @activity.defn
    async def verify_published(self, work: PublishedFactsInput) -> PublishedFacts:
        """Collect what remote and forge have of a delivery: the tip of its branch, and its pull requests. It runs where
        the forge's token is. Raises ForgeRefused or ForgeUnavailable when remote or forge does not answer,
        WorkspaceLost when this host does not have the delivery."""
        return await in_thread(self._collect_published, work)

    def _collect_facts(self, work: VerifyInput) -> HostFacts:
        """Read from the vault the page of checkpoints and commits that begins at `work.offset`, the offset of the next
        page, if any, and what is broken. The first page also has how the delivery began, its tree, the verdict of its
        test report, and its spending and deaths from the host's logs. Raises WorkspaceLost when this host does not have
        the delivery."""
        vault, end = Workspace.open(self._host.home, work.delivery).vault, work.offset + VERIFY_PAGE
        all_checkpoints, broken = verify.checkpoints_to(vault, work.tip)
        broken = broken or (verify.missing_object(vault, work.tip) if not work.offset else "")
        tree = vault.tree_of(work.head) if work.head and vault.has_commit(work.head) else ""
        own_base = work.rebased or work.start
        commits = verify.commits_between(vault, own_base, work.head) if tree and vault.has_commit(own_base) else []
        first = work.first or next(iter(all_checkpoints), "")
        facts = HostFacts(
            checkpoints=verify.checkpoint_facts(vault, all_checkpoints, work.offset) if not broken else (),
            commits=verify.commit_facts(
                vault, commits[work.offset : end], own_base, work.commits, "" if work.rebased else first
            ),
            next=end if end < max(len(all_checkpoints), len(commits)) else None,
            broken=shorten(broken, 300),
        )
        if work.offset:
            return facts
        own_checkpoints = (
            all_checkpoints[all_checkpoints.index(work.inherited) + 1 :]
            if work.inherited in all_checkpoints
            else all_checkpoints
        )
        turns = verify.turn_usages(vault, own_checkpoints) if not broken else []
        first_page = {
            "start_differences": verify.start_differences(vault, work.start, first),
            "is_referenced": bool(all_checkpoints) and verify.is_kept(vault, work.delivery, work.tip),
            "tree": tree,
            "report": _report_fact(vault, work),
            "ledger": verify.ledger_fact(self._host, work.delivery, turns, work.deaths),
        }
        return facts.model_copy(update=first_page)

    def _collect_published(self, work: PublishedFactsInput) -> PublishedFacts:
        """Ask the remote for the branch's tip, and the forge for the branch's pull requests: at most VERIFY_PAGE, open
        ones and Perdure's own first, the newest of them first. Without a forge that Perdure speaks to, only the tip is
        returned. Raises ForgeRefused, ForgeUnavailable, WorkspaceLost."""
        vault = Workspace.open(self._host.home, work.delivery).vault
        contract = self._host.load_contract(vault, work.delivery, work.contract)
        forges = self._host.forges
        tip = remote_tip(contract.repository, work.branch, forges)
        forge = forges.forge(contract.repository)
        if forge is None:
            return PublishedFacts(tip=tip)
        pulls = [
            PullFact(number=pull.number, state=pull.state, head=pull.head_sha, ours=pull.ours)
            for pull in forge.pulls_of_branch(work.branch, work.delivery)
        ]
        pulls.sort(key=lambda pull: (pull.state != "open" and not pull.ours, -pull.number))  # what counts comes first
        return PublishedFacts(tip=tip, forge=True, pulls=tuple(pulls[:VERIFY_PAGE]))

    @activity.defn(name="read")
    async def read_page(self, work: VaultReadInput) -> TextPage:
        """Return one page of a delivery's turns, logs, diff or artifact as text. Raises WorkspaceLost when this host
        has no workspace of the delivery, BadInput when what is asked for does not exist or cannot be read."""
        return await in_thread(self._read_page, work)

    def _read_page(self, work: VaultReadInput) -> TextPage:
        workspace = Workspace.open(self._host.home, work.delivery)
        return delivery_page(workspace.vault, workspace.record(), work)

    @activity.defn
    async def read_issue(self, work: ReadIssueInput) -> ForgeIssue:
        """Return an open issue as a delivery would get it, of a forge that this host knows; nothing else is asked.
        Raises InvalidRequest, ForgeRefused, ForgeUnavailable as `fetch_issue` does."""
        return await in_thread(
            lambda: fetch_issue(self._host.forges.forge(work.repository), work.issue, work.repository)
        )

    @activity.defn(name="keep")
    async def store_text(self, work: StoreTextInput) -> StoredText:
        """Store a text as an artifact of the delivery and return its hash. Raises InvalidRequest above HANDED_IN_BYTES,
        WorkspaceLost when this host has no workspace of the delivery."""
        return await in_thread(self._store_text, work)

    def _store_text(self, work: StoreTextInput) -> StoredText:
        """Store a text as an artifact of the delivery and return its hash. Raises InvalidRequest above HANDED_IN_BYTES,
        WorkspaceLost when this host has no workspace of the delivery."""
        data = work.text.encode()
        if len(data) > HANDED_IN_BYTES:
            raise InvalidRequest(f"the text has {len(data)} bytes, at most {HANDED_IN_BYTES} are kept")
        return StoredText(sha256=Workspace.open(self._host.home, work.delivery).vault.put_artifact(work.delivery, data))

    @activity.defn
    async def spent(self, work: SpentInput) -> Spend:
        """Return what the delivery has paid in all its runs together, from this host's spend log; zero when nothing was
        ever paid, or the host does not know the delivery."""
        return await in_thread(self._host.spend_log(work.delivery).total_spend)

    @activity.defn(name="check_plan")
    async def check_plan(self, work: CheckPlanInput) -> CheckPlanResult:
        """Check an edited plan, or list of items, that is an artifact of the delivery; return its title and items, or
        the problem with it. One without a problem is sealed as the delivery's, under the title that it is to have.
        Raises WorkspaceLost when this host has no workspace of the delivery."""
        return await in_thread(self._check_plan, work)

    def _check_plan(self, work: CheckPlanInput) -> CheckPlanResult:
        vault = Workspace.open(self._host.home, work.delivery).vault
        checked, facts = check_plan(vault, work.delivery, work.plan, items=work.items), self._host.facts(work.delivery)
        if not checked.problem:
            earlier_titles = [fact[2] for fact in facts if fact[0] == "plan"]
            title = work.title or checked.title or (earlier_titles[-1] if earlier_titles else "")
            facts.seal_facts(plan_fact(work.plan, title))
        return checked


def _report_fact(vault: Vault, work: VerifyInput) -> ReportFact | None:
    """Return the verdict of the last test report, judged again from its contents, with what its experiments showed;
    None when there is no report, or it is lost or cannot be read."""
    try:
        report = read_report(vault, work.delivery, work.report)
    except (WorkspaceLost, ValueError):
        return None
    if report is None:
        return None
    judged, experiment = verdict_of(report), report.experiment
    return ReportFact(
        commit=report.commit,
        tree=report.tree,
        status=judged.status,
        passed=judged.passed,
        failed=judged.failed,
        experiment=None
        if experiment is None
        else ExperimentFact(
            line=judged.experiment,
            promises=judged.promises,
            removes=experiment.removes,
            tampered=experiment.is_tampered,
        ),
    )
