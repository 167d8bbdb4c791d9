"""A delivery's Temporal history by itself: every activity, what it gave, its deaths and waits.

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

from perdure.client.view import died
from perdure.models.decisions import holding
from perdure.models.limits import RUNS_READ


@dataclass(frozen=True)
class Act:
    """One activity as history has it.

    given    its input; attempt and turn: which loop of the step, which turn of the loop, 0 where it has none
    tries    how often it was started; 0: it has not ended, and history does not say before
    began    when the last try started, None as above; the try before it had ended just then
    died     that try had ended with its worker
    queue    where it was to be carried out; id: Temporal's for it
    task     the event with which the workflow task ended that asked for it: a reset goes there
    result   what it gave, None unless it succeeded; failure: why it did not, empty while it runs
    """

    activity: str
    given: dict[str, Any]
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
class Wait:
    """A time in which nothing was to be done, and what for. `until` None: it lasts."""

    since: datetime
    until: datetime | None
    reason: str


@dataclass(frozen=True)
class Past:
    """Everything, oldest first, over all runs.

    request   as the newest run got it
    newest    how many of `acts` are of the runs before it
    complete  False: Temporal does not have the first runs any more
    type      of the workflow
    rewinds   what the signals of that name said, in one run
    held      who holds it and why, by the newest run; empty: nobody does
    rewound   a run was reset to an earlier point: what it had done after that is in no history
    histories of the runs, as they are
    """

    request: dict[str, Any] = field(default_factory=dict)
    acts: tuple[Act, ...] = ()
    waits: tuple[Wait, ...] = ()
    newest: int = 0
    complete: bool = True
    type: str = ""
    rewinds: tuple[dict[str, Any], ...] = ()
    held: str = ""
    rewound: bool = False
    histories: tuple[WorkflowHistory, ...] = field(default=(), repr=False)


async def read_past(client: Client, id: str) -> Past:
    """The newest run of a delivery, and the ones it goes on from. RPCError when there is no such delivery."""
    return _joined([past for _, past in await runs_of(client, id)])


async def runs_of(client: Client, id: str, newest: str | None = None) -> list[tuple[str, Past]]:
    """The runs that a delivery goes on from, oldest first, by their ids; the newest one's is as it was given."""
    runs: list[tuple[str, Past]] = []
    run = newest
    while run != "" and len(runs) < RUNS_READ:
        try:
            past = await read_run(client, id, run)
        except RPCError as error:
            if not runs or error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise
            break
        runs.append((run or "", past))
        run = _goes_on_from(past)
    return runs[::-1]


def _goes_on_from(past: Past) -> str:
    resume = past.request.get("resume")
    return str(resume.get("run_id") or "") if isinstance(resume, dict) else ""


def _joined(runs: Sequence[Past]) -> Past:
    return Past(
        request=runs[-1].request,
        acts=tuple(act for run in runs for act in run.acts),
        waits=tuple(wait for run in runs for wait in run.waits),
        newest=sum(len(run.acts) for run in runs[:-1]),
        complete=not _goes_on_from(runs[0]),
        held=runs[-1].held,
        rewound=any(run.rewound for run in runs),
        histories=tuple(history for run in runs for history in run.histories),
    )


async def read_run(client: Client, id: str, run_id: str | None) -> Past:
    """One run alone. RPCError when there is no such run."""
    reading = Reading(client.data_converter)
    history = await client.get_workflow_handle(id, run_id=run_id).fetch_history()
    for event in history.events:
        await reading.take(event)
    return Past(
        reading.request,
        tuple(reading.acts.values()),
        tuple(reading.waits.values()),
        type=reading.type,
        rewinds=tuple(reading.rewinds),
        held=reading.held,
        rewound=any(map(is_reset, history.events)),
        histories=(history,),
    )


def is_reset(event: HistoryEvent) -> bool:
    """True for the event by which a reset began this run: what is before it was copied from another one."""
    failed = event.workflow_task_failed_event_attributes
    return failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW


