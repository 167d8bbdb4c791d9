"""The event stream of a delivery or a backlog, folded from its Temporal history without any worker; nothing is written.
Used by the other modules of `perdure.client` alone: the handles, and the feed of many streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.history.fold import ActivityRecord, RunHistory
from perdure.client.history.records import (
    ActivityEnded,
    ActivityStarted,
    ChildStarted,
    FieldsChanged,
    HistoryRecord,
    RunEnded,
    RunStarted,
    SendersAccepted,
    SignalReceived,
    TimerStarted,
    UpdateCompleted,
    decode_event,
    is_reset,
)
from perdure.client.server.view import exact_id_query, find_workflow, is_refused
from perdure.models.base import read_as
from perdure.models.delivery.decisions import PendingDecision
from perdure.models.delivery.steps import AGENTIC, FIXES, STEPS
from perdure.models.errors import BadInput
from perdure.models.events import Event, EventType
from perdure.models.ids import BACKLOG_WORKFLOW
from perdure.models.phases import Step
from perdure.text import shorten

REQUEST_SHOWN = 200
"""Characters of a request's first line in the event that begins its delivery."""


@dataclass(frozen=True)
class EventDraft:
    """An event without its place in the stream. step, attempt, turn and item are 0 or "" where it has none."""

    type: EventType
    data: dict[str, Any] = field(default_factory=dict)
    step: str = ""
    attempt: int = 0
    turn: int = 0
    item: str = ""


def start_event(run_history: RunHistory, begins: datetime | None, *, first: bool) -> EventDraft:
    """Return the event of a run's start: `started` for a new delivery or backlog, `continued` for a run that goes on.

    `started` has repository, the request's first line, and when it begins where that is not at once; `continued` says
    by what: `length` (continued as new), `rewind` or `retry`. `first` is True for the first known run.
    """
    if run_history.continued_from:
        return EventDraft(EventType.CONTINUED, {"by": "length"})
    if run_history.resume.get("rewound"):
        return EventDraft(EventType.CONTINUED, {"by": "rewind"})
    if not first or run_history.previous_run_id:  # a fork begins with what another delivery has made
        return EventDraft(EventType.CONTINUED, {"by": "retry"})
    first_line = shorten(_first_line(str(run_history.request.get("request") or "")), REQUEST_SHOWN)
    repository = str(run_history.request.get("repository") or "")
    data = {"repository": repository, "request": first_line, "begins": _time_text(begins) if begins else None}
    return EventDraft(EventType.STARTED, data)


def activity_events(act: ActivityRecord, before: ActivityRecord | None) -> Iterator[EventDraft]:
    """Yield the events that a change of an activity means; `before` is its record until then, None when it is new.

    A new one yields `step_started` when it begins a step. Later come `worker_death`, the events of its result, or
    `step_failed` with the first line of its failure.
    """
    if before is None:
        yield from _step_start_events(act)
        return
    if act.died and not before.died:
        data = {"activity": act.activity, "tries": act.tries, "silent": act.silent, "worker": act.worker}
        yield _activity_draft(act, EventType.WORKER_DEATH, **data)
    if act.result is not None:
        yield from _result_events(act, act.result)
    elif act.failure:
        yield _activity_draft(act, EventType.STEP_FAILED, why=_first_line(act.failure))


def end_event(end: RunEnded) -> EventDraft | None:
    """Return the `ended` event; None where the run continues as new: the workflow goes on in another."""
    if end.how == "continued_as_new":
        return None
    outcome = "cancelled" if end.how == "canceled" else end.outcome or end.how
    return EventDraft(EventType.ENDED, {"outcome": outcome, "reason": _first_line(end.reason)})


