"""Inspect change: what the engine itself finds in the change, beside the reviewer.

Effect: Findings in the vault; no worktree is needed and none is touched. Key: the commit.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.checks.findings.look import EngineFindings, look
from perdure.adapters.checks.findings.lost import lost, unproven
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.turn.written import read_report
from perdure.models.errors import WorkspaceLost
from perdure.models.report import Severity, TestReport
from perdure.models.turn import SUMMARY_LIMIT
from perdure.models.work import Inspected, InspectInput
from perdure.text import shortened


class Inspection(OnHost):
    @activity.defn(name="inspect_change")
    async def inspect_change(self, work: InspectInput) -> Inspected:
        """Raises WorkspaceLost when this host has no vault, or the vault not this contract."""
        now_doing(doing="looking at the change")
        return await in_thread(self._inspect, work)

    def _inspect(self, work: InspectInput) -> Inspected:
        vault = Workspace.open(self._host.home, work.delivery).vault
        contract = self._host.contract(vault, work.delivery, work.contract)
        report = _report(vault, work)
        found = [*unproven(contract, report, work.kind), *lost(vault, report)]
        seen = look(vault, contract, work.commit, found)
        artifact = vault.put_artifact(work.delivery, seen.findings.model_dump_json().encode())
        return Inspected(
            findings=artifact,
            blockers=seen.counts[Severity.BLOCKER],
            tech_debt=seen.counts[Severity.TECH_DEBT],
            skippable=seen.counts[Severity.SKIPPABLE],
            secrets=seen.secrets,
            summary=_summary(seen),
        )


def _report(vault: Vault, work: InspectInput) -> TestReport | None:
    """None where it is lost, or about another commit."""
    try:
        report = read_report(vault, work.delivery, work.report)
    except (WorkspaceLost, ValueError):
        return None
    return report if report is not None and report.commit == work.commit else None


def _summary(seen: EngineFindings) -> str:
    """Say how many were found, and the worst one."""
    if not seen.findings.findings:
        return "nothing found"
    blockers, debt, skippable = (seen.counts[severity] for severity in Severity)
    named = [f"{blockers} blocker{'s' * (blockers > 1)}"] if blockers else []
    named += [f"{debt} tech debt"] if debt else []
    named += [f"{skippable} skippable"] if skippable else []
    worst = seen.findings.findings[0]
    return shortened(f"{', '.join(named)}: {worst.title}" + (f" in {worst.file}" if worst.file else ""), SUMMARY_LIMIT)