class Reading:
    """Folds the events of one run; activities and waits by the number of the event that began them.

    type     of the workflow; outcome: the status it ended with, empty before
    """

    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self.request: dict[str, Any] = {}
        self.acts: dict[int, Act] = {}
        self.waits: dict[int, Wait] = {}
        self.rewinds: list[dict[str, Any]] = []
        self.type = self.outcome = self.held = ""

    async def take(self, event: HistoryEvent) -> None:
        at, kind = event.event_time.ToDatetime(UTC), event.WhichOneof("attributes") or ""
        told: Any = getattr(event, kind) if kind else None
        match kind.removesuffix("_event_attributes"):
            case "workflow_execution_started":
                self.type, self.request = told.workflow_type.name, await self.first(told.input)
            case "activity_task_scheduled":
                self.acts[event.event_id] = await self._scheduled(told, at)
            case "activity_task_started":
                lost = told.attempt > 1 and died(told.last_failure)
                self._change(told.scheduled_event_id, tries=told.attempt, began=at, died=lost)
            case "activity_task_completed":
                self._change(told.scheduled_event_id, ended=at, result=await self.first(told.result))
            case "activity_task_failed" | "activity_task_timed_out":
                words = told.failure.message or "it took too long"
                self._change(told.scheduled_event_id, ended=at, failure=words)
            case "activity_task_canceled":
                self._change(told.scheduled_event_id, ended=at, failure="cancelled")
            case "workflow_execution_signaled" if told.signal_name == "rewind":
                self.rewinds.append(await self.first(told.input))
                self.held = ""
            case "workflow_execution_signaled" if told.signal_name == "hold":
                self.held = holding(str((await self.first(told.input)).get("note") or ""))
            case "workflow_execution_signaled" if told.signal_name == "resume":
                self.held = ""
            case "timer_started":
                self.waits[event.event_id] = Wait(at, None, await self._words(event))
            case "timer_fired" | "timer_canceled":
                if wait := self.waits.get(told.started_event_id):
                    self.waits[told.started_event_id] = replace(wait, until=at)
            case name if name in _ENDS:
                self.outcome = await self._outcome(name, told)
                self.waits = {number: replace(wait, until=wait.until or at) for number, wait in self.waits.items()}

    async def _scheduled(self, told: Any, at: datetime) -> Act:
        given = await self.first(told.input)
        attempt, turn = (value if isinstance(value := given.get(name), int) else 0 for name in ("attempt", "turn"))
        return Act(
            told.activity_type.name,
            given,
            at,
            attempt=attempt,
            turn=turn,
            task=told.workflow_task_completed_event_id,
            queue=told.task_queue.name,
            id=told.activity_id,
        )

    def _change(self, number: int, **changes: Any) -> None:
        if number in self.acts:
            self.acts[number] = replace(self.acts[number], **changes)

    async def first(self, payloads: Any) -> dict[str, Any]:
        """The first value, when it is an object: all of ours are."""
        values = await self._converter.decode_wrapper(payloads) if payloads.payloads else []
        return values[0] if values and isinstance(values[0], dict) else {}

    async def _outcome(self, name: str, told: Any) -> str:
        """The status in the result that the run ended with; empty where it has none."""
        given = told.result if name.endswith("_completed") else None
        if name.endswith("_failed"):
            given = told.failure.application_failure_info.details
        return str((await self.first(given)).get("status") or "") if given is not None else ""

    async def _words(self, event: HistoryEvent) -> str:
        if not event.user_metadata.HasField("summary"):
            return ""
        (words,) = await self._converter.decode([event.user_metadata.summary])
        return words if isinstance(words, str) else ""


_ENDS = tuple(
    f"workflow_execution_{end}"
    for end in ("completed", "failed", "timed_out", "canceled", "terminated", "continued_as_new")
)
