"""`/hosts`: workers and what they do, budgets of the day, what was spent by day, by repository and by label."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from aiohttp import web
from temporalio.api.enums.v1 import TaskQueueType, WorkerStatus
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, ListWorkersRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.adapters.system.files import held
from perdure.adapters.system.home import Home
from perdure.client.budgets import read_table
from perdure.client.listing import newest
from perdure.client.view import Listed
from perdure.models.errors import PerdureError
from perdure.models.limits import TASK_QUEUE, WORKER_SAYS
from perdure.models.treasury import Table
from perdure.page.render import perdure_of, render

DAYS = 14
"""Of spending, today among them."""

_COUNTED = 5_000
"""Deliveries whose cost is added up, the newest: a second of the server's time."""

_PAGE, _PAGES = 200, 25
"""Of workers' reports, one a worker and queue: a server keeps those of workers that are gone, for a day, and in no
order that would put those first that live."""

_NEVER = datetime.min.replace(tzinfo=UTC)

_HEARD = timedelta(minutes=5)
"""As long as a server remembers who asked for work: a worker that said nothing since is gone."""

_SILENT = 3 * WORKER_SAYS
"""One report may be lost, the next one late."""

_NAME = re.compile("[0-9a-f]{32}")

_NAMED = 50
"""Repositories, and labels, the dearest."""


@dataclass(frozen=True)
class Slots:
    """Places for activities of one queue, `used` of `all`, as the worker said at `heard`."""

    queue: str
    used: int
    all: int
    heard: datetime


@dataclass(frozen=True)
class Worker:
    """One process that takes work. `identity`: `pid@host/worker`; seen: when it asked for work last, or said how it is;
    slots: none where the server keeps no such reports; state: as far as it is known here, see state_of."""

    identity: str
    seen: datetime
    slots: tuple[Slots, ...]
    state: str


def routes() -> list[web.RouteDef]:
    return [web.get("/hosts", show)]


async def show(request: web.Request) -> web.StreamResponse:
    """The page; what of it cannot be read is said on it."""
    client, trouble = perdure_of(request).client, ""
    table: Table | None = None
    try:
        table = await read_table(client)
    except PerdureError as error:
        trouble = f"{error.what}: {error.fix}" if error.fix else error.what
    since = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS - 1)
    listed = await newest(client, _COUNTED, f"StartTime >= '{since.isoformat()}'")
    days, repositories, labels = spent(listed)
    return render(
        request,
        "hosts.html",
        workers=await workers(client, Home.find()),
        beat_s=round(WORKER_SAYS.total_seconds()),
        silent_s=round(_SILENT.total_seconds()),
        table=table,
        trouble=trouble,
        days=days,
        repositories=repositories,
        labels=labels,
        most=max(days.values(), default=0.0),
        unknown=sum(one.cost_usd is None for one in listed),
        counted=len(listed),
    )


async def workers(client: Client, home: Home) -> list[Worker]:
    """All that have asked for work in the last minutes, those that asked last first. Raises RPCError."""
    asked = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=TASK_QUEUE),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    polled = (await client.workflow_service.describe_task_queue(asked)).pollers
    seen = {one.identity: one.last_access_time.ToDatetime(UTC) for one in polled}
    heartbeats = await _heartbeats(client)
    for identity, beats in heartbeats.items():
        seen[identity] = max(seen.get(identity, _NEVER), *(beat.heartbeat_time.ToDatetime(UTC) for beat in beats))
    found = [
        Worker(identity, at, _slots(beats := heartbeats.get(identity, [])), state_of(identity, beats, at, home))
        for identity, at in seen.items()
    ]
    return sorted(found, key=lambda worker: worker.seen, reverse=True)


async def _heartbeats(client: Client) -> dict[str, list[WorkerHeartbeat]]:
    """By worker, its last heartbeats, one a queue; empty where the server has none of these."""
    asked = ListWorkersRequest(namespace=client.namespace, page_size=_PAGE)
    found = defaultdict[str, list[WorkerHeartbeat]](list)
    for _ in range(_PAGES):
        try:
            listed = await client.workflow_service.list_workers(asked)
        except RPCError as error:
            if error.status not in (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.INVALID_ARGUMENT):
                raise
            return {}
        for beat in (one.worker_heartbeat for one in listed.workers_info):
            if datetime.now(UTC) - beat.heartbeat_time.ToDatetime(UTC) < _HEARD:
                found[beat.worker_identity].append(beat)
        asked.next_page_token = listed.next_page_token
        if not asked.next_page_token:
            break
    return found


def _slots(beats: list[WorkerHeartbeat]) -> tuple[Slots, ...]:
    found = list[Slots]()
    for beat in filter(_runs, beats):
        of, heard = beat.activity_task_slots_info, beat.heartbeat_time.ToDatetime(UTC)
        places = of.current_used_slots + of.current_available_slots
        found.append(Slots(beat.task_queue, of.current_used_slots, places, heard))
    return tuple(sorted(found, key=lambda slot: slot.queue))


def _runs(beat: WorkerHeartbeat) -> bool:
    return beat.status == WorkerStatus.WORKER_STATUS_RUNNING


def state_of(identity: str, beats: list[WorkerHeartbeat], seen: datetime, home: Home) -> str:
    """`gone`: it has ended. `leaving`: it said that it ends. `silent`: it says no more how it is. Else empty.

    A worker holds a lock of its home for life: of this home's on this host it is known at once whether it lives. It is
    this home's when it takes work from this host's own queue, or has left its lock here; by the name of a host or the
    number of a process nobody is known.
    """
    name = identity.rpartition("/")[2]
    lock = home.inflight / f"{name}.lock"
    ours = _NAME.fullmatch(name) and (any(beat.task_queue == home.queue() for beat in beats) or lock.exists())
    if ours and not held(lock):
        return "gone"
    if beats and not any(map(_runs, beats)):
        return "leaving"
    return "silent" if beats and datetime.now(UTC) - seen > _SILENT else ""


def spent(listed: list[Listed]) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Dollars by the day on which deliveries began (UTC), by repository and by label, the dearest first. Attempts and
    tasks are parts of their delivery, whose cost has theirs in it; one with several labels counts under each."""
    days, repositories, labels = (defaultdict[str, float](float) for _ in range(3))
    ids = {one.delivery_id for one in listed}
    for one in listed:
        if one.cost_usd is not None and not _is_part(one.delivery_id, ids):
            days[f"{one.started.astimezone(UTC):%Y-%m-%d}"] += one.cost_usd
            repositories[one.repository] += one.cost_usd
            for label in one.labels:
                labels[label] += one.cost_usd
    return dict(sorted(days.items(), reverse=True)), _dearest(repositories), _dearest(labels)


def _dearest(found: dict[str, float]) -> dict[str, float]:
    return dict(sorted(found.items(), key=lambda one: -one[1])[:_NAMED])


def _is_part(id: str, ids: set[str]) -> bool:
    """True for an attempt or a task of another delivery."""
    for mark in ("/attempt-", "/tasks-"):
        whole, found, _ = id.partition(mark)
        if found and whole in ids:
            return True
    return False
