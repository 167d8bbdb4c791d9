"""A delivery's state, steps and turns, told again from its history alone; pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from perdure.cli.look.report.facts import Death, Turn, Waited
from perdure.models import fold
from perdure.models.errors import InvalidRequest
from perdure.models.ledger import Usage
from perdure.models.phases import Step
from perdure.models.request import DeliveryRequest, parse_request
from perdure.models.result import StepRecord
from perdure.models.state import DeliveryState, Progress
from perdure.models.steps import AGENTIC
from perdure.models.summary import progress_of
from perdure.models.turn import Ending, TurnResult

if TYPE_CHECKING:
    from perdure.client.history import Act, Past

_STAMP = "%Y-%m-%dT%H:%M:%SZ"
_SLACK = timedelta(seconds=2)
"""Records of steps have whole seconds, and an activity is scheduled a moment after its step began."""


def state_of(past: Past) -> DeliveryState:
    """Return the state as far as history tells it: the newest run's beginning, and what its activities gave since."""
    resume = past.request.get("resume")
    try:
        state = DeliveryState.model_validate(resume.get("state", {}) if isinstance(resume, dict) else {})
    except ValidationError:
        state = DeliveryState()
    state.usage = Usage()  # every turn of every run is counted below
    for act in past.acts:
        _take(state, act, branch=bool(past.request.get("branch")))
    return state


def request_of(past: Past) -> DeliveryRequest:
    """The request as it was sent; of one that was never valid, its first words."""
    try:
        return parse_request(past.request)
    except InvalidRequest:
        return DeliveryRequest.model_construct(
            repository=str(past.request.get("repository") or ""), request=str(past.request.get("request") or "")
        )


def steps_so_far(state: DeliveryState, past: Past) -> list[StepRecord]:
    """Steps of the runs before, as the newest one got them, and its own after them."""
    return [*state.steps, *steps_of(past.acts[past.newest :])]


def progress_from(past: Past, delivery_id: str, run_id: str, state: DeliveryState | None = None) -> Progress:
    """The answer where no worker gives one: that to query `progress`, folded from history.

    state  `state_of(past)`, where that is known; its steps and its wait are then filled in
    """
    state = state or state_of(past)
    state.steps = steps_so_far(state, past)
    state.waiting = next((wait.reason for wait in reversed(past.waits) if wait.until is None), "") or past.held
    return progress_of(state, request_of(past), delivery_id, run_id)


def _take(state: DeliveryState, act: Act, *, branch: bool = False) -> None:
    if act.result is not None:
        with suppress(ValidationError):  # of a release that this one does not know
            fold.take(state, act.activity, act.given, act.result, branch=branch)


def steps_of(acts: Iterable[Act]) -> list[StepRecord]:
    """Return the steps, where no worker can be asked for its own records."""
    records: list[StepRecord] = []
    first: list[Act] = []
    state = DeliveryState()
    for act in acts:
        _take(state, act)
        if act.activity not in tuple(Step):
            continue
        attempt = max(act.attempt, 1)
        # Turns of one step, or a forge that was tried again.
        if not (records and (records[-1].step, records[-1].attempt) == (act.activity, attempt)):
            records.append(StepRecord(step=act.activity, attempt=attempt, started_at=act.scheduled.strftime(_STAMP)))
            first.append(act)
        records[-1] = records[-1].model_copy(update=_since(records[-1], first[-1], act, state))
    return records


def _since(record: StepRecord, first: Act, act: Act, state: DeliveryState) -> dict[str, Any]:
    """Return the fields of its step's record that one more activity changes. `state`: with its result taken in."""
    if act.ended is None:
        return {"status": "running", "duration_s": None}
    changes: dict[str, Any] = {"duration_s": round((act.ended - first.scheduled).total_seconds(), 1)}
    if act.result is None:
        return changes | {
            "status": "cancelled" if act.failure == "cancelled" else "failed",
            "summary": act.failure[:100],
        }
    changes |= {"status": "done", "summary": str(act.result.get("summary", ""))}
    if act.activity == Step.COMMIT:
        changes["commit"] = act.result.get("commit")
    if act.activity in AGENTIC:
        turn, outcome = _turn(act), act.result.get("outcome")
        known = record.cost_usd is not None and turn.cost_usd is not None
        changes["turns"] = record.turns + 1
        changes["cost_usd"] = round((record.cost_usd or 0) + (turn.cost_usd or 0), 6) if known else None
        if not isinstance(outcome, dict):
            return changes | {"status": "running", "summary": ""}
        changes["summary"] = str(outcome.get("summary", ""))
        if outcome.get("ending", Ending.DONE) != Ending.DONE:
            return changes | {"status": "failed"}
    if (words := fold.verdict(state, act.activity, changes["summary"])) is not None:
        changes |= {"status": "failed", "summary": words}
    return changes


def began(steps: Sequence[StepRecord], acts: Sequence[Act]) -> tuple[datetime | None, ...]:
    """Return when each step began, to the millisecond where history has its first activity."""
    found: list[datetime | None] = []
    left = list(acts)
    for record in steps:
        stamp = parsed(record.started_at)
        match = next(
            (
                act
                for act in left
                if act.activity == record.step and stamp and stamp - _SLACK / 2 <= act.scheduled <= stamp + _SLACK
            ),
            None,
        )
        if match is not None:
            left = left[left.index(match) + 1 :]
        found.append(match.scheduled if match else stamp)
    return tuple(found)


def parsed(stamp: str | None) -> datetime | None:
    """RFC 3339 as a time in UTC; None for anything else."""
    try:
        when = datetime.fromisoformat(stamp or "")
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def turns_of(acts: Iterable[Act]) -> list[Turn]:
    """Each turn that ended well, or still runs."""
    return [_turn(act) for act in acts if act.activity in AGENTIC and (act.result is not None or act.ended is None)]


def _turn(act: Act) -> Turn:
    try:
        result = TurnResult.model_validate(act.result or {"checkpoint": "", "summary": ""})
    except ValidationError:
        result = TurnResult(checkpoint="", summary="")
    return Turn(
        step=act.activity,
        attempt=max(act.attempt, 1),
        turn=max(act.turn, 1),
        summary=result.summary,
        checkpoint=result.checkpoint,
        started=act.scheduled,
        seconds=(act.ended - act.scheduled).total_seconds() if act.ended else None,
        tries=max(act.tries, 1),
        died=act.died,
        prompt_tokens=result.usage.prompt_tokens,
        output_tokens=result.usage.output_tokens,
        cost_usd=result.usage.cost_usd,
    )


def deaths_of(acts: Iterable[Act]) -> list[Death]:
    return [Death(at=act.began, activity=act.activity, tries=act.tries) for act in acts if act.died and act.began]


def waits_of(past: Past) -> list[Waited]:
    return [Waited(since=wait.since, until=wait.until, reason=wait.reason) for wait in past.waits]
