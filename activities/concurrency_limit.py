"""The check whether one more delivery of a repository, or a backlog's pull request, fits under the limits on running
deliveries and open pull requests: activity `find_room`, and `find_limit_reason`, which activity `backlog_room` calls
too.

Effect: none. It asks the server which deliveries run, and the forge which pull requests of Perdure's are open; both as
they are listed in that moment, so that of two that ask in the same one both may go.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.client import Client, WorkflowExecution
from temporalio.common import SearchAttributeKey

from activities.on_host import OnHost
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.host import Host
from perdure.models.concurrency_limit import ConcurrencyCheckInput, ConcurrencyCheckResult, OtherDelivery, limit_reason
from perdure.models.config.repository import Limits
from perdure.models.errors import NoRoom
from perdure.models.issue import is_same_repository
from perdure.models.phases import Phase
from perdure.models.rules.admission import fit_keyword

RUNNING_QUERY = "ExecutionStatus = 'Running' AND WorkflowType IN ('Delivery', 'Backlog')"

MAX_LISTED = 1000
"""The most running deliveries and backlogs that are looked at, the newest ones: more than any limit that is worth
setting."""

_REPOSITORY, _PHASE, _STATUS, _PULL = (
    SearchAttributeKey.for_keyword(name)
    for name in ("PerdureRepository", "PerdurePhase", "PerdureStatus", "PerdurePullRequest")
)


class ConcurrencyLimitActivity(OnHost):
    """The activity that checks the limits over all deliveries of a repository."""

    @activity.defn
    async def find_room(self, work: ConcurrencyCheckInput) -> ConcurrencyCheckResult:
        """Return the reason why the delivery may not go on beside the repository's others, as its contract's limits
        say; an empty reason: it may.

        Raises NoRoom, which is retried, instead of returning a reason when `work.waits` is set; ForgeRefused and
        ForgeUnavailable when the forge does not list pull requests, WorkspaceLost when this host does not have the
        delivery, RPCError when the server does not answer.
        """
        update_heartbeat(doing="looking for room")
        vault = (await in_thread(Workspace.open, self._host.home, work.delivery)).vault
        contract = await in_thread(self._host.load_contract, vault, work.delivery, work.contract)
        limits, landing = contract.config.limits, contract.landing
        proposes = Phase.SHIP in contract.config.delivery.phases if landing is None else landing.ships
        reason = await find_limit_reason(
            self._host,
            limits if proposes else limits.model_copy(update={"open_pull_requests": None}),
            repository=work.repository,
            url=contract.repository,
            delivery=work.delivery,
            workflow_id=work.workflow_id,
            stack=landing.backlog if landing is not None and landing.ships else "",
        )
        if reason and work.waits:
            raise NoRoom(reason)
        return ConcurrencyCheckResult(reason=reason)


async def find_limit_reason(
    host: Host, limits: Limits, *, repository: str, url: str, delivery: str, workflow_id: str, stack: str = ""
) -> str:
    """Return the reason why one more may not go on, in one line; empty: it may. Without limits neither server nor forge
    is asked.

    delivery  its key: its own open pull request does not count
    stack     the backlog in whose stack the delivery is: each of its items opens a pull request, the backlog none

    Raises ForgeRefused or ForgeUnavailable when the forge does not list pull requests, RPCError when the server does
    not answer.
    """
    if limits.deliveries is None and limits.open_pull_requests is None:
        return ""
    other_deliveries = await _list_other_deliveries(activity.client(), repository, workflow_id, stack)
    open_count, forge = 0, host.forges.forge(url)
    if limits.open_pull_requests is not None and forge is not None:
        open_count = await in_thread(forge.count_open_pulls, delivery, limits.open_pull_requests)
    return limit_reason(limits.deliveries, limits.open_pull_requests, other_deliveries, open_count)


async def _list_other_deliveries(
    client: Client, repository: str, workflow_id: str, stack: str
) -> tuple[OtherDelivery, ...]:
    """List the repository's other running deliveries, as the limits count them, and its other running backlogs, each of
    which will open a pull request, but not the backlog `stack` and no backlog that builds a plan's tasks; of all that
    run only the newest MAX_LISTED are looked at. Raises RPCError when the server does not answer.

    An item of the same backlog counts even while it has not reported its repository. The tasks of a plan count as one,
    together with the delivery that waits for them.
    """
    listed = [execution async for execution in client.list_workflows(RUNNING_QUERY, limit=MAX_LISTED)]
    own = next((execution for execution in listed if execution.id == workflow_id), None)
    others, listed_repository = dict[str, OtherDelivery](), fit_keyword(repository)
    for execution in listed:
        attributes = execution.typed_search_attributes
        # An item of the same backlog counts before it is prepared and reports its repository: they begin in the same
        # moment.
        is_sibling = own is not None and own.parent_id is not None and execution.parent_id == own.parent_id
        if execution.id == workflow_id or not (
            is_sibling or is_same_repository(attributes.get(_REPOSITORY) or "", listed_repository)
        ):
            continue
        if execution.workflow_type == "Backlog":  # listed once it has begun; its pull request is in the making
            if execution.parent_id is None and execution.id != stack:
                others[execution.id] = OtherDelivery(
                    phase="backlog", waits=True, has_pull_request=bool(attributes.get(_PULL))
                )
            continue
        other = OtherDelivery(
            phase=attributes.get(_PHASE) or "",
            waits=attributes.get(_STATUS) == "waiting",
            is_item=execution.parent_id is not None and execution.parent_id != stack,
            has_pull_request=bool(attributes.get(_PULL)),
            began_earlier=own is None or (execution.start_time, execution.id) < (own.start_time, own.id),
        )
        name = execution.parent_id if execution.parent_id and _is_task(execution) else execution.id
        if name not in others or others[name].waits:
            others[name] = other
    return tuple(others.values())


def _is_task(execution: WorkflowExecution) -> bool:
    """Return True for a delivery that is a task of another delivery's plan: its parent, a small backlog, is itself the
    child of that delivery."""
    return execution.parent_id is not None and execution.root_id not in (None, execution.parent_id)
