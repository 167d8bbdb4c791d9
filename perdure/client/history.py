"""A delivery's Temporal history by itself: every activity with its input, result and deaths, and every wait.

No worker is asked, so it works when all of them are down, for as long as Temporal keeps the history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.view import ended_with_worker
from perdure.models.decisions import describe_hold
from perdure.models.limits import RUNS_READ


@dataclass(frozen=True)
class ActivityRecord:
    """One activity as history has it.

    input             its first argument
    attempt, turn     which loop of the step, which turn of the loop, 0 where it has none
    scheduled, ended  when; ended None while it runs
    tries             how often it was started; 0: it has not ended, and history does not say before
    began             when the last try started, None as above; the try before it had ended just then
    died              the try before the last had ended with its worker
    queue             the task queue it was scheduled on; id: Temporal's for it
    task              number of the event that completed the workflow task which scheduled it: a reset goes there
    result            its result, None unless it succeeded; failure: why it did not, empty while it runs
    """

    activity: str
    input: dict[str, Any]
    scheduled: datetime
    attempt: int = 0
    turn: int = 0
    task: int = 0
    queue: str = ""
    tries: int = 0
    began: datetime | None = None
    ended: datetime | None = None
    died: bool = False
    result: dict[str, Any] | None = None
    failure: str = ""
    id: str = ""


@dataclass(frozen=True)
class WaitPeriod:
    """A time in which nothing was to be done, and what for. `until` None: it lasts."""

    since: datetime
    until: datetime | None
    reason: str


@dataclass(frozen=True)
class DeliveryHistory:
    """The facts in the histories of a delivery's runs, the oldest first; or that of one run.

    request       as the newest run got it
    newest_start  how many of `activities` are of the runs before the newest
    complete      False: Temporal does not have the first runs any more
    type          of the workflow
    rewinds       messages of the signals `rewind`, of one run
    hold_reason   who holds it and why, by the newest run; empty: nobody does
    rewound       a run was reset to an earlier point: what it had done after that is in no history
    histories     of the runs, as Temporal has them
    """

    request: dict[str, Any] = field(default_factory=dict)
    activities: tuple[ActivityRecord, ...] = ()
    waits: tuple[WaitPeriod, ...] = ()
    newest_start: int = 0
    complete: bool = True
    type: str = ""
    rewinds: tuple[dict[str, Any], ...] = ()
    hold_reason: str = ""
    rewound: bool = False
    histories: tuple[WorkflowHistory, ...] = field(default=(), repr=False)


async def read_history(client: Client, id: str) -> DeliveryHistory:
    """Read the newest run of a delivery and the runs it goes on from, joined.

    Raises RPCError when there is no such delivery.
    """
    return _join_runs([past for _, past in await read_runs(client, id)])


async def read_runs(client: Client, id: str, newest: str | None = None) -> list[tuple[str, DeliveryHistory]]:
    """Read the runs that a delivery goes on from, oldest first, each as its id and its history.

    `newest` is the id of the newest run, by default the current one; its id is "" then. Reads at most RUNS_READ, and
    none that the server has deleted. Raises RPCError when there is no such delivery.
    """
    runs: list[tuple[str, DeliveryHistory]] = []
    run_id = newest
    while run_id != "" and len(runs) < RUNS_READ:
        try:
            past = await read_run(client, id, run_id)
        except RPCError as error:
            if not runs or error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise
            break
        runs.append((run_id or "", past))
        run_id = _previous_run_id(past)
    return runs[::-1]


def _previous_run_id(past: DeliveryHistory) -> str:
    """Return the id of the run that this one goes on from; empty where it is the first."""
    resume = past.request.get("resume")
    return str(resume.get("run_id") or "") if isinstance(resume, dict) else ""


def _join_runs(runs: Sequence[DeliveryHistory]) -> DeliveryHistory:
    """Join the histories of several runs, oldest first, to that of the delivery."""
    return DeliveryHistory(
        request=runs[-1].request,
        activities=tuple(act for single in runs for act in single.activities),
        waits=tuple(wait for single in runs for wait in single.waits),
        newest_start=sum(len(single.activities) for single in runs[:-1]),
        complete=not _previous_run_id(runs[0]),
        hold_reason=runs[-1].hold_reason,
        rewound=any(single.rewound for single in runs),
        histories=tuple(history for single in runs for history in single.histories),
    )


async def read_run(client: Client, id: str, run_id: str | None) -> DeliveryHistory:
    """Read the history of one run alone. Raises RPCError when there is no such run."""
    fold = RunFold(client.data_converter)
    history = await client.get_workflow_handle(id, run_id=run_id).fetch_history()
    for event in history.events:
        await fold.apply_event(event)
    return DeliveryHistory(
        fold.request,
        tuple(fold.activities.values()),
        tuple(fold.waits.values()),
        type=fold.type,
        rewinds=tuple(fold.rewinds),
        hold_reason=fold.hold_reason,
        rewound=any(map(is_reset, history.events)),
        histories=(history,),
    )


def is_reset(event: HistoryEvent) -> bool:
    """Return True for the event by which a reset began this run: what is before it was copied from another run."""
    failed = event.workflow_task_failed_event_attributes
    return failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


class RunFold:
    """One run, folded event by event; activities and waits are kept by the number of the event that began them.

    type     of the workflow; outcome: the status it ended with, empty before
    """

    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self.request: dict[str, Any] = {}
        self.activities: dict[int, ActivityRecord] = {}
        self.waits: dict[int, WaitPeriod] = {}
        self.rewinds: list[dict[str, Any]] = []
        self.type = self.outcome = self.hold_reason = ""

    async def apply_event(self, event: HistoryEvent) -> None:
        """Apply one event of the run's history: its start or end, an activity, a timer, a signal that holds or rewinds.

        Other events change nothing. The end of the run ends all waits.
        """
        time, kind = event.event_time.ToDatetime(UTC), event.WhichOneof("attributes") or ""
        attributes: Any = getattr(event, kind) if kind else None
        match kind.removesuffix("_event_attributes"):
            case "workflow_execution_started":
                self.type, self.request = attributes.workflow_type.name, await self.decode_first(attributes.input)
            case "activity_task_scheduled":
                self.activities[event.event_id] = await self._activity_record(attributes, time)
            case "activity_task_started":
                lost = attributes.attempt > 1 and ended_with_worker(attributes.last_failure)
                self._change_activity(attributes.scheduled_event_id, tries=attributes.attempt, began=time, died=lost)
            case "activity_task_completed":
                self._change_activity(
                    attributes.scheduled_event_id, ended=time, result=await self.decode_first(attributes.result)
                )
            case "activity_task_failed" | "activity_task_timed_out":
                reason = attributes.failure.message or "it took too long"
                self._change_activity(attributes.scheduled_event_id, ended=time, failure=reason)
            case "activity_task_canceled":
                self._change_activity(attributes.scheduled_event_id, ended=time, failure="cancelled")
            case "workflow_execution_signaled" if attributes.signal_name == "rewind":
                self.rewinds.append(await self.decode_first(attributes.input))
                self.hold_reason = ""
            case "workflow_execution_signaled" if attributes.signal_name == "hold":
                self.hold_reason = describe_hold(str((await self.decode_first(attributes.input)).get("note") or ""))
            case "workflow_execution_signaled" if attributes.signal_name == "resume":
                self.hold_reason = ""
            case "timer_started":
                self.waits[event.event_id] = WaitPeriod(time, None, await self._decode_summary(event))
            case "timer_fired" | "timer_canceled":
                if wait := self.waits.get(attributes.started_event_id):
                    self.waits[attributes.started_event_id] = replace(wait, until=time)
            case name if name in _ENDS:
                self.outcome = await self._decode_outcome(name, attributes)
                self.waits = {number: replace(wait, until=wait.until or time) for number, wait in self.waits.items()}

    async def _activity_record(self, attributes: Any, time: datetime) -> ActivityRecord:
        """Return the record of an activity as it is scheduled, with the attempt and turn that its input names."""
        activity_input = await self.decode_first(attributes.input)
        attempt, turn = (
            value if isinstance(value := activity_input.get(name), int) else 0 for name in ("attempt", "turn")
        )
        return ActivityRecord(
            attributes.activity_type.name,
            activity_input,
            time,
            attempt=attempt,
            turn=turn,
            task=attributes.workflow_task_completed_event_id,
            queue=attributes.task_queue.name,
            id=attributes.activity_id,
        )

    def _change_activity(self, number: int, **changes: Any) -> None:
        if number in self.activities:
            self.activities[number] = replace(self.activities[number], **changes)

    async def decode_first(self, payloads: Any) -> dict[str, Any]:
        """Decode the first of the payloads; an empty dict where it is no JSON object: all of ours are."""
        values = await self._converter.decode_wrapper(payloads) if payloads.payloads else []
        return values[0] if values and isinstance(values[0], dict) else {}

    async def _decode_outcome(self, name: str, attributes: Any) -> str:
        """Return the status in the result, or failure, that the run ended with; empty where it has none."""
        payloads = attributes.result if name.endswith("_completed") else None
        if name.endswith("_failed"):
            payloads = attributes.failure.application_failure_info.details
        return str((await self.decode_first(payloads)).get("status") or "") if payloads is not None else ""

    async def _decode_summary(self, event: HistoryEvent) -> str:
        """Return the summary of an event, which for a timer says what it waits for; empty where it has none."""
        if not event.user_metadata.HasField("summary"):
            return ""
        (summary,) = await self._converter.decode([event.user_metadata.summary])
        return summary if isinstance(summary, str) else ""


_ENDS = tuple(
    f"workflow_execution_{end}"
    for end in ("completed", "failed", "timed_out", "canceled", "terminated", "continued_as_new")
)
