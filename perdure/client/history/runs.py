"""Temporal histories, read without a worker: of a delivery, every activity with its input, result and deaths, and every
wait; of a backlog, every item it was ever given, and what its deliveries landed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionSignaledEventAttributes
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.server.view import ended_with_worker
from perdure.models.delivery.decisions import describe_hold
from perdure.models.errors import InvalidRequest
from perdure.models.limits import BACKLOG_RUNS_READ, RUNS_READ
from perdure.models.rules.backlog import parse_item


@dataclass(frozen=True)
class ActivityRecord:
    """An activity as history has it.

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
    """A run, folded event by event; activities and waits are kept by the number of the event that began them.

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


_ITEM_UPDATES = ("add", "edit")
_LANDING_SIGNALS = ("landing_over", "item_ended")
"""Signals of its deliveries that name a commit on the integration branch."""


@dataclass(frozen=True)
class BacklogHistory:
    """The facts in the histories of all of a backlog's runs.

    request         of the oldest run that is known; only the first run's has the items
    items           every item by id, as it was given last: with the backlog, or by an update that was accepted
    landed_commits  by item, the commits that its deliveries said are on the branch, each once
    start_counts    by a delivery's workflow id, how many times it was started
    complete        False: Temporal does not have the first runs any more
    items_digest    digest of the items as they were sent, where the oldest known run has them in its state
    """

    request: dict[str, Any]
    items: dict[str, dict[str, Any]]
    landed_commits: dict[str, tuple[str, ...]]
    start_counts: dict[str, int]
    complete: bool = True
    items_digest: str = ""


async def read_backlog_history(client: Client, id: str) -> BacklogHistory:
    """Read the history of a backlog's newest run and of the runs before it, and fold them into one.

    Reads at most BACKLOG_RUNS_READ runs, and none that the server has deleted. Raises RPCError when there is no such
    backlog.
    """
    runs: list[list[HistoryEvent]] = []
    run_id: str | None = None
    complete = False
    while len(runs) < BACKLOG_RUNS_READ:
        try:
            runs.append([event async for event in client.get_workflow_handle(id, run_id=run_id).fetch_history_events()])
        except RPCError as error:
            if not runs or error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise
            break
        run_id = runs[-1][0].workflow_execution_started_event_attributes.continued_execution_run_id
        if not run_id:
            complete = True
            break
    fold = _BacklogFold(client.data_converter)
    for events in reversed(runs):
        for event in events:
            await fold.apply_event(event)
    landed = {item: tuple(dict.fromkeys(commits)) for item, commits in fold.landed_commits.items()}
    return BacklogHistory(fold.request, fold.items, landed, fold.start_counts, complete, fold.items_digest)


class _BacklogFold:
    """The state of a backlog, folded event by event from the histories of its runs, the oldest run first."""

    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self._items_before: dict[str, tuple[str, dict[str, Any] | None]] = {}
        self.request: dict[str, Any] = {}
        self.items: dict[str, dict[str, Any]] = {}
        self.landed_commits: dict[str, list[str]] = {}
        self.start_counts: dict[str, int] = {}
        self.items_digest = ""

    async def apply_event(self, event: HistoryEvent) -> None:
        """Apply one event: the first run's start, an item update or its failure, a landed commit, a child's start."""
        kind = event.WhichOneof("attributes") or ""
        attributes: Any = getattr(event, kind) if kind else None
        match kind.removesuffix("_event_attributes"):
            case "workflow_execution_started" if not self.request:
                self._load_start(await self._converter.decode_wrapper(attributes.input))
            case "workflow_execution_update_accepted" if attributes.accepted_request.input.name in _ITEM_UPDATES:
                await self._apply_item_update(attributes.protocol_instance_id, attributes.accepted_request.input.args)
            case "workflow_execution_update_completed" if attributes.outcome.HasField("failure"):
                self._undo_item_update(attributes.meta.update_id)
            case "workflow_execution_signaled" if attributes.signal_name in _LANDING_SIGNALS:
                message = await self._decode_first(attributes.input)
                if isinstance(item := message.get("item"), str) and (commit := message.get("commit")):
                    self.landed_commits.setdefault(item, []).append(str(commit))
            case "start_child_workflow_execution_initiated":
                self.start_counts[attributes.workflow_id] = self.start_counts.get(attributes.workflow_id, 0) + 1

    def _load_start(self, arguments: list[Any]) -> None:
        """Load the items from a run's start arguments: the request and, where the run goes on from another, the state.

        That state also has the commits and the number of starts so far. It is what is known of a backlog that was
        started again or whose first runs are gone. Items that cannot be parsed are left out.
        """
        objects = [argument if isinstance(argument, dict) else {} for argument in arguments]
        self.request = objects[0] if objects else {}
        states = _item_states(objects[1:2])
        self.items_digest = str(objects[1].get("items_digest") or "") if len(objects) > 1 else ""
        items = self.request.get("items") or [argument.get("item") for argument in states]
        for argument in states:
            if (delivery := argument.get("delivery")) and isinstance(runs := argument.get("runs"), int):
                self.start_counts[str(delivery)] = runs
            if (commit := argument.get("commit")) and isinstance(item := argument.get("item"), dict):
                self.landed_commits[str(item.get("id"))] = [str(commit)]
        for argument in items if isinstance(items, list) else []:
            try:
                item = parse_item(argument)
            except InvalidRequest:
                continue
            self.items[item.id] = item.model_dump(mode="json", exclude_defaults=True)

    async def _apply_item_update(self, update: str, args: Any) -> None:
        """Record the item of an accepted update, and the one it replaces; ignore an item that cannot be parsed."""
        try:
            item = parse_item((await self._decode_first(args)).get("item"))
        except InvalidRequest:
            return
        self._items_before[update] = (item.id, self.items.get(item.id))
        self.items[item.id] = item.model_dump(mode="json", exclude_defaults=True)

    def _undo_item_update(self, update: str) -> None:
        """Restore the item from before an update that was accepted and then failed, which changed nothing."""
        if update not in self._items_before:
            return
        id, before = self._items_before.pop(update)
        if before is None:
            self.items.pop(id, None)
        else:
            self.items[id] = before

    async def _decode_first(self, payloads: Any) -> dict[str, Any]:
        """Decode the first of the payloads; an empty dict where it is no JSON object."""
        values = await self._converter.decode_wrapper(payloads) if payloads.payloads else []
        return values[0] if values and isinstance(values[0], dict) else {}


def _item_states(arguments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the item states in a start argument that is a backlog's state; empty where it has none."""
    items = arguments[0].get("items") if arguments else None
    return [state for state in items.values() if isinstance(state, dict)] if isinstance(items, dict) else []


