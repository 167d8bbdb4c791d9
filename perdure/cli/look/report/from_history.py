"""A delivery's state, steps and turns, told again from its history alone; pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from perdure.cli.look.report.facts import Death, Turn, Waited
from perdure.client.history import Act, Past
from perdure.client.steps import given_by, steps_of, took
from perdure.models.errors import InvalidRequest
from perdure.models.ledger import Usage
from perdure.models.request import DeliveryRequest, parse_request
from perdure.models.result import StepRecord
from perdure.models.state import DeliveryState, Progress
from perdure.models.steps import AGENTIC
from perdure.models.summary import progress_of

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
        took(state, act, branch=bool(past.request.get("branch")))
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
    result = given_by(act)
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
