"""The Temporal server's own view of deliveries and backlogs, for which no worker is needed: descriptions and lists."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.failure.v1 import Failure
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.common import SearchAttributeKey
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.base import read_as
from perdure.models.delivery.decisions import PendingDecision
from perdure.models.delivery.request import ResumePoint
from perdure.models.delivery.result import DeliveryResult
from perdure.models.delivery.result_text import outcome_text, reason_text
from perdure.models.errors import InvalidRequest
from perdure.models.ids import CHANGE, DELIVERY_WORKFLOW, LABELS, TITLE, WAITING
from perdure.models.limits import TASK_QUEUE
from perdure.models.webui.captions import parse_waiting
from perdure.models.webui.markdown import unescape_line
from perdure.text import one_line, shorten

RESUME = "resume"
"""Memo of a run that ended without delivering: a ResumePoint."""

_ENDED_CHARS = 200
"""Most characters of how a delivery ended: in a refusal's first line, in lists."""

ASKED = "asked"
"""Memo of a run while it waits for a person: an Asked."""


@dataclass(frozen=True)
class ListEntry:
    """A line of `perdure list`, from visibility alone. Search attributes are empty where the server has none.

    pending_decision   what it waits for a person to decide, None when nothing
    change, labels     the size of its change with its tests, and its labels
    held, since        what it waits for where nobody is asked anything, and since when
    title              its issue's, its plan's, or the first line of its request

    The last five are empty where the server keeps no such thing.
    """

    delivery_id: str
    run_id: str
    status: str
    started: datetime
    closed: datetime | None
    repository: str
    phase: str
    pull_request: str
    cost_usd: float | None
    pending_decision: PendingDecision | None = None
    change: str = ""
    labels: tuple[str, ...] = ()
    held: str = ""
    since: datetime | None = None
    title: str = ""

    @property
    def waiting(self) -> bool:
        """Return True where it waits for a person's decision, somebody holds it, or it waits for a host."""
        return self.closed is None and (self.pending_decision is not None or self.status == "waiting")

    @property
    def waits_for(self) -> str:
        """Return the kind of decision, `plan`, `pull request`, `question`…; empty where nobody is asked anything."""
        return self.pending_decision.gate.replace("_", " ") if self.pending_decision is not None else ""

    @property
    def options(self) -> tuple[str, ...]:
        """Return the names of the updates that can answer it."""
        return self.pending_decision.options if self.pending_decision is not None else ()


HOST_WAIT = "waits for its host"
"""The begin of why an activity is still in the queue of a host on which no worker is."""


@dataclass(frozen=True)
class PendingActivity:
    """An activity in flight, as the server sees it: works when no worker does.

    details   last heartbeat: small JSON such as {"turn": 3, "doing": "pytest -q"}
    failure   why the last attempt failed, empty when none did
    died      the last attempt ended with its worker: reported by another one, or by the heartbeat's timeout
    silent    it was the timeout: the worker died with its host, or the host slept or was cut off
    heard     when its worker last sent a heartbeat, or took it; None while nobody has it

    queue         where it is taken from; empty where the server does not say
    queued_since  when it was put there; None: a worker has it, it is paused, or its next attempt is not due
    queue_wait    why it is still there: `waits for a slot: 32 of 32 busy`, `waits for its host: …`; empty: it is not,
                  or nobody has asked (explain_queue_waits)
    """

    activity: str
    attempt: int
    details: dict[str, Any]
    failure: str
    worker: str
    died: bool = False
    silent: bool = False
    heard: datetime | None = field(default=None, compare=False)
    queue: str = ""
    queued_since: datetime | None = None
    queue_wait: str = ""

    @property
    def host_away(self) -> bool:
        """Return True where it waits for its host, on which no worker is."""
        return self.queue_wait.startswith(HOST_WAIT)


