"""The pause before a worker that died is started again, and the check that there is anything for it to do."""

from __future__ import annotations

from collections import deque

from temporalio.service import RPCError

from perdure.adapters.system.home import Home
from perdure.client.schedules import Schedules
from perdure.client.submit import WORKFLOW
from perdure.local.connect import configured, connect
from perdure.models.errors import PerdureError, TemporalUnreachable
from perdure.models.limits import WORKER_PAUSE_S, WORKER_QUICK_DEATHS, WORKER_QUICK_DEATHS_S

WORKER_STARTS_S = 1.5
"""A worker that was forked works after one second, on a quiet machine."""


class Pauses:
    """Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._deaths: deque[float] = deque(maxlen=WORKER_QUICK_DEATHS)
        self._pause = 0.0

    def after_death(self, now: float, lived: float, *, killed: bool = False) -> float:
        """Seconds to wait after a worker died at `now`, having lived for `lived`. `killed`: by a SIGKILL."""
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


_RUNNING = f"WorkflowType IN ('{WORKFLOW}', 'Backlog', 'Notification', 'Following') AND ExecutionStatus = 'Running'"
"""Runs that count: what is told of a delivery may outlive it."""


async def running_deliveries(home: Home) -> bool:
    """True where a delivery runs or will begin by a schedule, or somebody is still to be told of one.

    A server that cannot be asked counts as busy, an embedded one that is down as idle.
    """
    try:
        client = await connect(home, start=False, say=lambda _: None)
        running = (await client.count_workflows(_RUNNING)).count > 0
        return running or await Schedules(client, None).waiting()
    except TemporalUnreachable:
        return configured() is not None
    except (RPCError, PerdureError):
        return True
