"""Events of a Temporal history as typed records, decoded by `decode_event`.

No other module of ours knows the attributes of such events or decodes their payloads, except where the application
itself looks at the first event of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter

from perdure.client.server.view import ended_with_worker


@dataclass(frozen=True)
class HistoryRecord:
    """An event of a run's history: its number in it, and when it happened."""

    number: int
    time: datetime


@dataclass(frozen=True)
class RunStarted(HistoryRecord):
    """The start of a run.

    continued_from  id of the run that continued as new in this one; empty: none did
    begins          when its first task comes, after a start delay or by a cron schedule; None: at once
    """

    workflow: str
    arguments: tuple[Any, ...]
    continued_from: str
    begins: datetime | None = None


@dataclass(frozen=True)
class ActivityScheduled(HistoryRecord):
    """An activity to be carried out. id, queue and task are as in ActivityRecord."""

    activity: str
    input: dict[str, Any]
    id: str
    queue: str
    task: int


@dataclass(frozen=True)
class ActivityStarted(HistoryRecord):
    """The last try of the activity that event `scheduled` asked for. `died`: the try before ended with its worker;
    `silent`: its worker was no longer heard of, which a host that sleeps or is cut off makes, too. `worker`: the
    identity of the one that took this try."""

    scheduled: int
    tries: int
    died: bool
    silent: bool
    worker: str


@dataclass(frozen=True)
class ActivityEnded(HistoryRecord):
    """The end of the activity that event `scheduled` asked for: its result, or else why it has none."""

    scheduled: int
    result: dict[str, Any] | None = None
    failure: str = ""


@dataclass(frozen=True)
class TimerStarted(HistoryRecord):
    """The start of a wait. `reason`: what it waits for; empty where the workflow does not say."""

    reason: str


@dataclass(frozen=True)
class TimerEnded(HistoryRecord):
    """The end of the wait that event `started` began."""

    started: int


@dataclass(frozen=True)
class SignalReceived(HistoryRecord):
    """A signal. `sender`, `sender_run`: ids of the workflow and of its run that sent it, which the server notes; empty:
    a client did."""

    name: str
    message: dict[str, Any]
    sender: str = ""
    sender_run: str = ""


@dataclass(frozen=True)
class SendersAccepted(HistoryRecord):
    """A backlog has found these runs to be of its deliveries, as activity `signal_origin` says of who sent signals."""

    runs: tuple[str, ...]


@dataclass(frozen=True)
class CancelRequested(HistoryRecord):
    """A request to cancel the workflow."""


@dataclass(frozen=True)
class UpdateAccepted(HistoryRecord):
    id: str
    name: str
    message: dict[str, Any]


@dataclass(frozen=True)
class UpdateCompleted(HistoryRecord):
    """The end of an accepted update. `failed`: it changed nothing."""

    id: str
    failed: bool


@dataclass(frozen=True)
class ChildInitiated(HistoryRecord):
    """A child workflow of this id is to be started."""

    id: str


@dataclass(frozen=True)
class ChildStarted(HistoryRecord):
    """A child workflow of this id has started, with this run."""

    id: str
    run_id: str = ""


@dataclass(frozen=True)
class FieldsChanged(HistoryRecord):
    """New values of search attributes or, where `memo`, of the memo; those that cannot be decoded are left out."""

    fields: dict[str, Any]
    memo: bool


@dataclass(frozen=True)
class TaskCompleted(HistoryRecord):
    """A worker has read everything that had come in before."""


@dataclass(frozen=True)
class TaskFailed(HistoryRecord):
    """A failed workflow task. `reset`: no failure, but the reset that began this run; events before it are copies."""

    message: str
    reset: bool


@dataclass(frozen=True)
class RunEnded(HistoryRecord):
    """The end of a run.

    how      completed, failed, timed_out, canceled, terminated or continued_as_new
    outcome  the status in its result or failure; empty where there is none
    reason   the failure's message, or why it was terminated
    """

    how: str
    outcome: str = ""
    reason: str = ""


_LOCAL_ACTIVITY = "core_local_activity"
"""The marker with which Temporal's SDK records the result of a local activity."""

_ENDS = ("completed", "failed", "timed_out", "canceled", "terminated", "continued_as_new")