@dataclass(frozen=True)
class RunDescription:
    """The server's description of a workflow's newest run.

    pending_decision  what it waits for a person to decide, as of the last time a worker had it
    outcome           its status in Perdure's words, in Temporal's where the server has no search attributes
    resume            what a retry goes on from, of a delivery that ended without delivering
    events            of its run's history, so far
    begins            when it begins, where that is still to come: after a start delay, or by a cron schedule
    title             its title, or the beginning of its request; empty where none is listed and its starter gave none
    """

    status: WorkflowExecutionStatus
    run_id: str
    started: datetime
    closed: datetime | None
    pending: tuple[PendingActivity, ...]
    resume: ResumePoint | None
    pending_decision: PendingDecision | None = None
    outcome: str = ""
    events: int = 0
    begins: datetime | None = None
    title: str = ""

    @property
    def running(self) -> bool:
        return self.status == WorkflowExecutionStatus.RUNNING


async def find_workflow(client: Client, id: str, run_id: str | None = None) -> WorkflowExecutionDescription | None:
    """Return the server's description of a workflow's run, by default its newest; None where there is none.

    Raises RPCError.
    """
    try:
        return await client.get_workflow_handle(id, run_id=run_id).describe()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return None


async def find_accepted_run(client: Client, id: str) -> WorkflowExecutionDescription | None:
    """Return the server's description of a workflow's newest run that was not refused, of its newest where all were;
    None where there is none.

    A run that has ended on another queue than ours, or as an invalid request, has begun nothing: anybody can start one
    under an ended workflow's id. Raises RPCError.
    """
    newest = await find_workflow(client, id)
    if newest is None or not await is_refused(client, newest):
        return newest
    others = [other async for other in client.list_workflows(exact_id_query(id))]
    for other in sorted(others, key=lambda execution: execution.start_time, reverse=True):
        description = await find_workflow(client, id, other.run_id)
        if description is not None and not await is_refused(client, description):
            return description
    return newest


async def ended_run_id(client: Client, id: str) -> str | None:
    """Return the id of a workflow's newest run that was not refused, where that has ended; None where it runs, and
    where there is none: then its newest run is read, and followed into the next. Raises RPCError."""
    accepted = await find_accepted_run(client, id)
    return None if accepted is None or accepted.status == WorkflowExecutionStatus.RUNNING else accepted.run_id


async def is_refused(client: Client, execution: WorkflowExecution) -> bool:
    """Return True for a run that ended as an invalid request, or was not on our queue."""
    if execution.status != WorkflowExecutionStatus.FAILED:
        return execution.task_queue != TASK_QUEUE
    handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
    try:
        await handle.result(follow_runs=False)
    except WorkflowFailureError as error:
        cause = error.cause
        return isinstance(cause, ApplicationError) and cause.type == InvalidRequest.__name__
    return False


async def describe_run(execution: WorkflowExecutionDescription) -> RunDescription:
    """Convert the SDK's description of a run to ours, with its memo and its pending activities decoded."""
    memo = await _read_memo(execution)
    return RunDescription(
        status=execution.status or WorkflowExecutionStatus.RUNNING,
        run_id=execution.run_id,
        started=execution.start_time,
        closed=execution.close_time,
        pending=tuple(
            [
                await _pending_activity_of(p, execution.data_converter)
                for p in execution.raw_description.pending_activities
            ]
        ),
        resume=read_as(ResumePoint, memo.get(RESUME)),
        pending_decision=read_as(PendingDecision, memo.get(ASKED)),
        outcome=list_entry_of(execution).status,
        events=execution.history_length,
        begins=_begin_time(execution),
        title=await read_title(execution),
    )


async def read_title(execution: WorkflowExecutionDescription) -> str:
    """Return the title of a run: as it is listed, else the beginning of its request in one line, from the summary it
    was started with; empty where it has none, or nobody here can decode it."""
    if title := execution.typed_search_attributes.get(SearchAttributeKey.for_keyword(TITLE)):
        return title
    try:
        return unescape_line(await execution.static_summary() or "")
    except (ValueError, RuntimeError):
        return ""


