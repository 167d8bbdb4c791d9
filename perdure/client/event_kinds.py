"""Conversion of one Temporal history event to Perdure's events: their types and data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.client.history import ActivityRecord, RunFold
from perdure.models.events import EventType
from perdure.models.phases import Step
from perdure.models.steps import AGENTIC, FIXES, STEPS

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
    """Yield the events of an activity's result, whose shape is that of perdure.models.work and its neighbours."""
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
