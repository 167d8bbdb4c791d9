"""A sibling of a delivery: it goes on from one of its turns in its own way, and the delivery stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from perdure.client.aiming import aim, not_of_a_backlog
from perdure.client.delivery import Delivery
from perdure.client.history import runs_of
from perdure.client.standing import state_before
from perdure.client.submit import start
from perdure.client.turns import Turn, find, turns_in
from perdure.models.decisions import Said, Say, understood
from perdure.models.errors import BadInput
from perdure.models.forking import ForkedFrom
from perdure.models.ids import delivery_key, digest
from perdure.models.ledger import Spend, Usage
from perdure.models.proof import proof
from perdure.models.request import ResumePoint, parse_request
from perdure.models.result import Receipt
from perdure.models.state import DeliveryState

_ID_CHARS = 69
"""Of the other delivery's id, in a fork's: with what follows it still is one."""


UNPAID: Mapping[str, Any] = MappingProxyType(
    {
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
        "added": 0,
        "steps": [],
        "notes": (),
        "heard": (),
        "listened": 0,
        "sample": "",
    }
)
"""All that a sibling does not take over: it has paid for nothing, survived nothing and heard nothing."""


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
    not_of_a_backlog(delivery.id, runs)
    known = turns_in(runs)
    turn = find(known, at, where="--at")
    if request.get("branch"):
        fix = "perdure rewind takes a turn of it anew"
        raise BadInput("it works on a branch that was there before: two cannot", where=delivery.id, fix=fix)
    await aim(delivery, turn, model=model, agent=agent)
    past = next(past for run, past in runs if run == turn.run)
    state = state_before(past, turn)
    assert state.prepared is not None
    began = _began(delivery.id, request, known[: known.index(turn)], turn, state)
    state = state.model_copy(update=UNPAID)
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
    if older and older.attempt:
        older = None  # the plan before it is its delivery's, who counts it
    costs = [one.cost_usd for one in taken] + ([older.usd] if older else [])
    return ForkedFrom(
        delivery=id,
        at=turn.place,
        checkpoint=state.checkpoint,
        queue=state.prepared.queue,
        head=state.head,
        turns=len(taken) + (older.turns if older else 0),
        usd=None if None in costs else round(sum(cost or 0.0 for cost in costs), 6),
    )
