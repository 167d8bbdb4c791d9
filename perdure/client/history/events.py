"""The event stream of a delivery or a backlog, folded from its Temporal history without any worker; nothing is
written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.history.runs import ActivityRecord, RunFold, is_reset
from perdure.client.server.view import find_workflow
from perdure.models.delivery.steps import AGENTIC, FIXES, STEPS
from perdure.models.errors import BadInput
from perdure.models.events import Event, EventType
from perdure.models.phases import Step

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


def start_events(request: Mapping[str, Any], attributes: Any, *, first: bool) -> Iterator[EventDraft]:
    """Yield the event of a run's start: `started` for a new delivery or backlog, `continued` for a run that goes on.

    `request` is the run's, `attributes` are those of its start event, `first` is True for the first known run.
    """
    if attributes.continued_execution_run_id:
        yield EventDraft(EventType.CONTINUED, {"by": "length"})
    elif (resume := request.get("resume")) and resume.get("rewound"):
        yield EventDraft(EventType.CONTINUED, {"by": "rewind"})
    elif not first or (resume and resume.get("run_id")):  # a fork begins with what another delivery has made
        yield EventDraft(EventType.CONTINUED, {"by": "retry"})
    else:
        first_line = _first_line(str(request.get("request") or ""))[:REQUEST_SHOWN]
        yield EventDraft(EventType.STARTED, {"repository": str(request.get("repository") or ""), "request": first_line})


def activity_events(act: ActivityRecord, before: ActivityRecord | None) -> Iterator[EventDraft]:
    """Yield the events that a change of an activity means; `before` is its record until then, if any."""
    if before is None:
        yield from _step_start_events(act)
        return
    if act.died and not before.died:
        yield _activity_draft(act, EventType.WORKER_DEATH, activity=act.activity, tries=act.tries)
    if act.result is not None:
        yield from _result_events(act, act.result)
    elif act.failure:
        yield _activity_draft(act, EventType.STEP_FAILED, why=_first_line(act.failure))


def end_event(name: str, attributes: Any, reading: RunFold) -> EventDraft | None:
    """Return the `ended` event where the history event `name` ends the workflow; None for any other event.

    None, too, where the run continues as new: the workflow goes on in another.
    """
    match name.removeprefix("workflow_execution_"):
        case "completed":
            return EventDraft(EventType.ENDED, {"outcome": reading.outcome or "completed", "reason": ""})
        case "failed":
            reason = _first_line(attributes.failure.message)
            return EventDraft(EventType.ENDED, {"outcome": reading.outcome or "failed", "reason": reason})
        case "canceled":
            return EventDraft(EventType.ENDED, {"outcome": "cancelled", "reason": ""})
        case "terminated" | "timed_out" as outcome:
            return EventDraft(
                EventType.ENDED, {"outcome": outcome, "reason": _first_line(getattr(attributes, "reason", ""))}
            )
        case _:
            return None


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
    """Yield the events of an activity's result, as perdure.models.delivery.work and its neighbours have it."""
    if act.activity in AGENTIC:
        yield from _turn_events(act, result)
    elif (kind := _RESULT_EVENTS.get(act.activity)) is not None:
        type, data = kind
        yield _activity_draft(act, type, **data(result))
    if act.activity in STEPS and act.activity not in AGENTIC:
        yield _activity_draft(act, EventType.STEP_ENDED, ending="done", summary=str(result.get("summary", "")))


