"""The state of a delivery as one of its turns began, rebuilt from history alone."""

from __future__ import annotations

from typing import Any

from perdure.client.history import ActivityRecord, DeliveryHistory
from perdure.client.steps import steps_of
from perdure.client.turns import TurnRecord
from perdure.models import fold
from perdure.models.decisions import DecisionRecord, Gate, GateVerdict, UserMessage
from perdure.models.errors import BadInput
from perdure.models.phases import Step
from perdure.models.request import ResumePoint
from perdure.models.rules.gates import gate_question
from perdure.models.rules.specialists import has_landed_task
from perdure.models.state import DeliveryState, parse_resume_state
from perdure.models.steps import FIXES


def state_before(past: DeliveryHistory, turn: TurnRecord) -> DeliveryState:
    """Build a delivery's state as a turn began, from its run's history, for another run that begins with that turn.

    Messages from people that no turn has read are left out, except answers to what the agent had asked. Raises BadInput
    where nothing was prepared before that turn.
    """
    resume = past.request.get("resume")
    state = parse_resume_state(ResumePoint.model_validate(resume)) if resume else DeliveryState()
    name = turn.step, turn.attempt, turn.turn
    turn_activity = [act for act in past.activities if (act.activity, max(act.attempt, 1), act.turn) == name][-1]
    before = [
        act
        for act in past.activities
        if act.ended is not None and act.ended <= turn_activity.scheduled and act is not turn_activity
    ]
    for act in before:
        if act.result is not None:
            _apply_result(state, act, bool(past.request.get("branch")))
    # A step that was in the middle is recorded as done: what follows has another record.
    finished_steps = [
        record.model_copy(update={"status": "done"} if record.status == "running" else {})
        for record in steps_of(before)
    ]
    if state.prepared is None:
        raise BadInput("nothing is prepared before that turn", where=turn.place)
    messages = tuple(UserMessage.model_validate(record) for record in turn_activity.input.get("messages") or ())
    approved = state.plan and turn.step != Step.PLAN and Gate.PLAN in state.prepared.gates  # or it had not begun
    decided = (
        {f"{Gate.PLAN}:{gate_question(Gate.PLAN, state)[0]}": DecisionRecord(verdict=GateVerdict.APPROVED)}
        if approved
        else {}
    )
    overrides: dict[str, Any] = {
        "checkpoint": str(turn_activity.input.get("checkpoint") or state.checkpoint),
        "resume_at": state.resume_at if turn.turn > 1 else None,
        "outcome": None,
        "plan": "" if turn.step == Step.PLAN else state.plan,
        "decided": decided,
        "pending_messages": tuple(
            record for record in messages if record.question
        ),  # answers to what its agent has asked
        "tasks": state.tasks if has_landed_task(state.tasks) else (),
        "steps": [*state.steps, *finished_steps],
        "pull_request": None,
        "question": None,
        "question_id": "",
    }
    if terms := turn_activity.input.get("policy"):  # of a turn with another model than it was prepared for
        state.prepared = state.prepared.model_copy(update={"contract": str(terms)})
    return state.for_retry().model_copy(update=overrides)


def _apply_result(state: DeliveryState, act: ActivityRecord, existing_branch: bool) -> None:
    """Apply an activity's result to the state, and what the workflow itself records of it.

    `existing_branch`: the delivery works on a branch that was there before it.
    """
    state.pending_messages = tuple(UserMessage.model_validate(message) for message in act.input.get("messages") or ())
    fold.apply_result(state, act.activity, act.input, act.result or {}, branch=existing_branch)
    if act.activity == "check_plan":
        state.edits += 1
    elif act.activity == "take_tasks":
        state.built = state.built or has_landed_task(state.tasks)
    elif act.activity == Step.COMMIT:
        step = str(act.input.get("step"))
        state.built, state.documented = state.built or step == Step.IMPLEMENT, state.documented or step == Step.DOCUMENT
        state.fix_counts = {**state.fix_counts, step: act.attempt} if step in FIXES else state.fix_counts