def _begin_time(execution: WorkflowExecutionDescription) -> datetime | None:
    """Return when a run begins that waits for that; None where it has begun or ended."""
    begins = execution.execution_time
    is_waiting = execution.close_time is None and begins is not None and begins > datetime.now(UTC)
    return begins if is_waiting else None


async def pending_decision_of(execution: WorkflowExecution) -> PendingDecision | None:
    """Return the decision that a listed run waits for, from its memo; None where it waits for none or has ended."""
    return read_as(PendingDecision, (await _read_memo(execution)).get(ASKED)) if execution.close_time is None else None


async def _read_memo(execution: WorkflowExecution | WorkflowExecutionDescription) -> Mapping[str, Any]:
    """Return the memo of a run; empty where it cannot be decoded, as one that others have encrypted."""
    try:
        return await execution.memo()
    except (ValueError, RuntimeError):
        return {}


def list_entry_of(execution: WorkflowExecution, pending_decision: PendingDecision | None = None) -> ListEntry:
    """Return a run as an entry of a list, from its search attributes and the decision that it waits for.

    The status is Temporal's when the run has set none, or was ended before it could set its last.
    """
    attributes = {pair.key.name: pair.value for pair in execution.typed_search_attributes}
    status = str(attributes.get("PerdureStatus") or "")
    # A terminated run could not set its status, and one that never got ready has set none.
    if execution.status and (not status or (status in ("running", "waiting") and execution.close_time)):
        status = status_word(execution.status)
    held, since = parse_waiting(str(attributes.get(WAITING) or ""))
    is_held = pending_decision is None and execution.close_time is None
    return ListEntry(
        delivery_id=execution.id,
        run_id=execution.run_id,
        status=status,
        started=execution.start_time,
        closed=execution.close_time,
        repository=str(attributes.get("PerdureRepository") or ""),
        phase=str(attributes.get("PerdurePhase") or ""),
        pull_request=str(attributes.get("PerdurePullRequest") or ""),
        cost_usd=attributes.get("PerdureCostUsd"),
        pending_decision=pending_decision,
        change=str(attributes.get(CHANGE) or ""),
        labels=tuple(attributes.get(LABELS) or ()),
        held=held if is_held else "",
        since=since if is_held else None,
        title=str(attributes.get(TITLE) or ""),
    )


def ending_line(result: DeliveryResult) -> str:
    """Return the end of a delivery in one line: `delivered`, or `tests red: 2 of 44 fail`."""
    if result.reason is None:
        return outcome_text(result.status)
    return shorten(reason_text(result.reason, result.message.partition("\n")[0]), _ENDED_CHARS)


async def read_ending(client: Client, id: str, run_id: str) -> str:
    """Return the reason for which a delivery's run ended without what was asked for, in one line; empty where it left
    none that can be read here. Raises RPCError."""
    handle = client.get_workflow_handle(id, run_id=run_id, result_type=DeliveryResult)
    try:
        result = await handle.result(follow_runs=False)
        return ending_line(result) if result.reason is not None else ""
    except WorkflowFailureError as error:
        return one_line(error.cause.message, _ENDED_CHARS) if isinstance(error.cause, ApplicationError) else ""
    except (ValueError, RuntimeError):
        return ""


async def has_pollers(
    client: Client, queue: str, kind: TaskQueueType.ValueType = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
) -> bool:
    """Return True where a worker has polled this queue in the last few minutes, or the server does not say."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=kind,
    )
    try:
        return bool((await client.workflow_service.describe_task_queue(request)).pollers)
    except RPCError:
        return True


def status_word(status: WorkflowExecutionStatus) -> str:
    """Return Temporal's status in our spelling: `cancelled`, `timed_out`."""
    return "cancelled" if status == WorkflowExecutionStatus.CANCELED else status.name.lower()


