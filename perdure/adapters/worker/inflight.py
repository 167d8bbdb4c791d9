"""Notes on disk of the activities that each worker of a host has in flight, so that the living workers report a dead
one's work as failed, and the server hands it out again after a millisecond instead of after the heartbeat timeout.

The interceptor in `attempt` writes the notes; `worker.py` runs `InFlight.report_dead_workers`, which reads them.

A worker holds a flock for its life and notes every activity it begins, with its task token. Whoever can take the lock
of another worker knows that it is dead and reports its notes. By task token only: a report by activity id was seen to
kill the living next attempt; by token the server answers NotFound and nothing happens. What the dead worker was handed
and had not noted yet is found by asking the server.

Between the server's handing out an activity and the worker's note of it lie some milliseconds: a worker that dies there
leaves no token behind. But the server shows to whom it handed an activity last, each worker has a name of its own, and
a token says no more than which attempt it is about. So a token is made for that attempt: the server compares it with
the attempt that runs, like any token (seen with server 1.32: NotFound for an earlier attempt, a later one, and one that
waits). Should a server's tokens look different, it says so, and the heartbeat timeout decides as before.

The same holds for a workflow's next decision, which no worker notes: history says who took it, and given back as failed
it is handed out again after 10 ms, instead of after its time-out of 5 s.

Three other ways were tried and are not taken. The server's reset of an activity changes nothing before the timeout for
one that was handed out. A report by activity id kills the living next attempt. A shorter heartbeat timeout works, but
given back while the next attempt waits it ends the activity for good, by a ScheduleToStart timeout of the past.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import shutil
import socket
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryReverseRequest,
    ResetStickyTaskQueueRequest,
    RespondWorkflowTaskFailedRequest,
)
from temporalio.client import AsyncActivityHandle, Client
from temporalio.client import WorkflowExecution as Run
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.adapters.system.files import is_locked, try_lock, write_whole
from perdure.adapters.system.home import Home
from perdure.models.ids import digest
from perdure.models.limits import RPC_TIMEOUT, TASK_QUEUE

RUNNING = f"ExecutionStatus = 'Running' AND TaskQueue = '{TASK_QUEUE}'"

_STARTED = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
_DECIDING = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED

_LATEST = 20
"""Events that are read from the end of a history: that a workflow task was taken is the last one but for what came in
since."""


async def find_handed_out(client: Client, worker: str) -> AsyncIterator[dict[str, Any]]:
    """Find the work that the server has handed to a worker, and yield a note of each, as the worker would have made it:
    of each activity that the server believes the worker to be at, and of each workflow task the worker has taken, whose
    note has no activity. Every running workflow of the task queue is looked at. Raises RPCError."""
    namespace = ""
    async for workflow_run in client.list_workflows(RUNNING):
        description = await _describe_run(client, workflow_run)
        if description.pending_workflow_task.state == _DECIDING and (
            token_fields := await _workflow_task_fields(client, workflow_run, worker)
        ):
            namespace = namespace or await _namespace_id(client)
            yield _make_note(workflow_run, _encode_token(namespace, workflow_run, token_fields), "")
        for pending in description.pending_activities:
            if pending.state != _STARTED or not pending.last_worker_identity.endswith(worker):
                continue
            namespace = namespace or await _namespace_id(client)
            if scheduled_event := await _scheduled_event(client, workflow_run, pending.activity_id):
                token = _encode_token(
                    namespace, workflow_run, {4: scheduled_event, 5: pending.attempt}, pending.activity_id
                )
                yield _make_note(workflow_run, token, pending.activity_type.name)


async def fail_workflow_task(client: Client, token: bytes) -> None:
    """Report a workflow task that a dead worker had taken as failed, so that it is handed out again: the worker has
    decided nothing. Raises RPCError."""
    request = RespondWorkflowTaskFailedRequest(
        namespace=client.namespace,
        task_token=token,
        cause=WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FAILOVER_CLOSE_COMMAND,
        failure=Failure(message="its worker died", source="Perdure"),
    )
    await client.workflow_service.respond_workflow_task_failed(request, timeout=RPC_TIMEOUT)


def _make_note(workflow_run: Run, token: bytes, activity: str) -> dict[str, Any]:
    """Return a note of work in flight, as InFlight writes it; empty `activity`: a workflow task."""
    return {
        "token": base64.b64encode(token).decode(),
        "workflow_id": workflow_run.id,
        "run_id": workflow_run.run_id,
        "activity": activity,
    }


async def _describe_run(client: Client, workflow_run: Run) -> DescribeWorkflowExecutionResponse:
    """Fetch the server's description of a run: what is pending there; an empty one when the run is not known any more.
    Raises RPCError."""
    execution = WorkflowExecution(workflow_id=workflow_run.id, run_id=workflow_run.run_id)
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
    try:
        return await client.workflow_service.describe_workflow_execution(request, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return DescribeWorkflowExecutionResponse()  # it has ended: nothing is pending
        raise


async def _workflow_task_fields(client: Client, workflow_run: Run, worker: str) -> dict[int, int] | None:
    """Return the numbers in the token of a run's pending workflow task, as `_encode_token` takes them, if that worker
    has taken it. None when another worker did, when the task was tried before (history has no event of a second
    attempt), and when the newest _LATEST events do not tell. Raises RPCError."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=workflow_run.id, run_id=workflow_run.run_id),
        maximum_page_size=_LATEST,
    )
    answer = await client.workflow_service.get_workflow_execution_history_reverse(request, timeout=RPC_TIMEOUT)
    for event in answer.history.events:
        if event.HasField("workflow_task_started_event_attributes"):
            started = event.workflow_task_started_event_attributes
            is_ours = started.identity.endswith(worker)
            return {4: started.scheduled_event_id, 5: 1, 10: event.event_id} if is_ours else None
        if event.HasField("workflow_task_failed_event_attributes") or event.HasField(
            "workflow_task_timed_out_event_attributes"
        ):
            return None
    return None