def _time_text(time: datetime) -> str:
    """Return a time as events have it, `2026-11-23T08:00:00.123Z`."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _activity_draft(act: ActivityRecord, type: EventType, **data: Any) -> EventDraft:
    """Return an event of an activity, with its turn and, where the activity is a step, its step and attempt."""
    is_step = act.activity in STEPS
    return EventDraft(type, data, act.activity if is_step else "", act.attempt if is_step else 0, act.turn)


def _step_start_events(act: ActivityRecord) -> Iterator[EventDraft]:
    """Yield `step_started` where a scheduled activity is a step without turns, or the first turn of a step."""
    if act.activity in STEPS and act.turn in (0, 1):
        yield _activity_draft(act, EventType.STEP_STARTED, correction=act.activity in FIXES)


def _result_events(act: ActivityRecord, result: Mapping[str, Any]) -> Iterator[EventDraft]:
    """Yield the events of an activity's result: of a turn, of a commit, test run, pull request, landing or receipt.

    A step without turns yields `step_ended` as well; any other activity yields nothing.
    """
    if act.activity in AGENTIC:
        yield from _turn_events(act, result)
    elif (kind := _RESULT_EVENTS.get(act.activity)) is not None:
        type, data = kind
        yield _activity_draft(act, type, **data(result))
    if act.activity in STEPS and act.activity not in AGENTIC:
        yield _activity_draft(act, EventType.STEP_ENDED, ending="done", summary=str(result.get("summary", "")))


def _turn_events(act: ActivityRecord, result: Mapping[str, Any]) -> Iterator[EventDraft]:
    """Yield the events of an agent's turn: `activity`, its `question` if it asks one and, when it ends its step,
    `step_ended`.

    A review that ended well yields `review`, with its counts by severity, before that.
    """
    usage, spend = _object_of(result, "usage"), _object_of(result, "spend")
    yield _activity_draft(
        act,
        EventType.ACTIVITY,
        summary=str(result.get("summary", "")),
        checkpoint=str(result.get("checkpoint", "")),
        cost_usd=usage.get("cost_usd"),
        spent_usd=spend.get("usd", 0.0),
        waited_s=result.get("waited_s", 0.0),
        tries=max(act.tries, 1),
        read=read_ids if isinstance(read_ids := result.get("notes"), list) else [],
    )
    if question := _object_of(result, "question"):
        yield _activity_draft(act, EventType.QUESTION, **question)
    if not (outcome := _object_of(result, "outcome")):
        return
    summary, data = str(outcome.get("summary", "")), _object_of(outcome, "data")
    ending = str(outcome.get("ending", "done"))
    if act.activity == Step.REVIEW and ending == "done":
        counts = {name: data.get(name, 0) for name in ("blocker", "tech_debt", "skippable")}
        yield _activity_draft(act, EventType.REVIEW, **counts, summary=summary)
    yield _activity_draft(act, EventType.STEP_ENDED, ending=ending, summary=summary)


def _pick_fields(**fields: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that takes these fields of a result, each with the value given here where it is missing."""
    return lambda result: {name: result.get(name, empty) for name, empty in fields.items()}


