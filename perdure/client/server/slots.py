"""The slots of workers, of which each activity that runs takes one, as workers report them to the server; and why an
activity is still in its queue: all slots are taken, or no worker of its host is there. Nothing is asked where none
waits."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType, WorkerStatus
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, ListWorkersRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.server.view import (
    HOST_WAIT,
    ListEntry,
    PendingActivity,
    RunDescription,
    describe_run,
    find_workflow,
    has_pollers,
)
from perdure.models.limits import RPC_TIMEOUT, TASK_QUEUE, WORKER_REPORT_INTERVAL
from perdure.text import format_count, one_line

_PAGE, _PAGES = 200, 25
"""Workers' reports in one answer, and answers that are read; there is one report for each worker and queue. A server
keeps those of workers that are gone, for a day, and in no order that would put those first that live."""

_REMEMBERED = timedelta(minutes=5)
"""As long as a server remembers who asked for work: a worker that said nothing since is gone."""

_VALID = 1.5 * WORKER_REPORT_INTERVAL
"""The age up to which a report says how a worker is: the next one, a little late, has not come yet."""

SILENT_AFTER = 3 * WORKER_REPORT_INTERVAL
"""After this long without a report a worker is silent: one report may be lost, the next one late."""

_KEPT = timedelta(days=1)
"""As long as a server keeps the report of a worker that is gone."""

_DISPATCH = timedelta(seconds=2)
"""The time after which an activity that nobody has taken counts as waiting: a worker with a free slot takes it in
milliseconds."""

_DESCRIBED = 100
"""Listed deliveries of which it is asked whether they wait for a slot: a millisecond of the server each."""

_UNKNOWN = "waits for a worker with a free slot"


@dataclass(frozen=True)
class Slots:
    """Places for activities of one queue, `used` of `all`, as the worker said at `heard`."""

    queue: str
    used: int
    all: int
    heard: datetime


async def read_heartbeats(client: Client, within: timedelta = _REMEMBERED) -> dict[str, list[WorkerHeartbeat]]:
    """Fetch each worker's last heartbeats, one a queue, by its identity; without those that are older than `within`.

    Empty when the server keeps no such reports. Raises RPCError when it fails otherwise.
    """
    request = ListWorkersRequest(namespace=client.namespace, page_size=_PAGE)
    by_worker = defaultdict[str, list[WorkerHeartbeat]](list)
    for _ in range(_PAGES):
        try:
            page = await client.workflow_service.list_workers(request, timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status not in (RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.INVALID_ARGUMENT):
                raise
            return {}
        for beat in (info.worker_heartbeat for info in page.workers_info):
            if datetime.now(UTC) - _report_time(beat) < within:
                by_worker[beat.worker_identity].append(beat)
        request.next_page_token = page.next_page_token
        if not request.next_page_token:
            break
    return by_worker


def slots_of(beats: Sequence[WorkerHeartbeat]) -> tuple[Slots, ...]:
    """Return the slots in these heartbeats of workers that run, by queue."""
    slots = list[Slots]()
    for beat in filter(is_running, beats):
        info = beat.activity_task_slots_info
        places = info.current_used_slots + info.current_available_slots
        slots.append(Slots(beat.task_queue, info.current_used_slots, places, _report_time(beat)))
    return tuple(sorted(slots, key=lambda slot: slot.queue))


def is_running(beat: WorkerHeartbeat) -> bool:
    """Return True for a report of a worker that neither ends nor has ended."""
    return beat.status == WorkerStatus.WORKER_STATUS_RUNNING


async def explain_queue_waits(client: Client, descriptions: Sequence[RunDescription]) -> list[RunDescription]:
    """Return the descriptions, in their order, in which each activity that is still in its queue says why, as far as
    that is known (`queue_wait`).

    Calls the server only where one waits: once for all workers, and once for each queue in which one waits.
    """
    now = datetime.now(UTC)
    waiting = [activity for described in descriptions for activity in described.pending if _is_late(activity, now)]
    if not waiting:
        return list(descriptions)
    try:
        reported = [beat for beats in (await read_heartbeats(client, _KEPT)).values() for beat in beats]
        lengths = {queue: await _queue_length(client, queue) for queue in {activity.queue for activity in waiting}}
    except RPCError:
        reported, lengths = [], {}
    return [
        replace(
            described,
            pending=tuple(
                replace(activity, queue_wait=queue_wait_text(activity, reported, lengths.get(activity.queue, 1), now))
                for activity in described.pending
            ),
        )
        for described in descriptions
    ]


async def mark_queue_waits(client: Client, entries: Sequence[ListEntry]) -> list[ListEntry]:
    """Return the entries of a list, in their order, of which those with an activity that no worker takes say why
    (`held`, `since`).

    One call where one runs; only where all slots of a worker are taken, or no worker of a queue is there any more, are
    the first _DESCRIBED that run described. Unchanged where the server does not answer.
    """
    running = [entry for entry in entries if entry.closed is None and not entry.waiting and not entry.held]
    if not running:
        return list(entries)
    try:
        now = datetime.now(UTC)
        beats = [beat for beats in (await read_heartbeats(client, _KEPT)).values() for beat in beats]
        valid = _valid_slots(beats, now)
        left_queues = {beat.task_queue for beat in beats} - {slot.queue for slot in valid}
        if not left_queues and not any(slot.used >= slot.all for slot in valid):
            return list(entries)
        executions = await asyncio.gather(
            *(find_workflow(client, entry.delivery_id, entry.run_id) for entry in running[:_DESCRIBED])
        )
        described = [await describe_run(execution) for execution in executions if execution is not None]
        explained = await explain_queue_waits(client, described)
    except RPCError:
        return list(entries)
    waits = {
        described.run_id: activity for described in explained for activity in described.pending if activity.queue_wait
    }
    return [
        replace(entry, held=waits[entry.run_id].queue_wait, since=waits[entry.run_id].queued_since)
        if entry.run_id in waits
        else entry
        for entry in entries
    ]


async def find_host_reason(client: Client, queue: str) -> str:
    """Return why nobody takes activities from a host's queue: no worker of it is there, and since when; empty where one
    is there. Raises RPCError."""
    beats = [beat for beats in (await read_heartbeats(client, _KEPT)).values() for beat in beats]
    if not beats:
        return "" if await has_pollers(client, queue) else f"{HOST_WAIT}: no worker is there"
    of_queue, now = [beat for beat in beats if beat.task_queue == queue], datetime.now(UTC)
    return "" if _valid_slots(of_queue, now) else _host_wait_text(queue, of_queue, now)


def _is_late(activity: PendingActivity, now: datetime) -> bool:
    """Return True for an activity that no worker has taken within the time that takes where a slot is free."""
    return activity.queued_since is not None and now - activity.queued_since >= _DISPATCH


def _valid_slots(beats: Sequence[WorkerHeartbeat], now: datetime) -> list[Slots]:
    return [slot for slot in slots_of(beats) if now - slot.heard < _VALID]


def queue_wait_text(activity: PendingActivity, beats: Sequence[WorkerHeartbeat], length: int, now: datetime) -> str:
    """Return why an activity is still in its queue: that no worker of its host is there and since when, or that it
    waits for a slot, with numbers where they are known. Empty where it does not wait, or something else keeps it.

    beats   the last reports of all workers; none: the server has none, or did not answer
    length  activities that wait in its queue, with this one
    """
    if activity.queued_since is None or not _is_late(activity, now):
        return ""
    of_queue = [beat for beat in beats if beat.task_queue == activity.queue]
    slots = _valid_slots(of_queue, now)
    if not slots:
        return _host_wait_text(activity.queue, of_queue, now) if beats else _UNKNOWN
    free_times = [slot.heard for slot in slots if slot.used < slot.all]
    if free_times:  # one that was free meanwhile, and has not taken it: something else keeps it
        return "" if max(free_times) > activity.queued_since + _DISPATCH else _UNKNOWN
    used, places = (sum(numbers) for numbers in zip(*((slot.used, slot.all) for slot in slots), strict=True))
    others = f", {format_count(length - 1, 'other')} waiting" if length > 1 else ""
    return f"waits for a slot: {used} of {places} busy{others}"


def _host_wait_text(queue: str, beats: Sequence[WorkerHeartbeat], now: datetime) -> str:
    """Return that no worker takes from a queue, by the last reports of those that did, with host and time. A report
    that may only be late says less."""
    if queue == TASK_QUEUE:
        return "waits for a worker: none is there"
    if not beats:
        return f"{HOST_WAIT}: no worker is there"
    last = max(beats, key=_report_time)
    if is_running(last) and now - _report_time(last) < SILENT_AFTER:
        return _UNKNOWN
    host = last.worker_identity.partition("@")[2].rpartition("/")[0]  # of pid@host/worker
    return f"{HOST_WAIT}: no worker on {one_line(host, 60)} since {_report_time(last):%Y-%m-%d %H:%M:%S} UTC"


def _report_time(beat: WorkerHeartbeat) -> datetime:
    return beat.heartbeat_time.ToDatetime(UTC)


async def _queue_length(client: Client, queue: str) -> int:
    """Return the number of activities that wait in a queue, some seconds old. Raises RPCError."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        report_stats=True,
    )
    answer = await client.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)
    return answer.stats.approximate_backlog_count
