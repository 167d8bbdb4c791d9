"""Forks: a sibling of a delivery goes on from one of its turns in its own way; the delivery stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from perdure.client.delivery import Delivery
from perdure.client.history import read_runs
from perdure.client.rewind_target import require_no_backlog, resolve_turn_contract
from perdure.client.state_before_turn import state_before
from perdure.client.submit import start_workflow
from perdure.client.turns import TurnRecord, find_turn, turns_of_runs
from perdure.models.decisions import Say, UserMessage, parse_input
from perdure.models.errors import BadInput
from perdure.models.forking import ForkedFrom
from perdure.models.ids import delivery_key, digest
from perdure.models.ledger import Spend, Usage
from perdure.models.proof import request_proof
from perdure.models.request import ResumePoint, parse_request
from perdure.models.result import Receipt
from perdure.models.state import DeliveryState

_ID_CHARS = 69
"""Characters of the other delivery's id in a fork's id, which with what follows still is a valid one."""


UNPAID: Mapping[str, Any] = MappingProxyType(
    {
        "usage": Usage(),
        "spend": Spend(),
        "total_usage": None,
        "receipt": Receipt(),
        "tasks_usd": 0.0,
        "attempt_ids": (),
        "extra_usd": 0.0,
        "extra_tokens": 0,
        "extra_time_s": 0.0,
        "breaches": 0,
        "deaths": 0,
        "budget_raises": 0,
        "steps": [],
        "notes": (),
        "message_ids": (),
        "message_count": 0,
        "sample": "",
    }
)
"""Fields of the state that a fork does not take over: it has paid for nothing, survived nothing and heard nothing."""


@dataclass(frozen=True)
class Fork:
    """A fork: the new delivery and its origin, a turn of another delivery. `existed`: it was there before this call."""

    delivery: Delivery
    origin: ForkedFrom
    existed: bool = False


async def fork(
    delivery: Delivery,
    place: str,
    *,
    say: str = "",
    model: str = "",
    agent: str = "",
    id: str = "",
    key: bytes | None = None,
) -> Fork:
    """Start a fork from before a turn of a delivery, running or ended: with its own id, branch, workspace and spending.

    It has the files and the conversation which that turn, `place` (`implement:4`), began with, and `say` as a message
    for it; `model` and `agent` hold for all steps from there on. The same call twice gives one fork, unless `id` names
    another. `key` is that of the home whose worker carries it out, where the repository is a path on that host.
    Raises BadInput for a turn that there is not, for a backlog or one of its items, for a delivery on a branch that
    existed before it, and where `id` is another delivery's.
    """
    request = await delivery.request()
    runs = await read_runs(delivery.client, delivery.id, (await delivery.describe()).run_id)
    require_no_backlog(delivery.id, runs)
    all_turns = turns_of_runs(runs)
    turn = find_turn(all_turns, place, where="--at")
    if request.get("branch"):
        fix = "perdure rewind takes a turn of it anew"
        raise BadInput("it works on a branch that was there before: two cannot", where=delivery.id, fix=fix)
    await resolve_turn_contract(delivery, turn, model=model, agent=agent)
    past = next(past for run_id, past in runs if run_id == turn.run_id)
    state = state_before(past, turn)
    assert state.prepared is not None
    origin = _fork_origin(delivery.id, request, all_turns[: all_turns.index(turn)], turn, state)
    state = state.model_copy(update=UNPAID)
    if say:
        state.pending_messages = (
            *state.pending_messages,
            UserMessage(id="fork", text=parse_input(Say, {"text": say}).text),
        )
    resume_point = ResumePoint(run_id="", state=state.model_dump(mode="json", exclude_defaults=True))
    overrides = {name: value for name, value in (("model", model), ("agent", agent)) if value}
    fields = {name: value for name, value in request.items() if name not in ("proof", "resume", "forked")} | overrides
    new_request = parse_request(
        {**fields, "resume": resume_point.model_dump(mode="json"), "forked": origin.model_dump(mode="json")}
    )
    raw = new_request.model_dump(mode="json", exclude_defaults=True)
    id = id or f"{delivery_key(delivery.id)[:_ID_CHARS]}-fork-{digest(delivery.id, turn.place, say, model, agent)[:4]}"
    if key is not None:
        raw["proof"] = request_proof(key, id, raw)
    sibling = Delivery(delivery.client, id)
    try:
        await start_workflow(delivery.client, id, raw, WorkflowIDReusePolicy.REJECT_DUPLICATE)
    except WorkflowAlreadyStartedError:
        existing = (await sibling.request()).get("forked")
        if not existing or ForkedFrom.model_validate(existing) != origin:
            raise BadInput(f"{id} is another delivery", where="--id", fix="choose another name") from None
        return Fork(sibling, origin, existed=True)
    return Fork(sibling, origin)


def _fork_origin(
    id: str, request: dict[str, Any], earlier_turns: list[TurnRecord], turn: TurnRecord, state: DeliveryState
) -> ForkedFrom:
    """Return what a fork records of its origin: the turn, its checkpoint and host, and what was paid before it.

    `earlier_turns` are those before `turn`. Where the delivery is a fork itself, the turns and cost before its own
    origin are added. The cost is None where that of any turn is not known.
    """
    assert state.prepared is not None
    own_origin = ForkedFrom.model_validate(request["forked"]) if request.get("forked") else None
    if own_origin and own_origin.attempt:
        own_origin = None  # the plan before it is its delivery's, who counts it
    costs = [earlier_turn.cost_usd for earlier_turn in earlier_turns] + ([own_origin.usd] if own_origin else [])
    return ForkedFrom(
        delivery=id,
        at=turn.place,
        checkpoint=state.checkpoint,
        queue=state.prepared.queue,
        head=state.head,
        turns=len(earlier_turns) + (own_origin.turns if own_origin else 0),
        usd=None if None in costs else round(sum(cost or 0.0 for cost in costs), 6),
    )
