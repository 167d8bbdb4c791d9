"""The engine's own additions to a review: its findings in a change (secrets, protected paths and the like), by activity
`inspect_change`, and pictures of the application's pages, by activity `capture_pages`.

Effect of `inspect_change`: Findings in the vault; no worktree is needed and none is touched. Effect of `capture_pages`:
pictures and one list of them (Screenshots) in the vault; the worktree is not touched. Done again after a death, what is
in the vault stays, and the newest list counts. Key of both: the commit.
"""

from __future__ import annotations

from dataclasses import replace

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.browser.capture import Capture, CapturedPage, capture_app
from perdure.adapters.checks.findings.content_findings import find_unnamed_files
from perdure.adapters.checks.findings.engine_findings import (
    EngineFindings,
    find_lost_tests,
    find_unproven_change,
    inspect_commit,
)
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.sealed_facts import document_fact, inspection_fact
from perdure.adapters.worker.turn.delivery_text import agent_text
from perdure.adapters.worker.turn.documents import read_report
from perdure.models.checks.report import Screenshot, Screenshots, Severity, TestReport
from perdure.models.delivery.publishing import CaptureInput, CaptureResult
from perdure.models.delivery.result_text import count_severities
from perdure.models.delivery.turn import SUMMARY_LIMIT
from perdure.models.delivery.work import InspectInput, InspectResult
from perdure.models.errors import WorkspaceLost
from perdure.text import shorten


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
        severity, the number of secrets and a line for people. Raises WorkspaceLost when vault or contract is not on
        this host."""
        vault = Workspace.open(self._host.home, work.delivery).vault
        contract = self._host.load_contract(vault, work.delivery, work.contract)
        report = _read_report(vault, work)
        base = vault.merge_base(contract.base_sha, work.commit)
        more = [
            *find_unproven_change(contract, report, work.kind),
            *find_lost_tests(vault, report),
            *find_unnamed_files(vault, base, work.commit, lambda: agent_text(vault, base, work.commit)),
        ]
        engine_findings = inspect_commit(vault, contract, work.commit, more)
        artifact = vault.put_artifact(work.delivery, engine_findings.findings.to_json())
        result = InspectResult(
            findings=artifact,
            blockers=engine_findings.counts[Severity.BLOCKER],
            tech_debt=engine_findings.counts[Severity.TECH_DEBT],
            skippable=engine_findings.counts[Severity.SKIPPABLE],
            secrets=engine_findings.secrets,
            summary=_summarize_findings(engine_findings),
        )
        self._host.facts(work.delivery).seal_facts(inspection_fact(vault.tree_of(work.commit), result))
        return result


def _read_report(vault: Vault, work: InspectInput) -> TestReport | None:
    """Return the test report that the input names; None when there is none, it is lost, cannot be read, or is about
    another commit."""
    try:
        report = read_report(vault, work.delivery, work.report)
    except (WorkspaceLost, ValueError):
        return None
    return report if report is not None and report.commit == work.commit else None


def _summarize_findings(engine_findings: EngineFindings) -> str:
    """Return one line with the number of findings of each severity and title and file of the first, worst one; `nothing
    found` when there is none."""
    if not engine_findings.findings.findings:
        return "nothing found"
    counts = count_severities(*(engine_findings.counts[severity] for severity in Severity))
    worst = engine_findings.findings.findings[0]
    return shorten(f"{counts}: {worst.title}" + (f" in {worst.file}" if worst.file else ""), SUMMARY_LIMIT)


class CapturePagesActivity(OnHost):
    """The activity that takes pictures of the application's pages."""

    @activity.defn
    async def capture_pages(self, work: CaptureInput) -> CaptureResult:
        """Start the application on a clean checkout of the commit, take pictures of its pages and store them in the
        vault; return the artifact that lists them, their number and a line for people.

        Without the setting `[app] start` nothing runs and the result only says so. A failure of the application or the
        browser becomes a note in the list. Raises Superseded when a newer attempt has taken over the workspace,
        WorkspaceLost when this host does not have it, SetupFailed, SandboxUnavailable or NoPorts when it cannot be made
        ready.
        """
        async with self._host.open_session(work.delivery, work.contract) as session:
            settings = session.contract.config.app
            if not settings.start:
                return CaptureResult(summary="no pictures: [app] start is not set")
            update_heartbeat(doing="taking pictures of the app")
            command = session.base_command()
            async with session.clean_checkout(work.commit) as clean_tree:
                captured = await capture_app(
                    session.sandbox, replace(command, source=clean_tree), settings, session.logs / "app"
                )
            session.lease.check()
            artifact = await in_thread(_store_screenshots, session.vault, work, captured)
            await in_thread(self._host.facts(work.delivery).seal_facts, document_fact("screenshots", artifact))
            return CaptureResult(screenshots=artifact, picture_count=captured.picture_count, summary=captured.summary)


def _store_screenshots(vault: Vault, work: CaptureInput, captured: Capture) -> str:
    """Store the pictures and a list of them in the vault, and return the list's artifact hash."""
    pictures = tuple(_store_picture(vault, work.delivery, page) for page in captured.pages)
    screenshots = Screenshots(commit=work.commit, pictures=pictures, note=captured.note)
    return vault.put_artifact(work.delivery, screenshots.model_dump_json().encode())


def _store_picture(vault: Vault, delivery: str, page: CapturedPage) -> Screenshot:
    """Store the picture of a page in the vault and return the page's entry for the list; a page without a picture has
    an entry with only the note that says why."""
    if page.picture is None:
        return Screenshot(page=page.page, note=page.note)
    return Screenshot(
        page=page.page,
        artifact=vault.put_artifact(delivery, page.picture.data),
        width=page.picture.width,
        height=page.picture.height,
        note=page.note,
    )