async def _namespace_id(client: Client) -> str:
    """Fetch the id of the client's namespace, which tokens contain."""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    return (await client.workflow_service.describe_namespace(request, timeout=RPC_TIMEOUT)).namespace_info.id


async def _scheduled_event(client: Client, workflow_run: Run, activity_id: str) -> int:
    """Find in the run's whole history the id of the event with which a pending activity was scheduled; 0 when it has
    none. Raises RPCError."""
    event_id = 0
    async for event in client.get_workflow_handle(workflow_run.id, run_id=workflow_run.run_id).fetch_history_events():
        if event.activity_task_scheduled_event_attributes.activity_id == activity_id:
            event_id = event.event_id
    return event_id


def _encode_token(namespace: str, workflow_run: Run, numbers: dict[int, int], activity: str = "") -> bytes:
    """Encode a task token, the server's message `Task` (temporal.server.api.token.v1): which attempt at what of which
    run. `numbers` are its fields: 4 the event that scheduled it, 5 the attempt, 10 the event with which a workflow task
    was taken."""
    texts = {1: namespace, 2: workflow_run.id, 3: workflow_run.run_id, **({6: activity} if activity else {})}
    fields = [
        _encode_varint(field << 3 | 2) + _encode_varint(len(text.encode())) + text.encode()
        for field, text in texts.items()
    ]
    fields += [_encode_varint(field << 3) + _encode_varint(number) for field, number in numbers.items()]
    return b"".join(fields)


def _encode_varint(number: int) -> bytes:
    """Encode a number as protocol buffers write it: seven bits a byte, the least first."""
    groups = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([byte | 0x80 for byte in groups[:-1]] + groups[-1:])


log = logging.getLogger(__name__)

SCAN_EVERY_S = 1.0
"""The pause between two looks for dead workers: recovery is measured in seconds, a scan of an empty directory in µs."""

REPORT_PAUSE = timedelta(milliseconds=1)
"""A death is nobody's failure: the next attempt starts at once."""

UNSEEN_S = 60.0
"""The age at which a lock that was never made visible is a dead worker's: a worker makes its lock visible microseconds
after it has made it."""

_SETTLED = (RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.INVALID_ARGUMENT)
"""Answers that will not change: it is over, it is not running, or this server never gave out such a token."""


