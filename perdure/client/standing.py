"""The state of a delivery as one of its turns began, from history alone."""

from __future__ import annotations

from typing import Any

from perdure.client.history import Act, Past
from perdure.client.steps import steps_of
from perdure.client.turns import Turn
from perdure.models import fold
from perdure.models.decisions import Decided, Gate, Said, Verdict
from perdure.models.errors import BadInput
from perdure.models.phases import Step
from perdure.models.request import ResumePoint
from perdure.models.rules.gates import put
from perdure.models.rules.specialists import built
from perdure.models.state import DeliveryState, parse_resume
from perdure.models.steps import FIXES


def state_before(past: Past, turn: Turn) -> DeliveryState:
    """A delivery's state as a turn began, from the history of its run, so that another run can begin with that turn.

    What people said and no turn has read is not in it, but for answers to what the agent had asked.
    BadInput where nothing was prepared before.
    """
    resume = past.request.get("resume")
    state = parse_resume(ResumePoint.model_validate(resume)) if resume else DeliveryState()
    name = turn.step, turn.attempt, turn.turn
    here = [act for act in past.acts if (act.activity, max(act.attempt, 1), act.turn) == name][-1]
    before = [act for act in past.acts if act.ended is not None and act.ended <= here.scheduled and act is not here]
    for act in before:
        if act.result is not None:
            _take(state, act, bool(past.request.get("branch")))
    # A step that was in the middle is over: what follows is another record of it.
    told = [one.model_copy(update={"status": "done"} if one.status == "running" else {}) for one in steps_of(before)]
    if state.prepared is None:
        raise BadInput("nothing is prepared before that turn", where=turn.place)
    said = tuple(Said.model_validate(one) for one in here.given.get("said") or ())
    approved = state.plan and turn.step != Step.PLAN and Gate.PLAN in state.prepared.gates  # or it had not begun
    decided = {f"{Gate.PLAN}:{put(Gate.PLAN, state)[0]}": Decided(verdict=Verdict.APPROVED)} if approved else {}
    afresh: dict[str, Any] = {
        "checkpoint": str(here.given.get("checkpoint") or state.checkpoint),
        "at": state.at if turn.turn > 1 else None,
        "outcome": None,
        "plan": "" if turn.step == Step.PLAN else state.plan,
        "decided": decided,
        "said": tuple(one for one in said if one.about),  # answers to what its agent has asked
        "tasks": state.tasks if built(state.tasks) else (),
        "steps": [*state.steps, *told],
        "pull_request": None,
        "question": None,
        "question_of": "",
    }
    if terms := here.given.get("policy"):  # of a turn with another model than it was prepared for
        state.prepared = state.prepared.model_copy(update={"contract": str(terms)})
    return state.again().model_copy(update=afresh)


def _take(state: DeliveryState, act: Act, branch: bool) -> None:
    """Take in a result, and what the workflow itself makes of it."""
    state.said = tuple(Said.model_validate(one) for one in act.given.get("said") or ())
    fold.take(state, act.activity, act.given, act.result or {}, branch=branch)
    if act.activity == "check_plan":
        state.edits += 1
    elif act.activity == "take_tasks":
        state.built = state.built or built(state.tasks)
    elif act.activity == Step.COMMIT:
        step = str(act.given.get("step"))
        state.built, state.documented = state.built or step == Step.IMPLEMENT, state.documented or step == Step.DOCUMENT
        state.fixed = {**state.fixed, step: act.attempt} if step in FIXES else state.fixed
