"""`/hosts`: workers and what they do, budgets of the day, what was spent by day, by repository and by label."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from aiohttp import web
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from perdure.adapters.system.files import is_locked
from perdure.adapters.system.home import Home
from perdure.client.budgets import read_budget_table
from perdure.client.server.slots import SILENT_AFTER, Slots, is_running, read_heartbeats, slots_of
from perdure.client.server.view import ListEntry, list_newest
from perdure.models.budget.treasury import TreasuryTable
from perdure.models.errors import PerdureError
from perdure.models.limits import TASK_QUEUE, WORKER_REPORT_INTERVAL
from perdure.page.render import perdure_of, render
from perdure.render.formatting import repository_label

DAYS = 14
"""Days of spending, today among them."""

_COUNTED = 5_000
"""Deliveries whose cost is added up, the newest: a second of the server's time."""

_NEVER = datetime.min.replace(tzinfo=UTC)

_NAME = re.compile("[0-9a-f]{32}")

_NAMED = 50
"""Repositories, and labels, that are shown, the dearest."""


@dataclass(frozen=True)
class Worker:
    """A process that takes work.

    identity  `pid@host/worker`
    seen      when it asked for work last, or reported how it is
    slots     none where the server keeps no such reports
    state     as far as it is known here, see worker_state
    """

    identity: str
    seen: datetime
    slots: tuple[Slots, ...]
    state: str


def routes() -> list[web.RouteDef]:
    return [web.get("/hosts", show_hosts)]


async def show_hosts(request: web.Request) -> web.StreamResponse:
    """Render the page of workers, budgets and spending; why the budgets cannot be read is said on it.

    Raises RPCError when the server does not list deliveries or workers.
    """
    client, trouble = perdure_of(request).client, ""
    table: TreasuryTable | None = None
    try:
        table = await read_budget_table(client)
    except PerdureError as error:
        trouble = f"{error.what}: {error.fix}" if error.fix else error.what
    since = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS - 1)
    listed = await list_newest(client, _COUNTED, f"StartTime >= '{since.isoformat()}'")
    days, repositories, labels = sum_costs(listed)
    return render(
        request,
        "hosts.html",
        workers=await list_workers(client, Home.find()),
        beat_s=round(WORKER_REPORT_INTERVAL.total_seconds()),
        silent_s=round(SILENT_AFTER.total_seconds()),
        table=table,
        trouble=trouble,
        days=days,
        repositories=repositories,
        labels=labels,
        labels_of=repository_labels(repositories),
        most=max(days.values(), default=0.0),
        unknown=sum(entry.cost_usd is None for entry in listed),
        counted=len(listed),
    )


async def list_workers(client: Client, home: Home) -> list[Worker]:
    """List all workers that have asked for work or reported in the last minutes, the newest first. Raises RPCError when
    the server does not say.

    A worker of this `home` that has ended is among them, with the state `gone`.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=TASK_QUEUE),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    polled = (await client.workflow_service.describe_task_queue(request)).pollers
    last_seen = {poller.identity: poller.last_access_time.ToDatetime(UTC) for poller in polled}
    heartbeats = await read_heartbeats(client)
    for identity, beats in heartbeats.items():
        last_seen[identity] = max(
            last_seen.get(identity, _NEVER), *(beat.heartbeat_time.ToDatetime(UTC) for beat in beats)
        )
    listed = [
        Worker(
            identity, time, slots_of(beats := heartbeats.get(identity, [])), worker_state(identity, beats, time, home)
        )
        for identity, time in last_seen.items()
    ]
    return sorted(listed, key=lambda worker: worker.seen, reverse=True)


def worker_state(identity: str, beats: list[WorkerHeartbeat], seen: datetime, home: Home) -> str:
    """Return `gone`, `leaving` or `silent` for a worker that does not work; else empty.

    `gone`: it has ended. `leaving`: it said that it ends. `silent`: it no longer reports. A worker holds a lock of its
    home for life: of this home's on this host it is known at once whether it lives. It is this home's when it takes
    work from this host's own queue, or has left its lock here; a host's name or a process number does not tell.
    """
    name = identity.rpartition("/")[2]
    lock = home.inflight / f"{name}.lock"
    is_ours = _NAME.fullmatch(name) and (any(beat.task_queue == home.queue() for beat in beats) or lock.exists())
    if is_ours and not is_locked(lock):
        return "gone"
    if beats and not any(map(is_running, beats)):
        return "leaving"
    return "silent" if beats and datetime.now(UTC) - seen > SILENT_AFTER else ""


def sum_costs(listed: list[ListEntry]) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Sum dollars by the day on which deliveries began (UTC, newest first), by repository and by label (dearest first).

    Returns these three. Deliveries of unknown cost are left out, and so are attempts and tasks: they are parts of their
    delivery, whose cost has theirs in it. A delivery with several labels counts under each. At most _NAMED repositories
    and labels.
    """
    days, repositories, labels = (defaultdict[str, float](float) for _ in range(3))
    ids = {entry.delivery_id for entry in listed}
    for entry in listed:
        if entry.cost_usd is not None and not _is_part(entry.delivery_id, ids):
            days[f"{entry.started.astimezone(UTC):%Y-%m-%d}"] += entry.cost_usd
            repositories[entry.repository] += entry.cost_usd
            for label in entry.labels:
                labels[label] += entry.cost_usd
    return dict(sorted(days.items(), reverse=True)), _most_costly(repositories), _most_costly(labels)


def repository_labels(repositories: Iterable[str]) -> dict[str, str]:
    """Return the labels of these repositories; of those whose labels would be alike, they themselves."""
    labels = {repository: repository_label(repository) for repository in repositories}
    counts = Counter(labels.values())
    return {repository: label if counts[label] == 1 else repository for repository, label in labels.items()}


def _most_costly(costs: dict[str, float]) -> dict[str, float]:
    return dict(sorted(costs.items(), key=lambda pair: -pair[1])[:_NAMED])


def _is_part(id: str, ids: set[str]) -> bool:
    """Return True for an attempt or a task of another delivery among `ids`."""
    for mark in ("/attempt-", "/tasks-"):
        whole, separator, _ = id.partition(mark)
        if separator and whole in ids:
            return True
    return False