def _turn_events(act: ActivityRecord, result: Mapping[str, Any]) -> Iterator[EventDraft]:
    """Yield the events of an agent's turn: the turn itself, its question, and the review or end of its step."""
    usage, spend = (result.get(name) or {} for name in ("usage", "spend"))
    yield _activity_draft(
        act,
        EventType.ACTIVITY,
        summary=str(result.get("summary", "")),
        checkpoint=str(result.get("checkpoint", "")),
        cost_usd=usage.get("cost_usd"),
        spent_usd=spend.get("usd", 0.0),
        waited_s=result.get("waited_s", 0.0),
    )
    if question := result.get("question"):
        yield _activity_draft(act, EventType.QUESTION, **question)
    if (outcome := result.get("outcome")) is None:
        return
    summary, data = str(outcome.get("summary", "")), outcome.get("data") or {}
    ending = str(outcome.get("ending", "done"))
    if act.activity == Step.REVIEW and ending == "done":
        counts = {name: data.get(name, 0) for name in ("blocker", "tech_debt", "skippable")}
        yield _activity_draft(act, EventType.REVIEW, **counts, summary=summary)
    yield _activity_draft(act, EventType.STEP_ENDED, ending=ending, summary=summary)


def _pick_fields(**fields: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that takes these fields of a result, each with the value given here where it is missing."""
    return lambda result: {name: result.get(name, empty) for name, empty in fields.items()}


def _pull_request_data(result: Mapping[str, Any]) -> dict[str, Any]:
    made = result.get("pull_request") or {}
    return {"url": made.get("url"), "number": made.get("number"), "draft": made.get("draft", False)}


def _receipt_data(result: Mapping[str, Any]) -> dict[str, Any]:
    receipt = result.get("receipt") or {}
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

    reading    the run's history so far; runs: how many runs were begun
    phase      the last phase that was told; gate_open: the last `gate` event asked somebody for a decision
    updates    name and argument of the updates that were accepted and are not completed, by their id
    """

    client: Client
    id: str
    reading: RunFold
    offset: int = 0
    runs: int = 0
    phase: str = ""
    gate_open: bool = False
    updates: dict[str, tuple[str, Any]] = field(default_factory=dict)

    def begin_run(self) -> None:
        """Begin another run, whose history is folded by itself; offsets go on."""
        self.reading, self.gate_open, self.updates = RunFold(self.client.data_converter), False, {}
        self.runs += 1

    async def convert_event(self, event: HistoryEvent, copied: int) -> list[Event]:
        """Convert one event of history to Perdure's events and count them in the stream's offset.

        Those up to number `copied` were told in another run, from which a reset copied them: the last of them gives one
        `continued` event, the others none.
        """
        kind = event.WhichOneof("attributes") or ""
        attributes: Any = getattr(event, kind) if kind else None
        number = getattr(attributes, "scheduled_event_id", 0) or event.event_id
        before = self.reading.activities.get(number)
        await self.reading.apply_event(event)
        if (act := self.reading.activities.get(number)) is not None:
            drafts = list(activity_events(act, before))
        else:
            drafts = [
                draft
                async for draft in self._drafts_of(kind.removesuffix("_event_attributes"), attributes, event.event_id)
            ]
        if event.event_id <= copied:
            drafts = [EventDraft(EventType.CONTINUED, {"by": "rewind"})] if event.event_id == copied else []
        time = event.event_time.ToDatetime(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
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
        return self.reading.type == "Backlog"

    def _backlog_and_item(self) -> tuple[str | None, str | None]:
        """Return the ids of the stream's backlog and of its item; None for each that there is not."""
        if self.is_backlog:
            return self.id, None
        landing = self.reading.request.get("landing")
        origin = landing if isinstance(landing, dict) else {}
        return origin.get("backlog") or None, origin.get("item") or None

    async def _drafts_of(self, kind: str, attributes: Any, number: int) -> AsyncIterator[EventDraft]:
        """Yield the events that a history event means which is of no activity.

        Accepted updates are kept until they complete.
        """
        match kind:
            case "workflow_execution_started":
                for draft in start_events(self.reading.request, attributes, first=self.runs == 1):
                    yield draft
            case "timer_started":
                if reason := self.reading.waits[number].reason:
                    yield EventDraft(EventType.WAITING, {"why": reason, "until": None})
            case "upsert_workflow_search_attributes":
                for draft in self._phase_drafts(await self._decode_fields(attributes.search_attributes.indexed_fields)):
                    yield draft
            case "workflow_properties_modified":
                for draft in self._gate_drafts(await self._decode_fields(attributes.upserted_memo.fields)):
                    yield draft
            case "workflow_execution_update_accepted":
                update_input = attributes.accepted_request.input
                self.updates[attributes.protocol_instance_id] = (
                    update_input.name,
                    await self.reading.decode_first(update_input.args),
                )
            case "workflow_execution_update_completed":
                name, message = self.updates.pop(attributes.meta.update_id, ("", {}))
                if name and name != "attach" and not attributes.outcome.HasField("failure"):
                    yield EventDraft(EventType.DECISION, {"name": name, "said": message})
            case "workflow_execution_signaled":
                message = await self.reading.decode_first(attributes.input)
                yield self._signal_draft(attributes.signal_name, message)
            case "child_workflow_execution_started" if self.is_backlog:
                id = attributes.workflow_execution.workflow_id
                yield EventDraft(EventType.ITEM, {"event": "begins", "delivery": id}, item=id.rpartition("/")[2])
            case name if name.startswith("workflow_execution_"):
                if (end := end_event(name, attributes, self.reading)) is not None:
                    yield end

    def _phase_drafts(self, fields: dict[str, Any]) -> Iterator[EventDraft]:
        """Yield a `phase` event where the search attributes name another phase than the last one."""
        phase = fields.get("PerdurePhase")
        if isinstance(phase, str) and phase not in ("", self.phase):
            self.phase = phase
            yield EventDraft(EventType.PHASE, {"phase": phase})

    def _gate_drafts(self, fields: dict[str, Any]) -> Iterator[EventDraft]:
        """Yield a `gate` event where the memo has changed what a person is asked; empty fields: nothing any more."""
        if "asked" not in fields:
            return
        pending = fields["asked"] if isinstance(fields["asked"], dict) else {}
        if pending or self.gate_open:
            data = {name: pending.get(name, empty) for name, empty in (("gate", ""), ("of", ""), ("words", ""))}
            yield EventDraft(EventType.GATE, {**data, "options": list(pending.get("options", ())) if pending else []})
        self.gate_open = bool(pending)

    def _signal_draft(self, name: str, message: dict[str, Any]) -> EventDraft:
        """Return a signal as an event: `item` where a delivery sent it to its backlog, else `said`."""
        if self.is_backlog and isinstance(item := message.get("item"), str):
            return EventDraft(EventType.ITEM, {"event": name, **message}, item=item)
        return EventDraft(EventType.SAID, {"name": name, "said": message})

    async def _decode_fields(self, payloads: Any) -> dict[str, Any]:
        """Decode a map of payloads; those that others have encoded, or that are no JSON, are left out."""
        values = {}
        for name, payload in payloads.items():
            try:
                (values[name],) = await self.client.data_converter.decode([payload])
            except (ValueError, RuntimeError):  # encoded by others, or no JSON: not ours to tell
                continue
        return values


async def stream_events(client: Client, id: str, *, follow: bool = False, since: int = 0) -> AsyncIterator[Event]:
    """Yield the events of a delivery or a backlog, oldest first, from offset `since`; with `follow`, until it ends.

    Raises BadInput when there is no such workflow, and RPCError when the server cannot be reached.
    """
    stream, done_runs = _Stream(client, id, RunFold(client.data_converter)), list[str]()
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

    `follow`: wait for what happens until the run ends. A run that the server no longer has ends the stream of it,
    without an error.
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
    """List the ids of all runs that the server knows, in the order in which they began.

    Raises BadInput when there is none. The newest run is described by itself: lists are seconds behind.
    """
    if (newest := await find_workflow(client, id)) is None:
        raise BadInput(f"no delivery or backlog {id}", fix="see perdure list")
    began = {newest.run_id: newest.start_time}
    async for execution in client.list_workflows(f"WorkflowId = '{id}'"):
        began.setdefault(execution.run_id, execution.start_time)
    return sorted(began, key=lambda execution: (execution == newest.run_id, began[execution]))