async def _pending_activity_of(activity: PendingActivityInfo, converter: DataConverter) -> PendingActivity:
    """Return a pending activity, with its last heartbeat decoded."""
    beats = await converter.decode_wrapper(activity.heartbeat_details) if activity.heartbeat_details.payloads else []
    failure = activity.last_failure
    started = activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    heartbeat_time = activity.HasField("last_heartbeat_time") and activity.last_heartbeat_time
    heard = (
        max(heartbeat_time or activity.last_started_time, activity.last_started_time, key=_seconds) if started else None
    )
    is_due = activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED and not activity.paused
    queued = None if activity.HasField("next_attempt_schedule_time") or not is_due else activity.scheduled_time
    return PendingActivity(
        activity=activity.activity_type.name,
        attempt=activity.attempt,
        details=beats[0] if beats and isinstance(beats[0], dict) else {},
        failure=failure.message,
        worker=activity.last_worker_identity,
        died=ended_with_worker(failure),
        silent=failure.HasField("timeout_failure_info"),
        heard=heard.ToDatetime(UTC) if heard is not None else None,
        queue=activity.activity_options.task_queue.name,
        queued_since=queued.ToDatetime(UTC) if queued is not None else None,
    )


def _seconds(moment: Timestamp) -> float:
    return moment.seconds + moment.nanos / 1e9


def ended_with_worker(failure: Failure) -> bool:
    """Return True where an attempt ended with its worker: reported by another one, or by the heartbeat's timeout."""
    return failure.application_failure_info.type == "WorkerDied" or failure.HasField("timeout_failure_info")


_LEAST_PAGE, _PAGE = 100, 1000
"""Entries that are asked for in one answer, at least and at most, which is the most that a server gives."""


async def list_newest(
    client: Client, limit: int, query: str = "", workflow: str = DELIVERY_WORKFLOW
) -> list[ListEntry]:
    """List the newest deliveries, or workflows of another type, by their start, each once; `query` is added with AND.

    `query` is a list filter. A server lists running workflows first, the newest by start before others, then ended ones
    by their end, and cannot always list by start. So it is read until no other can be among the newest `limit`: none
    began after it ended. One call where fewer than `limit` run, else two, but for pages.
    """
    clause = f"WorkflowType = '{workflow}'" + (f" AND ({query})" if query else "")
    page_size = min(max(2 * limit, _LEAST_PAGE), _PAGE)
    entries, starts = dict[str, ListEntry](), list[datetime]()
    for listed in (clause, f"{clause} AND ExecutionStatus != 'Running'"):
        closed = None
        async for execution in client.list_workflows(listed, page_size=page_size):
            closed = execution.close_time
            if len(entries) >= limit and (closed is None or len(starts) - bisect_left(starts, closed) >= limit):
                break
            if execution.id not in entries:  # of the runs of one id, the newest is listed first
                entries[execution.id] = list_entry_of(execution, await pending_decision_of(execution))
                insort(starts, execution.start_time)
        else:
            break  # all was read
        if closed is not None:
            break
    return sorted(entries.values(), key=lambda entry: entry.started, reverse=True)[:limit]


async def list_waiting(client: Client, limit: int = 1000) -> list[ListEntry]:
    """List the running deliveries that wait for somebody, the longest first, among the newest `limit` that run.

    They wait for a decision, for somebody to resume them, or for a host.
    """
    running = await list_newest(client, limit, "ExecutionStatus = 'Running'")
    return sorted(
        (entry for entry in running if entry.waiting),
        key=lambda entry: entry.pending_decision.since if entry.pending_decision else entry.started,
    )


def exact_id_query(id: str) -> str:
    """Return the list filter of exactly this workflow id."""
    return f"WorkflowId = '{escape_filter_value(id)}'"


def escape_filter_value(text: str) -> str:
    """Escape a text for use between the single quotes of a list filter."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
