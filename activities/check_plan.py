"""Check plan: can a plan that somebody named be worked by?

Effect: none. Reads an artifact of the vault. Key: the plan's hash.
"""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.turn.written import check_plan
from perdure.models.decisions import CheckedPlan, CheckPlanInput


class CheckingPlans:
    def __init__(self, host: Host) -> None:
        self._host = host

    @activity.defn(name="check_plan")
    async def check_plan(self, work: CheckPlanInput) -> CheckedPlan:
        """Its title, or what is wrong with it. Raises WorkspaceLost when this host knows no such delivery."""
        return await in_thread(self._check, work)

    def _check(self, work: CheckPlanInput) -> CheckedPlan:
        vault = Workspace.open(self._host.home, work.delivery).vault
        return check_plan(vault, work.delivery, work.plan)
