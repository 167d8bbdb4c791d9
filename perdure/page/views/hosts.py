"""`/hosts`: workers and what they do, budgets of the day, what was spent by day, by repository and by label."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aiohttp import web
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

from perdure.client.budgets import read_table
from perdure.client.listing import newest
from perdure.models.errors import PerdureError
from perdure.models.limits import TASK_QUEUE
from perdure.page.render import perdure_of, render

if TYPE_CHECKING:
    from temporalio.client import Client

    from perdure.client.view import Listed
    from perdure.models.treasury import Table

DAYS = 14
"""Of spending, today among them."""

_COUNTED = 5_000
"""Deliveries whose cost is added up, the newest: a second of the server's time."""

_NAMED = 50
"""Repositories, and labels, the dearest."""


@dataclass(frozen=True)
class Worker:
    """One process that takes work. `identity`: `pid@host/worker`; seen: when it asked for work last."""

    identity: str
    seen: datetime


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
        workers=await workers(client),
        table=table,
        trouble=trouble,
        days=days,
        repositories=repositories,
        labels=labels,
        most=max(days.values(), default=0.0),
        unknown=sum(one.cost_usd is None for one in listed),
        counted=len(listed),
    )


async def workers(client: Client) -> list[Worker]:
    """All that have asked for work in the last minutes, those that asked last first. Raises RPCError."""
    asked = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=TASK_QUEUE),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    found = (await client.workflow_service.describe_task_queue(asked)).pollers
    return sorted(
        (Worker(one.identity, one.last_access_time.ToDatetime(UTC)) for one in found),
        key=lambda worker: worker.seen,
        reverse=True,
    )


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
