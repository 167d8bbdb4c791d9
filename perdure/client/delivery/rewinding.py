"""Going back to one of a delivery's turns: a rewind, by Temporal's reset, or a fork, a sibling that goes on from there
in its own way."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.delivery.handle import Delivery
from perdure.client.delivery.turns import (
    TurnRecord,
    find_turn,
    parse_turn_place,
    require_no_backlog,
    resolve_turn_contract,
    state_before,
    turns_of_runs,
)
from perdure.client.history.fold import RunHistory
from perdure.client.history.runs import read_run, read_runs
from perdure.client.server.view import RunDescription
from perdure.client.submit import start_workflow
from perdure.models.base import read_as
from perdure.models.delivery.decisions import Rewind, Say, UserMessage, parse_input
from perdure.models.delivery.request import ForkedFrom, ResumePoint, RewindTargetResult, parse_request, request_proof
from perdure.models.delivery.result import Receipt
from perdure.models.delivery.state import DeliveryState, SpendingState, parse_resume_state
from perdure.models.errors import BadInput, InvalidRequest, PerdureError
from perdure.models.ids import delivery_key, digest, short_run_id
from perdure.models.rules.admission import id_refusal
from perdure.text import shell_word


@dataclass(frozen=True)
class RewindResult:
    """A rewind that has happened: the delivery goes on in run `run_id`, and takes the turn `place` again.

    already_done  it had happened before this call: nothing was done now
    """

    place: str
    run_id: str
    already_done: bool = False


async def rewind(
    delivery: Delivery,
    to: str,
    *,
    say: str = "",
    model: str = "",
    agent: str = "",
    by: str = "",
    repeat: bool = False,
) -> RewindResult:
    """Reset a delivery to before a turn: that is taken again, from the files and the conversation it began with.

    `to` names the turn (`implement:4`). Earlier turns are not paid again; messages and holds from before are forgotten.
    `say` is a message for the turn itself; `model` and `agent` hold for all steps from there on; `by` names who does
    it, for the record. A running delivery is told by signal `rewind` first and begins no further turn; when the reset
    then does not come, it goes on after a minute and says so. One that has ended goes on in a new run; when it has a
    pull request, that is brought up to date. The same rewind sent twice happens once, also when the first sender died
    (`already_done` in the result); with `repeat` it happens again. Raises BadInput when there is no such delivery or
    turn, its checkpoint is damaged, the agent cannot take it, or the delivery is an attempt, a backlog or a backlog's
    delivery; InvalidRequest when `say`, `model` or `agent` are not valid; HostSilent when a new model or agent was
    named and the host does not answer; PerdureError when another rewind of the same moment stands, the delivery went on
    in another run meanwhile, or the server refuses.
    """
    described = await delivery.describe()
    runs = await read_runs(delivery.client, delivery.id, described.run_id)
    require_no_backlog(delivery.id, runs)
    if (origin := runs[-1].request.get("forked")) and origin.get("attempt"):
        command = f"perdure rewind {shell_word(origin.get('delivery'))}"
        fix = f"{command} goes back behind all of them; a fork of it stands alone"
        raise BadInput("an attempt is begun and chosen by its delivery", where=delivery.id, fix=fix)
    changes = {"text": say, **({"model": model} if model else {}), **({"agent": agent} if agent else {})}
    if not repeat and (place := _find_same_rewind(runs, to, changes)):
        return RewindResult(place, described.run_id, already_done=True)
    turn = find_turn(turns_of_runs(runs), to)
    new_terms = await resolve_turn_contract(delivery, turn, model=model, agent=agent, keep=True)
    request_id = str(
        uuid.uuid5(uuid.NAMESPACE_OID, f"{described.run_id} {turn.run_id} {turn.task} {say} {model} {agent}")
    )
    if not described.running:
        return await _restart_from_turn(
            delivery,
            described,
            next(run_history for run_history in runs if run_history.run_id == turn.run_id),
            turn,
            changes,
            new_terms,
        )
    message: dict[str, Any] = {
        **changes,
        "from_run": described.run_id,
        "to": turn.place,
        "id": request_id,
        "since": turn.began,
    }
    if new_terms is not None and new_terms.contract != turn.terms:
        message |= {"policy": new_terms.contract, "models": new_terms.models, "unpriced": new_terms.unpriced}
    signal = parse_input(Rewind, message).model_dump(mode="json", exclude_defaults=True)
    await _signal_rewind(delivery, described.run_id, signal)
    run_id = await _reset_to_turn(delivery, turn, request_id, by)
    # Of two rewinds in the same moment the new run hears the message that was sent last: it has to take that one's
    # turn, too.
    rewinds = [
        recorded for recorded in (await read_run(delivery.client, delivery.id, run_id)).rewinds if recorded.get("id")
    ]
    if rewinds and rewinds[-1]["id"] != request_id and rewinds[-1].get("from_run") == described.run_id:
        winner = find_turn(turns_of_runs(runs), str(rewinds[-1]["to"]))
        await _reset_to_turn(delivery, winner, str(rewinds[-1]["id"]), "")
        what = f"another rewind, to {winner.place}, was asked for in the same moment, and stands"
        raise PerdureError(what, where=delivery.id, fix="look at it (perdure watch), then rewind it again")
    return RewindResult(turn.place, run_id)


async def _reset_to_turn(delivery: Delivery, turn: TurnRecord, request_id: str, by: str) -> str:
    """Reset the delivery's run to before a turn, and return the id of the run that takes it again.

    `request_id` is the rewind's: the same once more makes no other run. Raises PerdureError when the server refuses.
    """
    request = ResetWorkflowExecutionRequest(
        namespace=delivery.client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=delivery.id, run_id=turn.run_id),
        reason=f"rewound to {turn.place}" + (f" by {by}" if by else ""),
        workflow_task_finish_event_id=turn.task,
        request_id=request_id,
        identity=delivery.client.identity,
    )
    try:
        return (await delivery.client.workflow_service.reset_workflow_execution(request)).run_id
    except RPCError as error:
        raise PerdureError(f"it was not rewound: {error.message}", where=delivery.id, fix="try it again") from None


def _find_same_rewind(runs: Sequence[RunHistory], to: str, changes: dict[str, str]) -> str:
    """Return the place of the turn that the newest run was rewound to, when the rewind asked for is the one that made
    this run.

    `to` and `changes` (text, model, agent) are those asked for. Empty when the newest run was not made by a rewind, or
    by one to another turn or with other changes.
    """
    newest = runs[-1]
    resume = newest.resume
    last_rewind = newest.rewinds[-1] if newest.rewinds else {}
    if not last_rewind and resume.get("rewound"):
        last_rewind = {"to": resume["rewound"], "from_run": resume.get("run_id"), **(resume.get("asked") or {})}
    same = all((last_rewind.get(name) or "") == changes.get(name, "") for name in ("text", "model", "agent"))
    if not same or last_rewind.get("from_run") in (None, newest.run_id):
        return ""
    place = str(last_rewind.get("to") or "")
    restarted_turn = parse_turn_place(place)  # The turn may not have begun again yet: without a worker none does.
    return (
        place
        if find_turn([*turns_of_runs(runs), *([restarted_turn] if restarted_turn else [])], to).place == place
        else ""
    )


async def _signal_rewind(delivery: Delivery, run_id: str, signal: dict[str, Any]) -> None:
    """Send signal `rewind` to the run that is to be left, which then begins no further turn.

    Raises PerdureError when that run has ended; any other RPCError as it is.
    """
    try:
        await delivery.client.get_workflow_handle(delivery.id, run_id=run_id).signal("rewind", signal)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        raise PerdureError("it went on in another run meanwhile", where=delivery.id, fix="try it again") from None


async def _restart_from_turn(
    delivery: Delivery,
    described: RunDescription,
    run_history: RunHistory,
    turn: TurnRecord,
    changes: dict[str, str],
    new_terms: RewindTargetResult | None,
) -> RewindResult:
    """Start another run of an ended delivery from before a turn, as `retry` starts one, and return the rewind.

    A signal or a reset would not do: a closed run takes no signal, and a reset would begin the turn without the
    message. The new run's state is that before the turn, with the message in `changes` and the contract and models of
    `new_terms`; what was added to budgets and paid so far stays. Raises PerdureError when the delivery runs again
    meanwhile.
    """
    state = state_before(run_history, turn)
    if described.resume is not None:
        last_state = parse_resume_state(described.resume)
        counted = ("extra_usd", "extra_tokens", "extra_time_s", "unpriced", "unpriced_models")
        state.budget = state.budget.model_copy(update={name: getattr(last_state.budget, name) for name in counted})
        state.spending.total_usage = last_state.spending.total_usage
    if changes["text"]:
        state.messages.pending = (
            *state.messages.pending,
            UserMessage(id="rewind", text=parse_input(Say, {"text": changes["text"]}).text),
        )
    if new_terms is not None and state.prepared is not None:
        models = new_terms.models or state.prepared.agents.models
        agents = {"models": models, "unpriced": new_terms.unpriced}
        state.prepared = state.prepared.with_changes({"agents": agents}, contract=new_terms.contract)
    state.turns.sample = short_run_id(described.run_id)  # replies to the same words are bought anew
    resume_point = ResumePoint(
        run_id=turn.run_id,
        state=state.model_dump(mode="json", exclude_defaults=True),
        rewound=turn.place,
        rewind_options=changes,
    )
    request = {**run_history.request, "resume": resume_point.model_dump(mode="json", exclude_defaults=True)}
    try:
        await start_workflow(delivery.client, delivery.id, request, WorkflowIDReusePolicy.ALLOW_DUPLICATE)
    except WorkflowAlreadyStartedError:
        raise PerdureError("it runs again meanwhile", where=delivery.id, fix="try it again") from None
    return RewindResult(turn.place, (await delivery.describe()).run_id)


_ID_CHARS = 69
"""Characters of the other delivery's id in a fork's id, which with what follows still is a valid one."""


def _forget_spending(state: DeliveryState) -> None:
    """Reset in the state what a fork does not take over: it has paid for nothing, survived nothing and heard
    nothing."""
    state.spending, state.receipt, state.steps, state.notes, state.turns.sample = SpendingState(), Receipt(), [], (), ""
    state.children.usd, state.children.ids, state.children.budget_raises = 0.0, (), 0
    state.budget.extra_usd, state.budget.extra_tokens, state.budget.extra_time_s = 0.0, 0, 0.0
    state.budget.unpriced, state.budget.unpriced_models = False, ()
    state.budget.breaches = state.gates.deaths = state.messages.count = 0
    state.messages.ids = ()


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
    for it; `model` and `agent` hold for all steps from there on. The same call twice gives one fork (`existed` in the
    result), unless `id` names another. `key` is that of the home whose worker carries it out, when the repository is a
    path on that host. Raises BadInput when there is no such delivery or turn, the turn's checkpoint is damaged or the
    agent cannot take it, for a backlog or one of its items, for a delivery on a branch that existed before it, and when
    `id` is another delivery's; InvalidRequest when `say`, `model` or `agent` are not valid.
    """
    newest = (await delivery.describe()).run_id
    request = await delivery.request(newest)
    runs = await read_runs(delivery.client, delivery.id, newest)
    require_no_backlog(delivery.id, runs)
    all_turns = turns_of_runs(runs)
    turn = find_turn(all_turns, place, where="--at")
    if request.get("branch"):
        fix = "perdure rewind takes a turn of it anew"
        raise BadInput("it works on a branch that was there before: two cannot", where=delivery.id, fix=fix)
    await resolve_turn_contract(delivery, turn, model=model, agent=agent)
    run_history = next(run_history for run_history in runs if run_history.run_id == turn.run_id)
    state = state_before(run_history, turn)
    assert state.prepared is not None
    origin = _fork_origin(delivery.id, request, all_turns[: all_turns.index(turn)], turn, state)
    _forget_spending(state)
    if say:
        state.messages.pending = (
            *state.messages.pending,
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
    if reason := id_refusal(id):
        raise InvalidRequest(reason)
    if key is not None:
        raw["proof"] = request_proof(key, id, raw)
    sibling = Delivery(delivery.client, id)
    try:
        await start_workflow(delivery.client, id, raw, WorkflowIDReusePolicy.REJECT_DUPLICATE)
    except WorkflowAlreadyStartedError:
        if read_as(ForkedFrom, (await sibling.request()).get("forked")) != origin:
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
    own_origin = read_as(ForkedFrom, request.get("forked"))
    if own_origin and own_origin.attempt:
        own_origin = None  # the plan before it is its delivery's, who counts it
    costs = [earlier_turn.cost_usd for earlier_turn in earlier_turns] + ([own_origin.usd] if own_origin else [])
    return ForkedFrom(
        delivery=id,
        at=turn.place,
        checkpoint=state.turns.checkpoint,
        queue=state.prepared.queue,
        head=state.building.head,
        turns=len(earlier_turns) + (own_origin.turns if own_origin else 0),
        usd=None if None in costs else round(sum(cost or 0.0 for cost in costs), 6),
    )
