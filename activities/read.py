"""Read: logs, diffs and turns for people, in pages, through Temporal alone.

Effect: none. Runs as an activity of its own, so that nothing of it goes into a delivery's history.
"""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.turn.reading import page_of
from perdure.models.work import Page, ReadInput


class Reading:
    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn(name="read")
    async def read(self, work: ReadInput) -> Page:
        """One page. Raises WorkspaceLost when this host knows nothing of the delivery."""
        return await in_thread(self._read, work)

    def _read(self, work: ReadInput) -> Page:
        workspace = Workspace.open(self._host.home, work.delivery)
        return page_of(workspace.vault, workspace.record(), work)
