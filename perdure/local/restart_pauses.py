"""The pause before a worker that died is started again, and the check whether there is anything for it to do."""

from __future__ import annotations

from collections import deque

from temporalio.service import RPCError

from perdure.adapters.system.home import Home
from perdure.client.schedules import Schedules
from perdure.client.submit import DELIVERY_WORKFLOW
from perdure.local.connect import connect_to_temporal, external_server_config
from perdure.models.errors import PerdureError, TemporalUnreachable
from perdure.models.limits import WORKER_PAUSE_S, WORKER_QUICK_DEATHS, WORKER_QUICK_DEATHS_S

WORKER_STARTS_S = 1.5
"""Time after which a forked worker has begun its work; it takes one second on a quiet machine."""


class RestartPauses:
    """Pauses before the starts of one worker, by how it died. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=WORKER_QUICK_DEATHS)
        self._pause = 0.0

    def after_death(self, now: float, lived: float, *, killed: bool = False) -> float:
        """Return the seconds to wait before the next start after a worker died at `now`, having lived for `lived`.

        A worker that was `killed` (SIGKILL) is not to blame: there is no pause if it lived for WORKER_STARTS_S, and
        otherwise at most the shortest one. For other deaths there is no pause until WORKER_QUICK_DEATHS deaths came
        within WORKER_QUICK_DEATHS_S; from then on it doubles from the shortest to the longest of WORKER_PAUSE_S, until
        a worker has lived for WORKER_QUICK_DEATHS_S.
        """
        shortest, longest = WORKER_PAUSE_S
        if killed and lived >= WORKER_STARTS_S:
            return 0.0
        self._deaths.append(now)
        if lived >= WORKER_QUICK_DEATHS_S:
            self._pause = 0.0
        if self._pause:
            self._pause = shortest if killed else min(2 * self._pause, longest)
        elif len(self._deaths) == WORKER_QUICK_DEATHS and now - self._deaths[0] <= WORKER_QUICK_DEATHS_S:
            self._pause = shortest
        return self._pause


_BUSY_QUERY = (
    f"WorkflowType IN ('{DELIVERY_WORKFLOW}', 'Backlog', 'Notification', 'Following') AND ExecutionStatus = 'Running'"
)
"""Running workflows that need a worker; notifications about a delivery may outlive it."""


async def has_running_deliveries(home: Home) -> bool:
    """Return whether a delivery runs or will begin by a schedule, or somebody is still to be notified of one.

    A server that cannot be asked counts as busy (True), an embedded one that is down as idle (False).
    """
    try:
        client = await connect_to_temporal(home, start=False, say=lambda _: None)
        running = (await client.count_workflows(_BUSY_QUERY)).count > 0
        return running or await Schedules(client, None).will_start_something()
    except TemporalUnreachable:
        return external_server_config() is not None
    except (RPCError, PerdureError):
        return True
