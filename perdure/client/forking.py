"""A sibling of a delivery: it goes on from one of its turns in its own way, and the delivery stays as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from perdure.client.delivery import Delivery
from perdure.client.history import Act, Past
from perdure.client.rewinding import Turn, find, runs_of, turns_in
from perdure.client.submit import start
from perdure.models import fold
from perdure.models.decisions import Decided, Gate, Said, Say, Verdict, understood
from perdure.models.errors import BadInput
from perdure.models.forking import ForkedFrom
from perdure.models.ids import delivery_key, digest
from perdure.models.ledger import Spend, Usage
from perdure.models.phases import Step
from perdure.models.proof import proof
from perdure.models.request import ResumePoint, parse_request
from perdure.models.result import Receipt
from perdure.models.rules.gates import put
from perdure.models.rules.specialists import built
from perdure.models.state import DeliveryState, parse_resume
from perdure.models.steps import FIXES

_ID_CHARS = 69
"""Of the other delivery's id, in a fork's: with what follows it still is one."""


@dataclass(frozen=True)
class Fork:
    """A sibling. `began`: before which turn of the other delivery; `before`: it was there before this call."""

    delivery: Delivery
    began: ForkedFrom
    before: bool = False


async def fork(
    delivery: Delivery,
    at: str,
    *,
    say: str = "",
    model: str = "",
    agent: str = "",
    id: str = "",
    key: bytes | None = None,
) -> Fork:
    """Start a sibling before a turn of a delivery, running or ended: own id, branch, workspace and spending.

    It has the files and the conversation which that turn began with, and `say` as words for it; `model`, `agent`: for
    all steps from there on. The same call twice is one sibling, unless `id` names another. `key`: of the home whose
    worker carries it out, where the repository is a path of that host.
    BadInput for a turn that is not there, one of a backlog's items, and one on a branch that was there before.
    """
    request = await delivery.request()
    runs = await runs_of(delivery.client, delivery.id, (await delivery.describe()).run_id)
    known = turns_in(runs)
    turn = find(known, at, where="--at")
    if request.get("landing"):
        raise BadInput("an item of a backlog has no sibling: its place is one change of its branch", where=delivery.id)
    if request.get("branch"):
        fix = "perdure rewind takes a turn of it anew"
        raise BadInput("it works on a branch that was there before: two cannot", where=delivery.id, fix=fix)
    past = next(past for run, past in runs if run == turn.run)
    state = state_before(past, turn)
    assert state.prepared is not None
    began = _began(delivery.id, request, known[: known.index(turn)], turn, state)
    if say:
        state.said = (*state.said, Said(id="fork", text=understood(Say, {"text": say}).text))
    left = ResumePoint(run_id="", state=state.model_dump(mode="json", exclude_defaults=True))
    chosen = {name: value for name, value in (("model", model), ("agent", agent)) if value}
    asked = {name: value for name, value in request.items() if name not in ("proof", "resume", "forked")} | chosen
    sent = parse_request({**asked, "resume": left.model_dump(mode="json"), "forked": began.model_dump(mode="json")})
    raw = sent.model_dump(mode="json", exclude_defaults=True)
    id = id or f"{delivery_key(delivery.id)[:_ID_CHARS]}-fork-{digest(delivery.id, turn.place, say, model, agent)[:4]}"
    if key is not None:
        raw["proof"] = proof(key, id, raw)
    sibling = Delivery(delivery.client, id)
    try:
        await start(delivery.client, id, raw, WorkflowIDReusePolicy.REJECT_DUPLICATE)
    except WorkflowAlreadyStartedError:
        there = (await sibling.request()).get("forked")
        if not there or ForkedFrom.model_validate(there) != began:
            raise BadInput(f"{id} is another delivery", where="--id", fix="choose another name") from None
        return Fork(sibling, began, before=True)
    return Fork(sibling, began)


def _began(id: str, request: dict[str, Any], taken: list[Turn], turn: Turn, state: DeliveryState) -> ForkedFrom:
    assert state.prepared is not None
    older = ForkedFrom.model_validate(request["forked"]) if request.get("forked") else None
    costs = [one.cost_usd for one in taken] + ([older.usd] if older else [])
    return ForkedFrom(
        delivery=id,
        at=turn.place,
        checkpoint=state.checkpoint,
        queue=state.prepared.queue,
        turns=len(taken) + (older.turns if older else 0),
        usd=None if None in costs else round(sum(cost or 0.0 for cost in costs), 6),
    )


def state_before(past: Past, turn: Turn) -> DeliveryState:
    """A delivery's state as a turn began, from the history of its run: what was made is kept, what was paid is not.

    BadInput where the run has not prepared anything.
    """
    resume = past.request.get("resume")
    state = parse_resume(ResumePoint.model_validate(resume)) if resume else DeliveryState()
    here = [act for act in past.acts if (act.activity, max(act.attempt, 1), act.turn) == _name(turn)][-1]
    for act in past.acts:
        if act.result is not None and act.ended is not None and act.ended <= here.scheduled and act is not here:
            _take(state, act, bool(past.request.get("branch")))
    if state.prepared is None:
        raise BadInput("nothing is prepared before that turn", where=turn.place)
    said = tuple(Said.model_validate(one) for one in here.given.get("said") or ())
    decided = {f"{Gate.PLAN}:{put(Gate.PLAN, state)[0]}": Decided(verdict=Verdict.APPROVED)} if state.plan else {}
    afresh: dict[str, Any] = {
        "checkpoint": str(here.given.get("checkpoint") or state.checkpoint),
        "at": state.at if turn.turn > 1 else None,
        "plan": "" if turn.step == Step.PLAN else state.plan,
        "decided": {} if turn.step == Step.PLAN else decided,
        "said": tuple(one for one in said if one.about),  # answers to what its agent has asked
        "tasks": state.tasks if built(state.tasks) else (),
        "usage": Usage(),
        "spend": Spend(),
        "paid": None,
        "receipt": Receipt(),
        "tasks_usd": 0.0,
        "begun": (),
        "extra_usd": 0.0,
        "extra_tokens": 0,
        "extra_time_s": 0.0,
        "breaches": 0,
        "deaths": 0,
        "sample": "",
        "steps": [],
        "notes": (),
        "heard": (),
        "listened": 0,
        "question": None,
        "question_of": "",
        "message": "",
        "pull_request": None,
        "added": 0,
    }
    return state.again().model_copy(update=afresh)


def _name(turn: Turn) -> tuple[str, int, int]:
    return turn.step, turn.attempt, turn.turn


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
