"""Capture pages: start the application of one commit in the sandbox, and keep pictures of its pages.

Effect: pictures and one list of them (Screenshots) in the vault; the worktree is not touched. Key: the commit. Taken
again after a death: what is in the vault already stays, and the newest list is the one that counts.
"""

from __future__ import annotations

from dataclasses import replace

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.browser.capture import Capture, CapturedPage, capture
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.models.publishing import Captured, CaptureInput
from perdure.models.report import Screenshot, Screenshots


class Pages(OnHost):
    @activity.defn
    async def capture_pages(self, work: CaptureInput) -> Captured:
        """Whatever goes wrong with the application or the browser is a note. Raises Superseded, WorkspaceLost."""
        async with self._host.session(work.delivery, work.contract) as session:
            settings = session.contract.config.app
            if not settings.start:
                return Captured(summary="no pictures: [app] start is not set")
            now_doing(doing="taking pictures of the app")
            command = session.command()
            async with session.checkout(work.commit) as clean:
                shown = await capture(session.sandbox, replace(command, source=clean), settings, session.logs / "app")
            session.lease.check()
            artifact = await in_thread(_keep, session.vault, work, shown)
            return Captured(screenshots=artifact, taken=shown.taken, summary=shown.summary)


def _keep(vault: Vault, work: CaptureInput, shown: Capture) -> str:
    pictures = tuple(_kept(vault, work.delivery, page) for page in shown.pages)
    told = Screenshots(commit=work.commit, pictures=pictures, note=shown.note)
    return vault.put_artifact(work.delivery, told.model_dump_json().encode())


def _kept(vault: Vault, delivery: str, page: CapturedPage) -> Screenshot:
    if page.picture is None:
        return Screenshot(page=page.page, note=page.note)
    return Screenshot(
        page=page.page,
        artifact=vault.put_artifact(delivery, page.picture.data),
        width=page.picture.width,
        height=page.picture.height,
        note=page.note,
    )
