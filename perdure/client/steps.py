"""The steps of a delivery as its history tells them: for whom no worker can be asked for its own records."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from perdure.client.history import Act
from perdure.models import fold
from perdure.models.phases import Step
from perdure.models.result import StepRecord
from perdure.models.state import DeliveryState
from perdure.models.steps import AGENTIC
from perdure.models.turn import Ending, TurnResult

_STAMP = "%Y-%m-%dT%H:%M:%SZ"


def took(state: DeliveryState, act: Act, *, branch: bool = False) -> None:
    """Take in what it gave, where it gave anything that this release knows."""
    if act.result is not None:
        with suppress(ValidationError):
            fold.take(state, act.activity, act.given, act.result, branch=branch)


def steps_of(acts: Iterable[Act]) -> list[StepRecord]:
    """The steps that these activities belong to, in their order."""
    records: list[StepRecord] = []
    first: list[Act] = []
    state = DeliveryState()
    for act in acts:
        took(state, act)
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
        cost, outcome = given_by(act).usage.cost_usd, act.result.get("outcome")
        known = record.cost_usd is not None and cost is not None
        changes["turns"] = record.turns + 1
        changes["cost_usd"] = round((record.cost_usd or 0) + (cost or 0), 6) if known else None
        if not isinstance(outcome, dict):
            return changes | {"status": "running", "summary": ""}
        changes["summary"] = str(outcome.get("summary", ""))
        if outcome.get("ending", Ending.DONE) != Ending.DONE:
            return changes | {"status": "failed"}
    if (words := fold.verdict(state, act.activity, changes["summary"])) is not None:
        changes |= {"status": "failed", "summary": words}
    return changes


def given_by(act: Act) -> TurnResult:
    """The result of a turn; an empty one before it has any, and of a release that this one does not know."""
    with suppress(ValidationError):
        return TurnResult.model_validate(act.result or {"checkpoint": "", "summary": ""})
    return TurnResult(checkpoint="", summary="")
