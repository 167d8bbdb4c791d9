"""The way back to a turn of a delivery, by Temporal's reset."""

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

from perdure.client.aiming import aim, not_of_a_backlog
from perdure.client.delivery import Delivery
from perdure.client.history import Past, read_run, runs_of
from perdure.client.standing import state_before
from perdure.client.submit import start
from perdure.client.turns import Turn, find, turn_at, turns_in
from perdure.client.view import Described
from perdure.models.decisions import Rewind, Said, Say, understood
from perdure.models.errors import BadInput, PerdureError
from perdure.models.forking import Aimed
from perdure.models.ids import short_run
from perdure.models.request import ResumePoint
from perdure.models.state import parse_resume


@dataclass(frozen=True)
class Rewound:
    """A rewind that has happened: the delivery goes on in run `run_id`, and takes the turn `place` anew.

    before  it had happened before this call: nothing was done now
    """

    place: str
    run_id: str
    before: bool = False


async def rewind(
    delivery: Delivery,
    to: str,
    *,
    say: str = "",
    model: str = "",
    agent: str = "",
    by: str = "",
    again: bool = False,
) -> Rewound:
    """Go back to before a turn: it is taken anew, from the files and the conversation it began with.

    Earlier turns are not paid again; what was said and held before is forgotten, `say` are words for the turn itself;
    `model`, `agent`: for all steps from there on. One that has ended goes on in a new run; where it has a pull request,
    that one is brought up to date. The run that is left begins no further turn once it has the signal; where the reset
    then does not come, it goes on after a minute and says so. The same rewind sent twice happens once, also where the
    first sender died; `again`: one more all the same.
    BadInput for a turn that is not there, one whose checkpoint is damaged, and for backlogs and their deliveries.
    """
    described = await delivery.describe()
    runs = await runs_of(delivery.client, delivery.id, described.run_id)
    not_of_a_backlog(delivery.id, runs)
    if (forked := runs[-1][1].request.get("forked")) and forked.get("attempt"):
        fix = f"perdure rewind {forked.get('delivery')} goes back behind all of them; a fork of it stands alone"
        raise BadInput("an attempt is begun and chosen by its delivery", where=delivery.id, fix=fix)
    wanted = {"text": say, **({"model": model} if model else {}), **({"agent": agent} if agent else {})}
    if not again and (place := _made_by(runs, to, wanted)):
        return Rewound(place, described.run_id, before=True)
    turn = find(turns_in(runs), to)
    aimed = await aim(delivery, turn, model=model, agent=agent, keep=True)
    name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{described.run_id} {turn.run} {turn.task} {say} {model} {agent}"))
    if not described.running:
        return await _again(
            delivery, described, next(past for run, past in runs if run == turn.run), turn, wanted, aimed
        )
    told: dict[str, Any] = {**wanted, "from_run": described.run_id, "to": turn.place, "id": name, "since": turn.began}
    if aimed is not None and aimed.contract != turn.terms:
        told |= {"policy": aimed.contract, "models": aimed.models}
    signal = understood(Rewind, told).model_dump(mode="json", exclude_defaults=True)
    await _announce(delivery, described.run_id, signal)
    run = await _reset(delivery, turn, name, by)
    # Of two in the same moment the run hears the words that were said last: it has to take their turn, too.
    said = [one for one in (await read_run(delivery.client, delivery.id, run)).rewinds if one.get("id")]
    if said and said[-1]["id"] != name and said[-1].get("from_run") == described.run_id:
        stands = find(turns_in(runs), str(said[-1]["to"]))
        await _reset(delivery, stands, str(said[-1]["id"]), "")
        what = f"another rewind, to {stands.place}, was asked for in the same moment, and stands"
        raise PerdureError(what, where=delivery.id, fix="look at it (perdure watch), then rewind it again")
    return Rewound(turn.place, run)


async def _reset(delivery: Delivery, turn: Turn, name: str, by: str) -> str:
    """The run that takes the turn anew. `name`: of the rewind; the same once more makes no other run."""
    asked = ResetWorkflowExecutionRequest(
        namespace=delivery.client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=delivery.id, run_id=turn.run),
        reason=f"rewound to {turn.place}" + (f" by {by}" if by else ""),
        workflow_task_finish_event_id=turn.task,
        request_id=name,
        identity=delivery.client.identity,
    )
    try:
        return (await delivery.client.workflow_service.reset_workflow_execution(asked)).run_id
    except RPCError as error:
        raise PerdureError(f"it was not rewound: {error.message}", where=delivery.id, fix="try it again") from None


def _made_by(runs: Sequence[tuple[str, Past]], to: str, wanted: dict[str, str]) -> str:
    """The place that the newest run was rewound to, where it was made by just such a rewind; else empty."""
    run, past = runs[-1]
    resume = past.request.get("resume")
    told = past.rewinds[-1] if past.rewinds else {}
    if not told and isinstance(resume, dict) and resume.get("rewound"):
        told = {"to": resume["rewound"], "from_run": resume.get("run_id"), **(resume.get("asked") or {})}
    same = all((told.get(name) or "") == wanted.get(name, "") for name in ("text", "model", "agent"))
    if not same or told.get("from_run") in (None, run):
        return ""
    place = str(told.get("to") or "")
    again = turn_at(place)  # its turn may not have begun anew yet: without a worker none does
    return place if find([*turns_in(runs), *([again] if again else [])], to).place == place else ""


async def _announce(delivery: Delivery, run: str, signal: dict[str, Any]) -> None:
    """Say it to the run that is to be left, and to no other: it begins no further turn."""
    try:
        await delivery.client.get_workflow_handle(delivery.id, run_id=run).signal("rewind", signal)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        raise PerdureError("it went on in another run meanwhile", where=delivery.id, fix="try it again") from None


async def _again(
    delivery: Delivery, described: Described, past: Past, turn: Turn, wanted: dict[str, str], aimed: Aimed | None
) -> Rewound:
    """Another run of one that has ended, as `retry` begins one: a closed run hears nothing, and a reset of it would
    begin the turn before anybody could say a word."""
    state = state_before(past, turn)
    if described.resume is not None:
        ended = parse_resume(described.resume)
        added = ("extra_usd", "extra_tokens", "extra_time_s", "unpriced", "paid")
        state = state.model_copy(update={name: getattr(ended, name) for name in added})
    if wanted["text"]:
        state.said = (*state.said, Said(id="rewind", text=understood(Say, {"text": wanted["text"]}).text))
    if aimed is not None and state.prepared is not None:
        terms = {"contract": aimed.contract, "models": aimed.models or state.prepared.models}
        state.prepared = state.prepared.model_copy(update=terms)
    state.sample = short_run(described.run_id)  # replies to the same words are bought anew
    left = ResumePoint(
        run_id=turn.run,
        state=state.model_dump(mode="json", exclude_defaults=True),
        rewound=turn.place,
        asked=wanted,
    )
    request = {**past.request, "resume": left.model_dump(mode="json", exclude_defaults=True)}
    try:
        await start(delivery.client, delivery.id, request, WorkflowIDReusePolicy.ALLOW_DUPLICATE)
    except WorkflowAlreadyStartedError:
        raise PerdureError("it runs again meanwhile", where=delivery.id, fix="try it again") from None
    return Rewound(turn.place, (await delivery.describe()).run_id)