REPORTING = "burial"
"""Name of the lock of whoever reports a dead worker's notes; it tells nothing about who lives."""


class InFlight:
    """The work of this worker in flight, noted on disk for other workers to find. `worker`: this worker's unique name;
    `identity`: what servers call it, ending in that name."""

    def __init__(self, home: Home) -> None:
        """Give this worker a name, make a lock of that name in the home, which is held from here on, and a directory
        for its notes."""
        self.worker = uuid.uuid4().hex
        self.identity = f"{os.getpid()}@{socket.gethostname()}/{self.worker}"
        self._root = home.inflight
        self._notes = home.inflight / self.worker
        unseen = home.inflight / f".{self.worker}"
        self._lock = try_lock(unseen)
        assert self._lock is not None, "a fresh name cannot be locked"
        os.rename(unseen, home.inflight / f"{self.worker}.lock")  # whoever finds it finds it held
        self._notes.mkdir()  # after its lock: notes without one would be nobody's to clear, if it died in between

    def is_alive(self, worker: str) -> bool:
        """Return whether that worker of this host lives: its lock is held."""
        if worker == self.worker:
            return True
        return is_alive(self._root, worker)

    @contextlib.contextmanager
    def note_activity(self, *, token: bytes, workflow_id: str, run_id: str, activity: str) -> Iterator[None]:
        """Write a note of an activity, with its task token, to disk, and keep it while the block runs.

        After the block the note takes the place of the run's previous one and stays: a report of it would be answered
        NotFound, and it names a run whose sticky queue must be reset when this worker dies. When the notes were deleted
        meanwhile, nothing is kept.
        """
        note = {
            "token": base64.b64encode(token).decode(),
            "workflow_id": workflow_id,
            "run_id": run_id,
            "activity": activity,
        }
        path = self._notes / f"{run_id}.{digest(token.hex())[:16]}.json"
        write_whole(path, json.dumps(note).encode(), sync=False)
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                path.rename(self._notes / f"{run_id}.json")

    def forget_run(self, run_id: str) -> None:
        """Delete the note of a run's activity that has ended last: the run ends with it, and only what is still in
        flight counts."""
        (self._notes / f"{run_id}.json").unlink(missing_ok=True)

    def close(self) -> None:
        """Delete this worker's notes and its lock: everything in flight was drained or handed over. Calling it twice is
        fine."""
        shutil.rmtree(self._notes, ignore_errors=True)
        if self._lock is not None:
            (self._root / f"{self.worker}.lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    async def report_dead_workers(self, client: Client) -> None:
        """Look for workers whose lock is free, every SCAN_EVERY_S until the task is cancelled, and report what each had
        in flight as failed. At the beginning, locks of workers that died while they started are deleted. An OSError is
        logged, and the search goes on."""
        await asyncio.to_thread(_delete_unseen_locks, self._root)
        while True:
            try:
                for lock in await asyncio.to_thread(lambda: sorted(self._root.glob("*.lock"))):
                    if lock.stem not in (self.worker, REPORTING):
                        await self._report_dead_worker(client, lock)
            except OSError as error:  # no descriptors, no disk: passes, and nobody else would look again
                log.warning("could not look for dead workers: %s", error)
            await asyncio.sleep(SCAN_EVERY_S)

    async def _report_dead_worker(self, client: Client, lock: Path) -> None:
        """Report as failed what a worker had noted as in flight and what the server had handed to it besides; then
        delete its notes and its lock. Do nothing where it is alive, or another worker reports deaths just now.

        The sticky queues of all runs that are noted on this host are reset, too: the dead worker may have kept their
        workflows in memory. Where the server cannot be told, notes and lock stay for the next scan.
        """
        if is_alive(self._root, lock.stem):
            return
        fd = try_lock(self._root / f"{REPORTING}.lock")  # one at a time, or another worker reports the same deaths
        if fd is None:
            return
        try:
            for path, note in await asyncio.to_thread(_notes_of, lock):
                if await _report_note(client, note):
                    path.unlink(missing_ok=True)
            # It may also have kept workflows in memory whose activities run in others: those are noted there.
            for path in await asyncio.to_thread(lambda: sorted(self._root.glob("*/*.json"))):
                for _, note in await asyncio.to_thread(_read_notes, [path]):
                    await _reset_sticky_queue(client, note)
            if await _report_handed_out(client, lock.stem):
                await asyncio.to_thread(_delete_worker, lock)
        finally:
            os.close(fd)


def is_alive(root: Path, worker: str) -> bool:
    """Return whether that worker's lock is held."""
    return is_locked(root / f"{worker}.lock")


def _notes_of(lock: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return a worker's notes, newest first: what it worked on last is what somebody waits for."""
    return _read_notes(sorted(lock.with_suffix("").glob("*.json"), key=lambda path: -path.stat().st_mtime))


def _read_notes(paths: list[Path]) -> list[tuple[Path, dict[str, Any]]]:
    """Return the notes that can be read, with their paths; those that are gone are left out. One that holds no JSON,
    because a power cut has emptied it, is deleted: it names nothing that the server still waits for here."""
    notes = []
    for path in paths:
        try:
            notes.append((path, json.loads(path.read_bytes())))
        except FileNotFoundError:
            continue
        except ValueError:
            path.unlink(missing_ok=True)
    return notes


def _delete_worker(lock: Path) -> None:
    """Delete the notes' directory and the lock of a dead worker; do nothing while a note is left."""
    notes = lock.with_suffix("")
    if not any(notes.glob("*.json")):
        shutil.rmtree(notes, ignore_errors=True)
        lock.unlink(missing_ok=True)


def _delete_unseen_locks(root: Path) -> None:
    """Delete the locks that workers made and did not make visible before they died: hidden files, free and older than
    UNSEEN_S. An OSError ends this without an error; the next worker tries again."""
    with contextlib.suppress(
        OSError
    ):  # one was seen meanwhile, or there are no descriptors: the next worker looks again
        for path in root.glob(".*"):
            if time.time() - path.stat().st_mtime > UNSEEN_S and not is_locked(path):
                path.unlink()


async def _reset_sticky_queue(client: Client, note: dict[str, Any]) -> bool:
    """Let any worker have the run's next workflow task. Returns True when the server has done so, or the run is over or
    not known; False when the server could not be told and should be asked again."""
    sticky = ResetStickyTaskQueueRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=note["workflow_id"], run_id=note["run_id"]),
    )
    try:
        await client.workflow_service.reset_sticky_task_queue(sticky, timeout=RPC_TIMEOUT)
    except RPCError as error:
        return error.status in _SETTLED
    return True