async def read_request(client: Client, id: str) -> dict[str, Any]:
    """Read a workflow's request as it was sent, from its first event; {} where that is no JSON object."""
    async for event in client.get_workflow_handle(id).fetch_history_events(page_size=1):
        arguments = event.workflow_execution_started_event_attributes.input
        values = await client.data_converter.decode_wrapper(arguments)
        return values[0] if values and isinstance(values[0], dict) else {}
    return {}


async def unread_messages(handle: WorkflowHandle[Any, Any], converter: DataConverter) -> list[str]:
    """Return the names of signals and cancellations that no worker has read yet, in the order they were sent.

    Such as `approve`, `say`, `hold`, `cancel`. Reads the whole history. Raises RPCError.
    """
    names: list[str] = []
    async for event in handle.fetch_history_events():
        if event.HasField("workflow_task_completed_event_attributes"):
            names.clear()
        if event.HasField("workflow_execution_signaled_event_attributes"):
            names.append(await _message_name(event.workflow_execution_signaled_event_attributes, converter))
        if event.HasField("workflow_execution_cancel_requested_event_attributes"):
            names.append("cancel")
    return names


async def _message_name(signal: WorkflowExecutionSignaledEventAttributes, converter: DataConverter) -> str:
    """Return the signal's name; for signal `decide` that of the update which it carries."""
    if signal.signal_name != "decide":
        return signal.signal_name
    values = await converter.decode_wrapper(signal.input)
    update = values[0].get("update") if values and isinstance(values[0], dict) else None
    return str(update or signal.signal_name).replace("_", "-")
