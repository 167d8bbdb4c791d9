"""A delivery's histories as they are: to be replayed, and to see whose death was reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perdure.models.limits import RUNS_READ

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHistory


@dataclass(frozen=True)
class Histories:
    """Of the newest run and those it goes on from, newest first.

    deaths    attempts that were reported as died: `<activity id>/<attempt>`
    rewound   a run was reset to an earlier point: what it had done after that is in no history
    complete  False: Temporal does not have the first runs any more
    """

    runs: tuple[WorkflowHistory, ...]
    deaths: tuple[str, ...]
    rewound: bool
    complete: bool

    @property
    def events(self) -> int:
        return sum(len(run.events) for run in self.runs)


async def read_histories(client: Client, id: str) -> Histories:
    """RPCError when there is no such delivery."""
    from temporalio.service import RPCError, RPCStatusCode

    runs: list[WorkflowHistory] = []
    before: str | None = None
    while len(runs) < RUNS_READ:
        try:
            runs.append(await client.get_workflow_handle(id, run_id=before).fetch_history())
        except RPCError as error:
            if not runs or error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise
            break
        before = await _goes_on_from(client, runs[-1])
        if not before:
            break
    deaths = tuple(death for run in runs for death in _deaths(run))
    return Histories(tuple(runs), deaths, rewound=any(_rewound(run) for run in runs), complete=not before)


async def _goes_on_from(client: Client, run: WorkflowHistory) -> str:
    """The run before, which a retry and a continuation name in their request; empty when it is the first one."""
    started = run.events[0].workflow_execution_started_event_attributes
    values: list[Any] = await client.data_converter.decode_wrapper(started.input)
    resume = values[0].get("resume") if values and isinstance(values[0], dict) else None
    return str(resume.get("run_id") or "") if isinstance(resume, dict) else ""


def _rewound(run: WorkflowHistory) -> bool:
    from temporalio.api.enums.v1 import WorkflowTaskFailedCause

    reset = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
    return any(event.workflow_task_failed_event_attributes.cause == reset for event in run.events)


def _deaths(run: WorkflowHistory) -> list[str]:
    """History tells of the attempt before the last one only, which is enough: the others are in the journal."""
    from perdure.client.view import died

    ids: dict[int, str] = {}
    found = []
    for event in run.events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            ids[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif event.HasField("activity_task_started_event_attributes"):
            told = event.activity_task_started_event_attributes
            if told.attempt > 1 and died(told.last_failure):
                found.append(f"{ids.get(told.scheduled_event_id, '')}/{told.attempt - 1}")
    return found
