"""The meaning of one event of history: which of ours it is, with what data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.client.history import Act, Reading
from perdure.models.events import EventType
from perdure.models.phases import Step
from perdure.models.steps import AGENTIC, FIXES, STEPS

REQUEST_SHOWN = 200
"""Characters of a request's first line in the event that begins its delivery."""


@dataclass(frozen=True)
class Told:
    """An event without its place in the stream; 0 and "" where it has none."""

    type: EventType
    data: dict[str, Any] = field(default_factory=dict)
    step: str = ""
    attempt: int = 0
    turn: int = 0
    item: str = ""


def of_begin(request: Mapping[str, Any], attributes: Any, *, first: bool) -> Iterator[Told]:
    """A run begins: the first one, or another that goes on."""
    if attributes.continued_execution_run_id:
        yield Told(EventType.CONTINUED, {"by": "length"})
    elif (resume := request.get("resume")) and resume.get("rewound"):
        yield Told(EventType.CONTINUED, {"by": "rewind"})
    elif not first or (resume and resume.get("run_id")):  # a fork begins with what another delivery has made
        yield Told(EventType.CONTINUED, {"by": "retry"})
    else:
        words = _first_line(str(request.get("request") or ""))[:REQUEST_SHOWN]
        yield Told(EventType.STARTED, {"repository": str(request.get("repository") or ""), "request": words})


def of_act(act: Act, before: Act | None) -> Iterator[Told]:
    """The events of an activity that history says something new of. `before`: as it was known until then."""
    if before is None:
        yield from _begun(act)
        return
    if act.died and not before.died:
        yield _of(act, EventType.WORKER_DEATH, activity=act.activity, tries=act.tries)
    if act.result is not None:
        yield from _given(act, act.result)
    elif act.failure:
        yield _of(act, EventType.STEP_FAILED, why=_first_line(act.failure))


def ended(name: str, attributes: Any, reading: Reading) -> Told | None:
    """The end of a run, where it is that of the delivery, too."""
    match name.removeprefix("workflow_execution_"):
        case "completed":
            return Told(EventType.ENDED, {"outcome": reading.outcome or "completed", "reason": ""})
        case "failed":
            words = _first_line(attributes.failure.message)
            return Told(EventType.ENDED, {"outcome": reading.outcome or "failed", "reason": words})
        case "canceled":
            return Told(EventType.ENDED, {"outcome": "cancelled", "reason": ""})
        case "terminated" | "timed_out" as outcome:
            return Told(EventType.ENDED, {"outcome": outcome, "reason": _first_line(getattr(attributes, "reason", ""))})
        case _:
            return None


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _of(act: Act, type: EventType, **data: Any) -> Told:
    known = act.activity in STEPS
    return Told(type, data, act.activity if known else "", act.attempt if known else 0, act.turn)


def _begun(act: Act) -> Iterator[Told]:
    if act.activity in STEPS and act.turn in (0, 1):
        yield _of(act, EventType.STEP_STARTED, correction=act.activity in FIXES)


def _given(act: Act, result: Mapping[str, Any]) -> Iterator[Told]:
    """The events of an activity's result: the shapes are those of perdure.models.work and its neighbours."""
    if act.activity in AGENTIC:
        yield from _turn(act, result)
    elif (kind := _KINDS.get(act.activity)) is not None:
        type, data = kind
        yield _of(act, type, **data(result))
    if act.activity in STEPS and act.activity not in AGENTIC:
        yield _of(act, EventType.STEP_ENDED, ending="done", summary=str(result.get("summary", "")))


def _turn(act: Act, result: Mapping[str, Any]) -> Iterator[Told]:
    usage, spend = (result.get(name) or {} for name in ("usage", "spend"))
    yield _of(
        act,
        EventType.ACTIVITY,
        summary=str(result.get("summary", "")),
        checkpoint=str(result.get("checkpoint", "")),
        cost_usd=usage.get("cost_usd"),
        spent_usd=spend.get("usd", 0.0),
        waited_s=result.get("waited_s", 0.0),
    )
    if question := result.get("question"):
        yield _of(act, EventType.QUESTION, **question)
    if (outcome := result.get("outcome")) is None:
        return
    summary, data = str(outcome.get("summary", "")), outcome.get("data") or {}
    ending = str(outcome.get("ending", "done"))
    if act.activity == Step.REVIEW and ending == "done":
        counts = {name: data.get(name, 0) for name in ("blocker", "tech_debt", "skippable")}
        yield _of(act, EventType.REVIEW, **counts, summary=summary)
    yield _of(act, EventType.STEP_ENDED, ending=ending, summary=summary)


def _picked(**fields: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """These fields of a result, each with what it is where the result leaves it out."""
    return lambda result: {name: result.get(name, empty) for name, empty in fields.items()}


def _pull_request(result: Mapping[str, Any]) -> dict[str, Any]:
    made = result.get("pull_request") or {}
    return {"url": made.get("url"), "number": made.get("number"), "draft": made.get("draft", False)}


def _receipt(result: Mapping[str, Any]) -> dict[str, Any]:
    found = result.get("receipt") or {}
    return {name: found.get(name, 0) for name in ("worker_deaths", "turns_redone", "replies_paid_twice")}


_KINDS: Mapping[str, tuple[EventType, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    Step.COMMIT: (EventType.COMMIT, _picked(commit="", files=0, added=0, deleted=0, summary="")),
    Step.RUN_TESTS: (EventType.TEST_RESULT, _picked(status="", passed=None, failed=None, failures=[], summary="")),
    Step.OPEN_PULL_REQUEST: (EventType.PULL_REQUEST, _pull_request),
    Step.LAND: (EventType.LANDING, _picked(commit="", summary="")),
    "close": (EventType.RECEIPT, _receipt),
}
