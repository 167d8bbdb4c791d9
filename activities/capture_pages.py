"""Capture pages: start the application of one commit in the sandbox, and keep pictures of its pages.

Effect: pictures and one list of them (Screenshots) in the vault; the worktree is not touched. Key: the commit. It is
done again after a death: what is in the vault already stays, and the newest list is the one that counts.
"""

from __future__ import annotations

from dataclasses import replace

from temporalio import activity

from activities.on_host import OnHost
from perdure.adapters.browser.capture import Capture, CapturedPage, capture_app
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.models.publishing import CaptureInput, CaptureResult
from perdure.models.report import Screenshot, Screenshots


class CapturePagesActivity(OnHost):
    """The activity that takes pictures of the application's pages."""

    @activity.defn
    async def capture_pages(self, work: CaptureInput) -> CaptureResult:
        """Start the application of the commit, take pictures of its pages and store them in the vault; return the
        list's artifact and a line for people.

        Without `[app] start` nothing runs. A failure of the application or the browser is a note in the list, no error.
        Raises Superseded, WorkspaceLost.
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
            return CaptureResult(screenshots=artifact, picture_count=captured.picture_count, summary=captured.summary)


def _store_screenshots(vault: Vault, work: CaptureInput, captured: Capture) -> str:
    """Store the pictures and a list of them in the vault, and return the list's artifact hash."""
    pictures = tuple(_store_picture(vault, work.delivery, page) for page in captured.pages)
    screenshots = Screenshots(commit=work.commit, pictures=pictures, note=captured.note)
    return vault.put_artifact(work.delivery, screenshots.model_dump_json().encode())


def _store_picture(vault: Vault, delivery: str, page: CapturedPage) -> Screenshot:
    """Store the picture of a page in the vault and return the page's entry for the list; without a picture the entry
    has only the note that says why."""
    if page.picture is None:
        return Screenshot(page=page.page, note=page.note)
    return Screenshot(
        page=page.page,
        artifact=vault.put_artifact(delivery, page.picture.data),
        width=page.picture.width,
        height=page.picture.height,
        note=page.note,
    )
