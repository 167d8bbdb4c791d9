"""A delivery's state, steps and turns, told again from its history alone; pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from perdure.cli.look.report.facts import Death, Turn, Waited
from perdure.models.ledger import Usage
from perdure.models.phases import Step
from perdure.models.publishing import Shipped
from perdure.models.report import Severity
from perdure.models.result import StepRecord, TestsStatus
from perdure.models.state import DeliveryState
from perdure.models.steps import AGENTIC
from perdure.models.turn import Ending, TurnResult
from perdure.models.work import Captured, Closed, Committed, Inspected, Prepared, TestVerdict

if TYPE_CHECKING:
    from perdure.client.history import Act, Past

_STAMP = "%Y-%m-%dT%H:%M:%SZ"
_SLACK = timedelta(seconds=2)
"""Records of steps have whole seconds, and an activity is scheduled a moment after its step began."""


def state_of(past: Past) -> DeliveryState:
    """As far as history tells it: what the newest run began from, and what its activities gave since."""
    resume = past.request.get("resume")
    try:
        state = DeliveryState.model_validate(resume.get("state", {}) if isinstance(resume, dict) else {})
    except ValidationError:
        state = DeliveryState()
    state.usage = Usage()  # every turn of every run is counted below
    for act in past.acts:
        if act.result is not None:
            try:
                _apply(state, act, act.result)
            except ValidationError:
                continue  # of a release that this one does not know
    return state


def _apply(state: DeliveryState, act: Act, result: dict[str, Any]) -> None:
    match act.activity:
        case Step.PREPARE:
            state.prepared = Prepared.model_validate(result)
            state.plan = state.plan or state.prepared.plan
        case Step.COMMIT:
            state.head = Committed.model_validate(result).commit or state.head
        case Step.RUN_TESTS:
            state.tests = TestVerdict.model_validate(result)
        case "inspect_change":
            state.found, state.inspected = Inspected.model_validate(result), str(act.given.get("commit", ""))
        case "capture_pages":
            state.screenshots = Captured.model_validate(result).screenshots or state.screenshots
        case Step.OPEN_PULL_REQUEST:
            state.pull_request = Shipped.model_validate(result).pull_request or state.pull_request
        case "close":
            closed = Closed.model_validate(result)
            state.receipt, state.spend = closed.receipt, closed.spend
        case step if step in AGENTIC:
            _apply_turn(state, Step(step), TurnResult.model_validate(result))


def _apply_turn(state: DeliveryState, step: Step, result: TurnResult) -> None:
    state.checkpoint, state.spend = result.checkpoint, result.spend
    state.usage += result.usage
    outcome = result.outcome
    if outcome is None:
        return
    if step is Step.CLASSIFY:
        state.kind = str(outcome.data.get("kind", ""))
    elif step is Step.PLAN:
        state.plan, state.title = outcome.artifact, str(outcome.data.get("title", ""))
    elif step is Step.REVIEW:
        state.review = outcome.artifact
        state.review_result = state.found.with_review(outcome.data)


def steps_of(acts: Iterable[Act]) -> list[StepRecord]:
    """The steps, where no worker can be asked for its own records."""
    records: list[StepRecord] = []
    first: list[Act] = []
    found = Inspected()
    for act in acts:
        if act.activity == "inspect_change" and act.result is not None:
            found = _inspected(act.result)
        if act.activity not in tuple(Step):
            continue
        attempt = max(act.attempt, 1)
        # Turns of one step, or a forge that was tried again.
        if not (records and (records[-1].step, records[-1].attempt) == (act.activity, attempt)):
            records.append(StepRecord(step=act.activity, attempt=attempt, started_at=act.scheduled.strftime(_STAMP)))
            first.append(act)
        records[-1] = records[-1].model_copy(update=_since(records[-1], first[-1], act, found))
    return records


def _inspected(result: dict[str, Any]) -> Inspected:
    try:
        return Inspected.model_validate(result)
    except ValidationError:  # of a release that this one does not know
        return Inspected()


def _since(record: StepRecord, first: Act, act: Act, found: Inspected) -> dict[str, Any]:
    """Return the fields of its step's record that one more activity changes. `found`: by the engine before it."""
    if act.ended is None:
        return {"status": "running", "duration_s": None}
    changes: dict[str, Any] = {"duration_s": round((act.ended - first.scheduled).total_seconds(), 1)}
    if act.result is None:
        return changes | {
            "status": "cancelled" if act.failure == "cancelled" else "failed",
            "summary": act.failure[:100],
        }
    red = act.result.get("status") == TestsStatus.RED
    changes |= {"status": "failed" if red else "done", "summary": str(act.result.get("summary", ""))}
    if act.activity == Step.COMMIT:
        changes["commit"] = act.result.get("commit")
    if act.activity in AGENTIC:
        turn, outcome = _turn(act), act.result.get("outcome")
        known = record.cost_usd is not None and turn.cost_usd is not None
        changes["turns"] = record.turns + 1
        changes["cost_usd"] = round((record.cost_usd or 0) + (turn.cost_usd or 0), 6) if known else None
        changes["summary"] = str(outcome.get("summary", "")) if isinstance(outcome, dict) else ""
        changes["status"] = _ended(outcome)
        if act.activity == Step.REVIEW and changes["status"] == "done" and found.blockers:
            changes |= {"status": "failed", "summary": f"{changes['summary']}; {found.summary}"}
    return changes


def _ended(outcome: object) -> str:
    """Return a step's state after a turn; the outcome of one that is done may be empty in history, but is there."""
    if not isinstance(outcome, dict):
        return "running"
    found = outcome.get("data")
    blocked = isinstance(found, dict) and bool(found.get(Severity.BLOCKER))
    return "failed" if blocked or outcome.get("ending", Ending.DONE) != Ending.DONE else "done"


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