def _object_of(result: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a field that is a JSON object; empty where it is none."""
    return value if isinstance(value := result.get(name), dict) else {}


def _pull_request_data(result: Mapping[str, Any]) -> dict[str, Any]:
    made = _object_of(result, "pull_request")
    return {"url": made.get("url"), "number": made.get("number"), "draft": made.get("draft", False)}


def _receipt_data(result: Mapping[str, Any]) -> dict[str, Any]:
    receipt = _object_of(result, "receipt")
    return {name: receipt.get(name, 0) for name in ("worker_deaths", "turns_redone", "replies_paid_twice")}


_RESULT_EVENTS: Mapping[str, tuple[EventType, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    Step.COMMIT: (EventType.COMMIT, _pick_fields(commit="", files=0, added=0, deleted=0, summary="")),
    Step.RUN_TESTS: (EventType.TEST_RESULT, _pick_fields(status="", passed=None, failed=None, failures=[], summary="")),
    Step.OPEN_PULL_REQUEST: (EventType.PULL_REQUEST, _pull_request_data),
    Step.LAND: (EventType.LANDING, _pick_fields(commit="", summary="")),
    "close": (EventType.RECEIPT, _receipt_data),
}


@dataclass
class _Stream:
    """A place in a stream of events: how many came before, and what is known of the run that is being read.

    run_history  of the run so far; runs: how many were begun
    phase        the last phase that was told; gate_open: the last `gate` event asked somebody for a decision
    unknown      a backlog's signals of workflows of which it has not yet said that they are its deliveries
    """

    client: Client
    id: str
    run_history: RunHistory = field(default_factory=RunHistory)
    offset: int = 0
    runs: int = 0
    phase: str = ""
    gate_open: bool = False
    unknown: list[SignalReceived] = field(default_factory=list)

    def begin_run(self) -> None:
        """Begin another run, whose history is folded by itself; offsets go on."""
        self.run_history = RunHistory(delivery_runs=self.run_history.delivery_runs)
        self.gate_open, self.unknown = False, []
        self.runs += 1

    async def convert_event(self, event: HistoryEvent, copied: int) -> list[Event]:
        """Convert one event of history to Perdure's events and count them in the stream's offset.

        Those up to number `copied` were told in another run, from which a reset copied them: the last of them gives one
        `continued` event, the others none.
        """
        record = await decode_event(event, self.client.data_converter)
        drafts = [] if record is None else list(self._drafts_of(record))
        if event.event_id <= copied:
            drafts = [EventDraft(EventType.CONTINUED, {"by": "rewind"})] if event.event_id == copied else []
        time = _time_text(event.event_time.ToDatetime(UTC))
        backlog, item = self._backlog_and_item()
        converted = [
            Event(
                offset=self.offset + place,
                time=time,
                delivery=None if self.is_backlog else self.id,
                backlog=backlog,
                item=draft.item or item,
                type=draft.type,
                step=draft.step or None,
                attempt=draft.attempt or None,
                turn=draft.turn or None,
                data=draft.data,
            )
            for place, draft in enumerate(drafts)
        ]
        self.offset += len(converted)
        return converted

    @property
    def is_backlog(self) -> bool:
        return self.run_history.workflow == BACKLOG_WORKFLOW

    def _backlog_and_item(self) -> tuple[str | None, str | None]:
        """Return (id of the backlog, id of its item) that the stream is about; None for each that there is not.

        A backlog's own stream has no item.
        """
        if self.is_backlog:
            return self.id, None
        origin = _object_of(self.run_history.request, "landing")
        backlog, item = (value if isinstance(value := origin.get(name), str) else "" for name in ("backlog", "item"))
        return backlog or None, item or None

    def _drafts_of(self, record: HistoryRecord) -> Iterator[EventDraft]:
        """Apply a record to the run, and yield the events that it means."""
        number = record.scheduled if isinstance(record, ActivityStarted | ActivityEnded) else record.number
        before = self.run_history.activities.get(number)
        self.run_history.apply_record(record)
        if (act := self.run_history.activities.get(number)) is not None:
            yield from activity_events(act, before)
            return
        match record:
            case RunStarted():
                yield start_event(self.run_history, record.begins, first=self.runs == 1)
            case TimerStarted(reason=reason) if reason:
                yield EventDraft(EventType.WAITING, {"why": reason, "until": None})
            case FieldsChanged(memo=True):
                yield from self._gate_drafts(record.fields)
            case FieldsChanged():
                yield from self._phase_drafts(record.fields)
            case UpdateCompleted(failed=False) if update := self.run_history.updates.get(record.id):
                if update.name != "attach":
                    yield EventDraft(EventType.DECISION, {"name": update.name, "said": update.message})
            case SignalReceived():
                yield self._signal_draft(record)
            case SendersAccepted():
                yield from self._accepted_drafts()
            case ChildStarted(id=id) if self.is_backlog:
                yield EventDraft(EventType.ITEM, {"event": "begins", "delivery": id}, item=id.rpartition("/")[2])
            case RunEnded() if (end := end_event(record)) is not None:
                yield end

    def _phase_drafts(self, fields: dict[str, Any]) -> Iterator[EventDraft]:
        """Yield a `phase` event where the search attributes name another phase than the last one."""
        phase = fields.get("PerdurePhase")
        if isinstance(phase, str) and phase not in ("", self.phase):
            self.phase = phase
            yield EventDraft(EventType.PHASE, {"phase": phase})

    def _gate_drafts(self, fields: dict[str, Any]) -> Iterator[EventDraft]:
        """Yield a `gate` event when the memo has changed what a person is asked, and note whether a question stands.

        The event's fields are empty when the question of the last one stands no longer. Yields nothing when the memo's
        change is about something else.
        """
        if "asked" not in fields:
            return
        pending = read_as(PendingDecision, fields["asked"])
        if pending is not None:
            data = {"gate": pending.gate.value, "of": pending.target, "words": pending.summary}
            yield EventDraft(EventType.GATE, {**data, "options": list(pending.options)})
        elif self.gate_open:
            yield EventDraft(EventType.GATE, {"gate": "", "of": "", "words": "", "options": []})
        self.gate_open = pending is not None

    def _signal_draft(self, signal: SignalReceived) -> EventDraft:
        """Return a signal as an event: `item` where a delivery sent it to its backlog, else `said`. One that was sent
        under a delivery's id, by a run that the backlog did not start, is kept until the backlog knows the run."""
        item = signal.message.get("item")
        if self.is_backlog and isinstance(item, str) and signal.sender == f"{self.id}/{item}":
            if signal.sender_run in self.run_history.delivery_runs:
                return EventDraft(EventType.ITEM, {"event": signal.name, **signal.message}, item=item)
            self.unknown.append(signal)
        return EventDraft(EventType.SAID, {"name": signal.name, "said": signal.message})

    def _accepted_drafts(self) -> Iterator[EventDraft]:
        """Yield an `item` event for each signal that was kept and whose sender the backlog knows now."""
        signals, self.unknown = self.unknown, []
        for signal in signals:
            if signal.sender_run in self.run_history.delivery_runs:
                yield self._signal_draft(signal)
            else:
                self.unknown.append(signal)


async def stream_events(client: Client, id: str, *, follow: bool = False, since: int = 0) -> AsyncIterator[Event]:
    """Yield the events of a delivery or a backlog, oldest first, from offset `since`; with `follow`, until it ends.

    Raises BadInput when there is no such workflow, and RPCError when the server cannot be reached.
    """
    stream, done_runs = _Stream(client, id), list[str]()
    while runs := [run_id for run_id in await _list_run_ids(client, id) if run_id not in done_runs]:
        for run_id in runs:
            stream.begin_run()
            async for event in _run_events(stream, run_id, follow=follow and run_id == runs[-1]):
                if event.offset >= since:
                    yield event
            done_runs.append(run_id)
        if not follow:
            return


async def _run_events(stream: _Stream, run_id: str, *, follow: bool) -> AsyncIterator[Event]:
    """Yield the events of one run; what a reset copied into it from another run is folded and not told once more.

    With `follow`, waits for further events until the run ends. Of a run that the server no longer has, yields no more
    and raises nothing; any other RPCError is raised.
    """
    handle = stream.client.get_workflow_handle(stream.id, run_id=run_id)
    copied = 0
    try:
        if stream.runs > 1:
            async for event in handle.fetch_history_events():
                copied = event.event_id if is_reset(event) else copied
        async for event in handle.fetch_history_events(wait_new_event=follow):
            for converted in await stream.convert_event(event, copied):
                yield converted
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:  # retention has taken this run
            raise


async def _list_run_ids(client: Client, id: str) -> list[str]:
    """List the ids of all runs that the server knows and that were not refused, in the order in which they began; where
    all were refused, of all.

    Raises BadInput when there is none. The newest run is described by itself: lists are seconds behind.
    """
    if (newest := await find_workflow(client, id)) is None:
        raise BadInput(f"no delivery or backlog {id}", fix="see perdure list")
    runs: dict[str, WorkflowExecution] = {newest.run_id: newest}
    async for execution in client.list_workflows(exact_id_query(id)):
        runs.setdefault(execution.run_id, execution)
    run_ids = sorted(runs, key=lambda run_id: (run_id == newest.run_id, runs[run_id].start_time))
    return [run_id for run_id in run_ids if not await is_refused(client, runs[run_id])] or run_ids
