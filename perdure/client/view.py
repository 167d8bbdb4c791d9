"""The Temporal server's own view of deliveries: for this no worker is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.failure.v1 import Failure
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.decisions import Asked
from perdure.models.request import ResumePoint
from perdure.models.result import DeliveryResult
from perdure.models.visibility import CHANGE, LABELS, WAITING
from perdure.models.webui.columns import read_waiting

RESUME = "resume"
"""Memo of a run that ended without delivering: a ResumePoint."""

_ENDED_CHARS = 200
"""Of how it ended, in a refusal's first line."""

ASKED = "asked"
"""Memo of a run while it waits for a person: an Asked."""


@dataclass(frozen=True)
class Listed:
    """One line of `perdure list`, from visibility alone. Search attributes are empty where the server has none.

    asked   what it waits for a person to decide, None when nothing
    change, labels   the size of its change with its tests, and its labels
    held, since      for what it waits where nobody is asked anything. All four are empty where the server keeps no such
                     thing
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
    asked: Asked | None = None
    change: str = ""
    labels: tuple[str, ...] = ()
    held: str = ""
    since: datetime | None = None

    @property
    def waiting(self) -> bool:
        """For a person's decision; or somebody holds it, or it waits for a host."""
        return self.closed is None and (self.asked is not None or self.status == "waiting")

    @property
    def waits_for(self) -> str:
        """`plan`, `pull request`, `question`…; empty where nobody is asked anything."""
        return self.asked.gate.replace("_", " ") if self.asked is not None else ""

    @property
    def options(self) -> tuple[str, ...]:
        """The updates that decide what it waits with."""
        return self.asked.options if self.asked is not None else ()


@dataclass(frozen=True)
class Pending:
    """An activity in flight, as the server sees it: works when no worker does.

    details   last heartbeat: small JSON such as {"turn": 3, "doing": "pytest -q"}
    failure   why the last attempt failed, empty when none did
    died      the last attempt ended with its worker: reported by another one, or by the heartbeat's timeout
    heard     when its worker last said something, or took it; None while nobody has it
    """

    activity: str
    attempt: int
    details: dict[str, Any]
    failure: str
    worker: str
    died: bool = False
    heard: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Described:
    """`asked`: what it waits for a person to decide, as of the last time a worker had it. `outcome`: its status in
    Perdure's words, in Temporal's where the server has no search attributes. `events`: of its run's history, so far."""

    status: WorkflowExecutionStatus
    run_id: str
    started: datetime
    closed: datetime | None
    pending: tuple[Pending, ...]
    resume: ResumePoint | None
    asked: Asked | None = None
    outcome: str = ""
    events: int = 0

    @property
    def running(self) -> bool:
        return self.status == WorkflowExecutionStatus.RUNNING


async def look_up(client: Client, id: str, run_id: str | None = None) -> WorkflowExecutionDescription | None:
    """None where the server has no such workflow. Raises RPCError."""
    try:
        return await client.get_workflow_handle(id, run_id=run_id).describe()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return None


async def describe(seen: WorkflowExecutionDescription) -> Described:
    memo = await seen.memo()
    resume, asked = memo.get(RESUME), memo.get(ASKED)
    return Described(
        status=seen.status or WorkflowExecutionStatus.RUNNING,
        run_id=seen.run_id,
        started=seen.start_time,
        closed=seen.close_time,
        pending=tuple([await _pending(p, seen.data_converter) for p in seen.raw_description.pending_activities]),
        resume=ResumePoint.model_validate(resume) if resume else None,
        asked=Asked.model_validate(asked) if asked else None,
        outcome=listed(seen).status,
        events=seen.history_length,
    )


async def asked_of(seen: WorkflowExecution) -> Asked | None:
    """Return what a listed run waits for; one that has ended waits for nothing any more."""
    asked = (await seen.memo()).get(ASKED) if seen.close_time is None else None
    return Asked.model_validate(asked) if asked else None


def listed(seen: WorkflowExecution, asked: Asked | None = None) -> Listed:
    attributes = {pair.key.name: pair.value for pair in seen.typed_search_attributes}
    status = str(attributes.get("PerdureStatus") or "")
    # A terminated run could not say that it ended, and one that never got ready has said nothing.
    if seen.status and (not status or (status in ("running", "waiting") and seen.close_time)):
        status = word(seen.status)
    held, since = read_waiting(str(attributes.get(WAITING) or ""))
    here = asked is None and seen.close_time is None
    return Listed(
        delivery_id=seen.id,
        run_id=seen.run_id,
        status=status,
        started=seen.start_time,
        closed=seen.close_time,
        repository=str(attributes.get("PerdureRepository") or ""),
        phase=str(attributes.get("PerdurePhase") or ""),
        pull_request=str(attributes.get("PerdurePullRequest") or ""),
        cost_usd=attributes.get("PerdureCostUsd"),
        asked=asked,
        change=str(attributes.get(CHANGE) or ""),
        labels=tuple(attributes.get(LABELS) or ()),
        held=held if here else "",
        since=since if here else None,
    )


def ended_words(result: DeliveryResult) -> str:
    """The end of a delivery in one line: `delivered`, or `tests red: 2 of 44 fail`."""
    reason, message = str(result.reason or "").replace("_", " "), result.message.partition("\n")[0]
    said = message.startswith(reason) or message.replace("tests are red", "tests red").startswith(reason)
    told = message if reason and said else f"{reason}: {message}" if reason and message else reason
    return (told or result.status.replace("_", " "))[:_ENDED_CHARS]


async def polled(
    client: Client, queue: str, kind: TaskQueueType.ValueType = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
) -> bool:
    """True where a worker has asked for work of this queue in the last few minutes, and where nobody may look."""
    asked = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=kind,
    )
    try:
        return bool((await client.workflow_service.describe_task_queue(asked)).pollers)
    except RPCError:
        return True


def word(status: WorkflowExecutionStatus) -> str:
    """Temporal's status in our spelling: `cancelled`, `timed_out`."""
    return "cancelled" if status == WorkflowExecutionStatus.CANCELED else status.name.lower()


async def _pending(activity: PendingActivityInfo, converter: DataConverter) -> Pending:
    beats = await converter.decode_wrapper(activity.heartbeat_details) if activity.heartbeat_details.payloads else []
    failure = activity.last_failure
    started = activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    told = activity.HasField("last_heartbeat_time") and activity.last_heartbeat_time
    heard = max(told or activity.last_started_time, activity.last_started_time, key=_seconds) if started else None
    return Pending(
        activity=activity.activity_type.name,
        attempt=activity.attempt,
        details=beats[0] if beats and isinstance(beats[0], dict) else {},
        failure=failure.message,
        worker=activity.last_worker_identity,
        died=died(failure),
        heard=heard.ToDatetime(UTC) if heard is not None else None,
    )


def _seconds(moment: Timestamp) -> float:
    return moment.seconds + moment.nanos / 1e9


def died(failure: Failure) -> bool:
    """True where an attempt ended with its worker: reported by another one, or by the heartbeat's timeout."""
    return failure.application_failure_info.type == "WorkerDied" or failure.HasField("timeout_failure_info")
