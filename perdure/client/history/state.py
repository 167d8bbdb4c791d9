"""A delivery's state, steps and progress as its history has them: for whoever asks where no worker answers.

Results are applied by perdure.models.delivery.fold, as the workflow itself applies them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from perdure.client.history.fold import ActivityRecord, DeliveryHistory
from perdure.models.base import read_as
from perdure.models.budget.ledger import Usage
from perdure.models.delivery import fold
from perdure.models.delivery.request import DeliveryRequest, parse_request
from perdure.models.delivery.result import StepRecord
from perdure.models.delivery.state import DeliveryState, Progress
from perdure.models.delivery.steps import AGENTIC
from perdure.models.delivery.summary import progress_of
from perdure.models.delivery.turn import Ending, TurnResult
from perdure.models.errors import InvalidRequest
from perdure.models.phases import Step
from perdure.text import shorten

_STAMP = "%Y-%m-%dT%H:%M:%SZ"


def apply_activity(state: DeliveryState, act: ActivityRecord, *, branch: bool = False) -> None:
    """Apply an activity's result, if it has one, to the state.

    `branch`: the delivery works on a branch that was there before it. Raises ValidationError for a result of a shape
    that this release does not know.
    """
    if act.result is not None:
        fold.apply_result(state, act.activity, act.input, act.result, branch=branch)


def steps_of(acts: Iterable[ActivityRecord]) -> list[StepRecord]:
    """Return the records of the steps that these activities belong to, in their order.

    Consecutive activities of one attempt of a step, its turns or tries, make one record. Activities that are no step
    have none.
    """
    records: list[StepRecord] = []
    first: list[ActivityRecord] = []
    state = DeliveryState()
    for act in acts:
        with suppress(ValidationError):
            apply_activity(state, act)
        if act.activity not in tuple(Step):
            continue
        attempt = max(act.attempt, 1)
        # Turns of one step, or a forge that was tried again.
        if not (records and (records[-1].step, records[-1].attempt) == (act.activity, attempt)):
            records.append(StepRecord(step=act.activity, attempt=attempt, started_at=act.scheduled.strftime(_STAMP)))
            first.append(act)
        records[-1] = records[-1].model_copy(update=_record_changes(records[-1], first[-1], act, state))
    return records


def _record_changes(
    record: StepRecord, first: ActivityRecord, act: ActivityRecord, state: DeliveryState
) -> dict[str, Any]:
    """Return the fields of a step's record that one more of its activities changes; the record itself stays as it is.

    These are status, duration_s and summary, the commit of a commit, turns and cost_usd of an agent's turn. A step has
    failed, too, where its agent did not end it well, or its result is a negative verdict: red tests, blockers.

    first  the step's first activity, from which the duration counts
    state  with the activity's result applied
    """
    if act.ended is None:
        return {"status": "running", "duration_s": None}
    changes: dict[str, Any] = {"duration_s": round((act.ended - first.scheduled).total_seconds(), 1)}
    if act.result is None:
        return changes | {
            "status": "cancelled" if act.failure == "cancelled" else "failed",
            "summary": shorten(act.failure, 100),
        }
    changes |= {"status": "done", "summary": str(act.result.get("summary", ""))}
    if act.activity == Step.COMMIT:
        changes["commit"] = act.result.get("commit")
    if act.activity in AGENTIC:
        cost, outcome = turn_result_of(act).usage.cost_usd, act.result.get("outcome")
        is_known = record.cost_usd is not None and cost is not None
        changes["turns"] = record.turns + 1
        changes["cost_usd"] = round((record.cost_usd or 0) + (cost or 0), 6) if is_known else None
        if not isinstance(outcome, dict):
            return changes | {"status": "running", "summary": ""}
        changes["summary"] = str(outcome.get("summary", ""))
        if outcome.get("ending", Ending.DONE) != Ending.DONE:
            return changes | {"status": "failed"}
    if (reason := fold.negative_verdict(state, act.activity, changes["summary"])) is not None:
        changes |= {"status": "failed", "summary": reason}
    return changes


def turn_result_of(act: ActivityRecord) -> TurnResult:
    """Return the result of a turn; an empty one before it has any, and of a shape that this release does not know."""
    return read_as(TurnResult, act.result) or TurnResult(checkpoint="", summary="")


def state_of(past: DeliveryHistory) -> DeliveryState:
    """Return the state as far as history has it: where the newest run began, with the results of all activities
    applied.

    Usage is counted from nothing, over all runs. A state at the beginning that cannot be parsed is left out.
    """
    resume = past.request.get("resume")
    state = read_as(DeliveryState, resume.get("state", {}) if isinstance(resume, dict) else {}) or DeliveryState()
    state.spending.usage = Usage()  # every turn of every run is counted below
    for act in past.activities:
        with suppress(ValidationError):
            apply_activity(state, act, branch=bool(past.request.get("branch")))
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
