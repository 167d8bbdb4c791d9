"""Room: may one more delivery of a repository begin, or a backlog, under the limits over all of them?

Effect: none. It asks the server which deliveries run, and the forge which pull requests of ours are open; both as they
are listed in that moment, so that of two that ask in the same one both may go.
"""

from __future__ import annotations

from temporalio import activity
from temporalio.client import Client, WorkflowExecution
from temporalio.common import SearchAttributeKey

from activities.on_host import OnHost
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.host import Host
from perdure.models.config import Limits
from perdure.models.errors import NoRoom
from perdure.models.issue import same_repository
from perdure.models.phases import Phase
from perdure.models.room import Other, Room, RoomInput, full

RUNNING = "ExecutionStatus = 'Running' AND WorkflowType IN ('Delivery', 'Backlog')"

LISTED_MOST = 1000
"""Deliveries and backlogs that run at once and are looked at, the newest: more than any limit that is worth setting."""

_REPOSITORY, _PHASE, _STATUS, _PULL = (
    SearchAttributeKey.for_keyword(name)
    for name in ("PerdureRepository", "PerdurePhase", "PerdureStatus", "PerdurePullRequest")
)


class Rooms(OnHost):
    @activity.defn
    async def find_room(self, work: RoomInput) -> Room:
        """Raises NoRoom where it `waits`, ForgeRefused, ForgeUnavailable, WorkspaceLost, RPCError."""
        now_doing(doing="looking for room")
        vault = (await in_thread(Workspace.open, self._host.home, work.delivery)).vault
        contract = await in_thread(self._host.contract, vault, work.delivery, work.contract)
        limits, place = contract.config.limits, contract.landing
        proposes = Phase.SHIP in contract.config.delivery.phases if place is None else place.ships
        words = await no_room(
            self._host,
            limits if proposes else limits.model_copy(update={"open_pull_requests": None}),
            repository=work.repository,
            url=contract.repository,
            delivery=work.delivery,
            workflow_id=work.workflow_id,
            stack=place.backlog if place is not None and place.ships else "",
        )
        if words and work.waits:
            raise NoRoom(words)
        return Room(words=words)


async def no_room(
    host: Host, limits: Limits, *, repository: str, url: str, delivery: str, workflow_id: str, stack: str = ""
) -> str:
    """Say why there is none, in one line; empty: there is. `delivery`: whose own pull request does not count; `stack`:
    its backlog, each of whose items opens one and which opens none itself."""
    if limits.deliveries is None and limits.open_pull_requests is None:
        return ""
    others = await _others(activity.client(), repository, workflow_id, stack)
    opened, forge = 0, host.forges.forge(url)
    if limits.open_pull_requests is not None and forge is not None:
        opened = await in_thread(forge.open_ours, delivery, limits.open_pull_requests)
    return full(limits.deliveries, limits.open_pull_requests, others, opened)


async def _others(client: Client, repository: str, workflow_id: str, stack: str) -> tuple[Other, ...]:
    listed = [one async for one in client.list_workflows(RUNNING, limit=LISTED_MOST)]
    mine = next((one for one in listed if one.id == workflow_id), None)
    found = dict[str, Other]()
    for one in listed:
        said = one.typed_search_attributes
        # An item of the same backlog counts before it is prepared and says its repository: they begin in one moment.
        beside = mine is not None and mine.parent_id is not None and one.parent_id == mine.parent_id
        if one.id == workflow_id or not (beside or same_repository(said.get(_REPOSITORY) or "", repository)):
            continue
        if one.workflow_type == "Backlog":  # listed once it has begun; its pull request is in the making
            if one.parent_id is None and one.id != stack:
                found[one.id] = Other(phase="backlog", waits=True, proposed=bool(said.get(_PULL)))
            continue
        other = Other(
            phase=said.get(_PHASE) or "",
            waits=said.get(_STATUS) == "waiting",
            item=one.parent_id is not None and one.parent_id != stack,
            proposed=bool(said.get(_PULL)),
            before=mine is None or (one.start_time, one.id) < (mine.start_time, mine.id),
        )
        name = one.parent_id if one.parent_id and _is_task(one) else one.id
        if name not in found or found[name].waits:
            found[name] = other
    return tuple(found.values())


def _is_task(one: WorkflowExecution) -> bool:
    """Of a plan's tasks, whose small backlog is a delivery's child: that waits for them, and they count as one."""
    return one.parent_id is not None and one.root_id not in (None, one.parent_id)
