"""Questions about a delivery, answered from vault, ledger, remote and forge. None takes its lease.

They run as activities of their own, so that nothing of them goes into a delivery's history. Only `keep` has an effect:
an artifact, the same text twice is one.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.checks.verdict import verdict
from perdure.adapters.git.remote import remote_tip
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.turn.reading import page_of
from perdure.adapters.worker.turn.written import check_plan, read_report
from perdure.adapters.worker.verify import checkpoints
from perdure.models.decisions import CheckedPlan, CheckPlanInput, KeepInput, Kept
from perdure.models.errors import InvalidRequest, WorkspaceLost
from perdure.models.ledger import Spend
from perdure.models.limits import KEPT_BYTES, VERIFY_PAGE
from perdure.models.treasury import SpentInput
from perdure.models.turn import Page, ReadInput
from perdure.models.verify import Facts, PublishedFacts, PublishedInput, PullFact, ReportFact, TriedFact, VerifyInput


class Questions(OnHost):
    @activity.defn
    async def verify(self, work: VerifyInput) -> Facts:
        """Everything on the first page, only checkpoints and commits on later ones. Raises WorkspaceLost when this host
        knows nothing of the delivery."""
        return await in_thread(self._facts, work)

    @activity.defn
    async def verify_published(self, work: PublishedInput) -> PublishedFacts:
        """Runs where the forge's token is. Raises ForgeRefused, ForgeUnavailable, WorkspaceLost."""
        return await in_thread(self._published, work)

    def _facts(self, work: VerifyInput) -> Facts:
        vault, end = Workspace.open(self._host.home, work.delivery).vault, work.offset + VERIFY_PAGE
        way, broken = checkpoints.way_to(vault, work.tip)
        broken = broken or (checkpoints.hole(vault, work.tip) if not work.offset else "")
        tree = vault.tree_of(work.head) if work.head and vault.has(work.head) else ""
        ground = work.rebased or work.start
        listed = checkpoints.between(vault, ground, work.head) if tree and vault.has(ground) else []
        first = work.first or next(iter(way), "")
        facts = Facts(
            checkpoints=checkpoints.page(vault, way, work.offset) if not broken else (),
            commits=checkpoints.commits(
                vault, listed[work.offset : end], ground, work.commits, "" if work.rebased else first
            ),
            next=end if end < max(len(way), len(listed)) else None,
            broken=broken[:300],
        )
        if work.offset:
            return facts
        own = way[way.index(work.inherited) + 1 :] if work.inherited in way else way
        turns = checkpoints.turns_of(vault, own) if not broken else []
        told = {
            "begun": checkpoints.begun(vault, work.start, first),
            "held": bool(way) and checkpoints.held(vault, work.delivery, work.tip),
            "tree": tree,
            "report": _report(vault, work),
            "ledger": checkpoints.ledger(self._host, work.delivery, turns, work.deaths),
        }
        return facts.model_copy(update=told)

    def _published(self, work: PublishedInput) -> PublishedFacts:
        vault = Workspace.open(self._host.home, work.delivery).vault
        contract = self._host.contract(vault, work.delivery, work.contract)
        forges = self._host.forges
        tip = remote_tip(contract.repository, work.branch, forges)
        forge = forges.forge(contract.repository)
        if forge is None:
            return PublishedFacts(tip=tip)
        pulls = [
            PullFact(number=pull.number, state=pull.state, head=pull.head_sha, ours=pull.ours)
            for pull in forge.of_branch(work.branch, work.delivery)
        ]
        pulls.sort(key=lambda pull: (pull.state != "open" and not pull.ours, -pull.number))  # what counts comes first
        return PublishedFacts(tip=tip, forge=True, pulls=tuple(pulls[:VERIFY_PAGE]))

    @activity.defn(name="read")
    async def read(self, work: ReadInput) -> Page:
        """One page. Raises WorkspaceLost when this host knows nothing of the delivery."""
        return await in_thread(self._read, work)

    def _read(self, work: ReadInput) -> Page:
        workspace = Workspace.open(self._host.home, work.delivery)
        return page_of(workspace.vault, workspace.record(), work)

    @activity.defn(name="keep")
    async def keep(self, work: KeepInput) -> Kept:
        """Its hash. Raises InvalidRequest above KEPT_BYTES, WorkspaceLost when this host knows no such delivery."""
        return await in_thread(self._keep, work)

    def _keep(self, work: KeepInput) -> Kept:
        data = work.text.encode()
        if len(data) > KEPT_BYTES:
            raise InvalidRequest(f"the text has {len(data)} bytes, at most {KEPT_BYTES} are kept")
        return Kept(sha256=Workspace.open(self._host.home, work.delivery).vault.put_artifact(work.delivery, data))

    @activity.defn
    async def spent(self, work: SpentInput) -> Spend:
        """All its runs together; nothing where nothing was ever paid."""
        return await in_thread(self._host.spend(work.delivery).total)

    @activity.defn(name="check_plan")
    async def check_plan(self, work: CheckPlanInput) -> CheckedPlan:
        """Its title, or what is wrong with it. Raises WorkspaceLost when this host knows no such delivery."""
        return await in_thread(self._check, work)

    def _check(self, work: CheckPlanInput) -> CheckedPlan:
        vault = Workspace.open(self._host.home, work.delivery).vault
        return check_plan(vault, work.delivery, work.plan, items=work.items)


def _report(vault: Vault, work: VerifyInput) -> ReportFact | None:
    """None when it is lost: its hash tells a changed one from the one that was written."""
    try:
        report = read_report(vault, work.delivery, work.report)
    except (WorkspaceLost, ValueError):
        return None
    if report is None:
        return None
    judged, tried = verdict(report), report.experiment
    return ReportFact(
        commit=report.commit,
        tree=report.tree,
        status=judged.status,
        passed=judged.passed,
        failed=judged.failed,
        tried=None
        if tried is None
        else TriedFact(
            line=judged.experiment, promises=judged.promises, removes=tried.removes, tampered=tried.tampered
        ),
    )
