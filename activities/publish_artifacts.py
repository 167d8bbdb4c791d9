"""Publish artifacts: plan, test report, review, findings and screenshots go where the pull request can link to them.

Effect: one commit on the artifact branch. Looks first: files that are there already are adopted. Key: the delivery.
"""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.forges.artifacts import artifact_files, permalink, publish
from perdure.adapters.forges.base import HostedForge
from perdure.adapters.forges.pictures import picture_files
from perdure.adapters.git.publish import publish_first
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import to_the_end
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
from perdure.models.crash import CrashPoint
from perdure.models.publishing import Artifacts, ArtifactsInput


class Publications:
    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn
    async def publish_artifacts(self, work: ArtifactsInput) -> Artifacts:
        """Raises ForgeRefused (a branch of that name that is not ours), ForgeUnavailable, Superseded."""
        async with self._host.lease(work.delivery) as (workspace, lease):
            now_doing(doing="publishing plan, tests and review")
            lease.check()
            return await to_the_end(self._publish, workspace.vault.with_keys(self._host.forges), work)

    def _publish(self, vault: Vault, work: ArtifactsInput) -> Artifacts:
        contract = self._host.contract(vault, work.delivery, work.policy)
        branch = contract.config.artifacts.branch
        forge = self._host.forges.forge(contract.repository)
        if not branch or not isinstance(forge, HostedForge):
            return Artifacts()
        screenshots = read_screenshots(vault, work.delivery, work.screenshots)
        report = read_report(vault, work.delivery, work.report)
        tried = report.experiment.line if report is not None and report.experiment is not None else ""
        files = artifact_files(
            read_plan(vault, work.delivery, work.plan),
            read_review(vault, work.delivery, work.review),
            report,
            self._host.receipt(work.delivery).model_copy(update={"experiment": tried}),
            read_findings(vault, work.delivery, work.findings),
            screenshots,
            picture_files(screenshots, lambda shot: read_picture(vault, work.delivery, shot)),
        )
        publish_first(vault, contract)  # before any other branch: a forge takes the first one for the default
        commit = publish(vault, contract.repository, branch, work.delivery, files)
        crash_point(CrashPoint.AFTER_ARTIFACTS)
        links = {name: permalink(forge.web, commit, work.delivery, name) for name in files}
        return Artifacts(links=links)