async def _report_handed_out(client: Client, worker: str) -> bool:
    """Report as failed what the server had handed to a dead worker and that worker had not noted. Returns True when
    nothing of it is left to report, or the server does not permit us to ask; False when it has to be tried again. An
    RPCError is logged."""
    try:
        return all([await _report_note(client, note) async for note in find_handed_out(client, worker)])
    except RPCError as error:
        log.warning("could not ask what else a dead worker had in hand: %s", error)
        return error.status == RPCStatusCode.PERMISSION_DENIED  # who may not look will not be let in a second later


async def _report_note(client: Client, note: dict[str, Any]) -> bool:
    """Reset the sticky queue of the run of a dead worker's note, then report its activity or workflow task as failed,
    and log that. Returns True when that is settled: it is reported, or there is nothing to report any more; False when
    the server could not be told."""
    # The dead worker's sticky queue first: otherwise the workflow task that follows waits 10 s for it.
    if not await _reset_sticky_queue(client, note):
        return False
    token = base64.b64decode(note["token"])
    handle: AsyncActivityHandle = client.get_async_activity_handle(task_token=token)
    death = ApplicationError(
        f"the worker died during {note['activity']}; it is done again from its checkpoint",
        type="WorkerDied",
        next_retry_delay=REPORT_PAUSE,
    )
    try:
        if note["activity"]:
            await handle.fail(death, rpc_timeout=RPC_TIMEOUT)
        else:
            await fail_workflow_task(client, token)
    except RPCError as error:
        if error.status not in _SETTLED:
            return False
    else:
        what = note["activity"] or "a decision"
        log.warning("reported %s of %s: its worker had died", what, note["workflow_id"])
    return True