async def decode_event(event: HistoryEvent, converter: DataConverter) -> HistoryRecord | None:
    """Return the record of an event, with its payloads decoded; None for events that nobody here asks about."""
    kind = event.WhichOneof("attributes") or ""
    attributes: Any = getattr(event, kind) if kind else None
    place = event.event_id, event.event_time.ToDatetime(UTC)
    match kind.removesuffix("_event_attributes"):
        case "workflow_execution_started":
            arguments = await converter.decode_wrapper(attributes.input) if attributes.input.payloads else []
            return RunStarted(
                *place,
                attributes.workflow_type.name,
                tuple(arguments),
                attributes.continued_execution_run_id,
                place[1] + delay if (delay := attributes.first_workflow_task_backoff.ToTimedelta()) else None,
            )
        case "activity_task_scheduled":
            return ActivityScheduled(
                *place,
                activity=attributes.activity_type.name,
                input=await _decode_object(attributes.input, converter),
                id=attributes.activity_id,
                queue=attributes.task_queue.name,
                task=attributes.workflow_task_completed_event_id,
            )
        case "activity_task_started":
            died = attributes.attempt > 1 and ended_with_worker(attributes.last_failure)
            silent = died and attributes.last_failure.HasField("timeout_failure_info")
            scheduled, tries = attributes.scheduled_event_id, attributes.attempt
            return ActivityStarted(*place, scheduled, tries, died, silent, attributes.identity)
        case "activity_task_completed":
            result = await _decode_object(attributes.result, converter)
            return ActivityEnded(*place, attributes.scheduled_event_id, result)
        case "activity_task_failed" | "activity_task_timed_out":
            reason = attributes.failure.message or "it took too long"
            return ActivityEnded(*place, attributes.scheduled_event_id, failure=reason)
        case "activity_task_canceled":
            return ActivityEnded(*place, attributes.scheduled_event_id, failure="cancelled")
        case "timer_started":
            return TimerStarted(*place, await _decode_summary(event, converter))
        case "timer_fired" | "timer_canceled":
            return TimerEnded(*place, attributes.started_event_id)
        case "workflow_execution_signaled":
            message = await _decode_object(attributes.input, converter)
            sender = attributes.external_workflow_execution
            return SignalReceived(*place, attributes.signal_name, message, sender.workflow_id, sender.run_id)
        case "workflow_execution_cancel_requested":
            return CancelRequested(*place)
        case "workflow_execution_update_accepted":
            update = attributes.accepted_request.input
            message = await _decode_object(update.args, converter)
            return UpdateAccepted(*place, attributes.protocol_instance_id, update.name, message)
        case "workflow_execution_update_completed":
            return UpdateCompleted(*place, attributes.meta.update_id, attributes.outcome.HasField("failure"))
        case "start_child_workflow_execution_initiated":
            return ChildInitiated(*place, attributes.workflow_id)
        case "child_workflow_execution_started":
            child = attributes.workflow_execution
            return ChildStarted(*place, child.workflow_id, child.run_id)
        case "marker_recorded" if attributes.marker_name == _LOCAL_ACTIVITY:
            return await _senders_accepted(place, attributes.details, converter)
        case "upsert_workflow_search_attributes":
            fields = await _decode_fields(attributes.search_attributes.indexed_fields, converter)
            return FieldsChanged(*place, fields, memo=False)
        case "workflow_properties_modified":
            return FieldsChanged(*place, await _decode_fields(attributes.upserted_memo.fields, converter), memo=True)
        case "workflow_task_completed":
            return TaskCompleted(*place)
        case "workflow_task_failed":
            return TaskFailed(*place, attributes.failure.message, is_reset(event))
        case name if name.removeprefix("workflow_execution_") in _ENDS:
            return await _run_ended(place, name.removeprefix("workflow_execution_"), attributes, converter)
        case _:
            return None


async def _senders_accepted(
    place: tuple[int, datetime], details: Mapping[str, Any], converter: DataConverter
) -> SendersAccepted | None:
    """Return the record of a local activity that has accepted the senders of signals; None for another one."""
    result = await _decode_object(details["result"], converter) if "result" in details else {}
    runs = result.get("runs")
    return SendersAccepted(*place, tuple(id for id in runs if id)) if isinstance(runs, list) else None


def is_reset(event: HistoryEvent) -> bool:
    """Return True for the event by which a reset began this run: what is before it was copied from another run."""
    failed = event.workflow_task_failed_event_attributes
    return failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


async def _run_ended(place: tuple[int, datetime], how: str, attributes: Any, converter: DataConverter) -> RunEnded:
    """Return the record of a run's end, with the status in its result or in the details of its failure."""
    if how == "completed":
        return RunEnded(*place, how, str((await _decode_object(attributes.result, converter)).get("status") or ""))
    if how == "failed":
        details = await _decode_object(attributes.failure.application_failure_info.details, converter)
        return RunEnded(*place, how, str(details.get("status") or ""), attributes.failure.message)
    return RunEnded(*place, how, reason=getattr(attributes, "reason", ""))


async def _decode_object(payloads: Any, converter: DataConverter) -> dict[str, Any]:
    """Decode the first of the payloads; an empty dict where it is no JSON object: all of ours are."""
    values = await converter.decode_wrapper(payloads) if payloads.payloads else []
    return values[0] if values and isinstance(values[0], dict) else {}


async def _decode_fields(payloads: Mapping[str, Any], converter: DataConverter) -> dict[str, Any]:
    """Decode a map of payloads; those that others have encoded, or that are no JSON, are left out."""
    values = {}
    for name, payload in payloads.items():
        try:
            (values[name],) = await converter.decode([payload])
        except (ValueError, RuntimeError):  # encoded by others, or no JSON: not ours to tell
            continue
    return values


async def _decode_summary(event: HistoryEvent, converter: DataConverter) -> str:
    """Return the summary of an event, which for a timer says what it waits for; empty where it has none."""
    if not event.user_metadata.HasField("summary"):
        return ""
    (summary,) = await converter.decode([event.user_metadata.summary])
    return summary if isinstance(summary, str) else ""
