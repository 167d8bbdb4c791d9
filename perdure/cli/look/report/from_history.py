"""A delivery's state, steps and turns, folded from its history alone; pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from perdure.cli.look.report.facts import ReportTurn, ReportWait, WorkerDeath
from perdure.client.history import ActivityRecord, DeliveryHistory
from perdure.client.steps import apply_known_result, steps_of, turn_result_of
from perdure.models.errors import InvalidRequest
from perdure.models.ledger import Usage
from perdure.models.request import DeliveryRequest, parse_request
from perdure.models.result import StepRecord
from perdure.models.state import DeliveryState, Progress
from perdure.models.steps import AGENTIC
from perdure.models.summary import progress_of

_SLACK = timedelta(seconds=2)
"""Records of steps have whole seconds, and an activity is scheduled a moment after its step began."""


def state_of(past: DeliveryHistory) -> DeliveryState:
    """Return the state as far as history has it: where the newest run began, with the results of all activities
    applied.

    Usage is counted from nothing, over all runs. A state at the beginning that cannot be parsed is left out.
    """
    resume = past.request.get("resume")
    try:
        state = DeliveryState.model_validate(resume.get("state", {}) if isinstance(resume, dict) else {})
    except ValidationError:
        state = DeliveryState()
    state.usage = Usage()  # every turn of every run is counted below
    for act in past.activities:
        apply_known_result(state, act, branch=bool(past.request.get("branch")))
    return state


def request_of(past: DeliveryHistory) -> DeliveryRequest:
    """Return the request as it was sent; of one that was never valid, only the repository and the text."""
    try:
        return parse_request(past.request)
    except InvalidRequest:
        return DeliveryRequest.model_construct(
            repository=str(past.request.get("repository") or ""), request=str(past.request.get("request") or "")
        )


def steps_so_far(state: DeliveryState, past: DeliveryHistory) -> list[StepRecord]:
    """Return the steps of earlier runs, as the newest run got them, and then its own."""
    return [*state.steps, *steps_of(past.activities[past.newest_start :])]


def progress_from(past: DeliveryHistory, delivery_id: str, run_id: str, state: DeliveryState | None = None) -> Progress:
    """Return what query `progress` would answer, folded from history: for when no worker answers.

    state  that of `state_of(past)`, where the caller has it; its steps and its wait are filled in here
    """
    state = state or state_of(past)
    state.steps = steps_so_far(state, past)
    state.waiting = next((wait.reason for wait in reversed(past.waits) if wait.until is None), "") or past.hold_reason
    return progress_of(state, request_of(past), delivery_id, run_id)


def step_start_times(steps: Sequence[StepRecord], acts: Sequence[ActivityRecord]) -> tuple[datetime | None, ...]:
    """Return when each step began, to the millisecond where history has its first activity, else as its record says;
    None: unknown."""
    starts: list[datetime | None] = []
    remaining = list(acts)
    for record in steps:
        stamp = parse_time(record.started_at)
        first_act = next(
            (
                act
                for act in remaining
                if act.activity == record.step and stamp and stamp - _SLACK / 2 <= act.scheduled <= stamp + _SLACK
            ),
            None,
        )
        if first_act is not None:
            remaining = remaining[remaining.index(first_act) + 1 :]
        starts.append(first_act.scheduled if first_act else stamp)
    return tuple(starts)


def parse_time(stamp: str | None) -> datetime | None:
    """Parse a time in RFC 3339, as UTC where it names no zone; None for anything else."""
    try:
        time = datetime.fromisoformat(stamp or "")
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def turns_of(acts: Iterable[ActivityRecord]) -> list[ReportTurn]:
    """Return each turn that ended well or still runs."""
    return [_turn_of(act) for act in acts if act.activity in AGENTIC and (act.result is not None or act.ended is None)]


def _turn_of(act: ActivityRecord) -> ReportTurn:
    """Convert the record of an agentic activity to a turn of the report, without its transcript."""
    result = turn_result_of(act)
    return ReportTurn(
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


def deaths_of(acts: Iterable[ActivityRecord]) -> list[WorkerDeath]:
    """Return the deaths of workers that these activities survived."""
    return [WorkerDeath(at=act.began, activity=act.activity, tries=act.tries) for act in acts if act.died and act.began]


def waits_of(past: DeliveryHistory) -> list[ReportWait]:
    """Return the times in which nothing was done."""
    return [ReportWait(since=wait.since, until=wait.until, reason=wait.reason) for wait in past.waits]
