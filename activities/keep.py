"""Keep: a text that a person hands in, such as a plan they edited, becomes an artifact of the delivery.

Effect: one artifact in the vault; the same text twice is one. Runs as an activity of its own, like `read`, so that
nothing of it goes into the delivery's history until a decision names its hash. Key: the text.
"""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.host import Host
from perdure.models.decisions import KeepInput, Kept
from perdure.models.errors import InvalidRequest
from perdure.models.limits import KEPT_BYTES


class Keeping:
    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn(name="keep")
    async def keep(self, work: KeepInput) -> Kept:
        """Its hash. Raises InvalidRequest above KEPT_BYTES, WorkspaceLost when this host knows no such delivery."""
        return await in_thread(self._keep, work)

    def _keep(self, work: KeepInput) -> Kept:
        data = work.text.encode()
        if len(data) > KEPT_BYTES:
            raise InvalidRequest(f"the text has {len(data)} bytes, at most {KEPT_BYTES} are kept")
        return Kept(sha256=Workspace.open(self._host.home, work.delivery).vault.put_artifact(work.delivery, data))
