"""Inspect change: the findings that the engine itself makes in the change, beside the reviewer's.

Effect: Findings in the vault; no worktree is needed and none is touched. Key: the commit.
"""

from __future__ import annotations

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.checks.findings.engine_findings import EngineFindings, inspect_commit
from perdure.adapters.checks.findings.lost_tests import find_lost_tests, find_unproven_change
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.turn.documents import read_report
from perdure.models.errors import WorkspaceLost
from perdure.models.report import Severity, TestReport
from perdure.models.turn import SUMMARY_LIMIT
from perdure.models.work import InspectInput, InspectResult
from perdure.text import shortened


class InspectChangeActivity(OnHost):
    """The activity in which the engine itself looks at a change."""

    @activity.defn(name="inspect_change")
    async def inspect_change(self, work: InspectInput) -> InspectResult:
        """Look for faults in the change, store the findings, and return their counts by severity with a line for
        people. Raises WorkspaceLost when this host has no vault of the delivery, or the vault not this contract."""
        update_heartbeat(doing="looking at the change")
        return await in_thread(self._find_faults, work)

    def _find_faults(self, work: InspectInput) -> InspectResult:
        """Look for secrets, protected paths, conflict marks and the like in the change, add what the test report shows
        (tests that are gone, tests that prove nothing), store all as one artifact, and return it with counts by
        severity."""
        vault = Workspace.open(self._host.home, work.delivery).vault
        contract = self._host.load_contract(vault, work.delivery, work.contract)
        report = _read_report(vault, work)
        test_findings = [*find_unproven_change(contract, report, work.kind), *find_lost_tests(vault, report)]
        engine_findings = inspect_commit(vault, contract, work.commit, test_findings)
        artifact = vault.put_artifact(work.delivery, engine_findings.findings.model_dump_json().encode())
        return InspectResult(
            findings=artifact,
            blockers=engine_findings.counts[Severity.BLOCKER],
            tech_debt=engine_findings.counts[Severity.TECH_DEBT],
            skippable=engine_findings.counts[Severity.SKIPPABLE],
            secrets=engine_findings.secrets,
            summary=_summarize_findings(engine_findings),
        )


def _read_report(vault: Vault, work: InspectInput) -> TestReport | None:
    """Return the test report of the commit; None where it is lost, cannot be read, or is about another commit."""
    try:
        report = read_report(vault, work.delivery, work.report)
    except (WorkspaceLost, ValueError):
        return None
    return report if report is not None and report.commit == work.commit else None


def _summarize_findings(engine_findings: EngineFindings) -> str:
    """Return one line with the number of findings of each severity and the title of the worst one; `nothing found`
    where there is none."""
    if not engine_findings.findings.findings:
        return "nothing found"
    blockers, debt, skippable = (engine_findings.counts[severity] for severity in Severity)
    counts = [f"{blockers} blocker{'s' * (blockers > 1)}"] if blockers else []
    counts += [f"{debt} tech debt"] if debt else []
    counts += [f"{skippable} skippable"] if skippable else []
    worst = engine_findings.findings.findings[0]
    return shortened(f"{', '.join(counts)}: {worst.title}" + (f" in {worst.file}" if worst.file else ""), SUMMARY_LIMIT)
