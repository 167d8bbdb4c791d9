"""The steps of a delivery as its history tells them, where no worker can be asked for its own records."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from perdure.client.history import ActivityRecord
from perdure.models import fold
from perdure.models.phases import Step
from perdure.models.result import StepRecord
from perdure.models.state import DeliveryState
from perdure.models.steps import AGENTIC
from perdure.models.turn import Ending, TurnResult

_STAMP = "%Y-%m-%dT%H:%M:%SZ"


def apply_known_result(state: DeliveryState, act: ActivityRecord, *, branch: bool = False) -> None:
    """Apply an activity's result to the state; one of a shape that this release does not know changes nothing."""
    if act.result is not None:
        with suppress(ValidationError):
            fold.apply_result(state, act.activity, act.input, act.result, branch=branch)


def steps_of(acts: Iterable[ActivityRecord]) -> list[StepRecord]:
    """Return the records of the steps that these activities belong to, in their order."""
    records: list[StepRecord] = []
    first: list[ActivityRecord] = []
    state = DeliveryState()
    for act in acts:
        apply_known_result(state, act)
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
    """Return the fields of a step's record that one more of its activities changes. `state`: with its result applied.

    `first` is the step's first activity, from which its duration counts.
    """
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
    with suppress(ValidationError):
        return TurnResult.model_validate(act.result or {"checkpoint": "", "summary": ""})
    return TurnResult(checkpoint="", summary="")
