"""The turns of a delivery, and the way back to one of them, by Temporal's reset."""

from __future__ import annotations

import difflib
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.delivery import Delivery
from perdure.client.history import Act, Past, read_run
from perdure.models.decisions import Rewind, understood
from perdure.models.errors import BadInput, PerdureError
from perdure.models.limits import RUNS_READ
from perdure.models.steps import AGENTIC

_PLACE = re.compile(r"(?P<step>[a-z_]+)(\.(?P<attempt>[0-9]{1,4}))?(:(?P<turn>[0-9]{1,6}))?")


@dataclass(frozen=True)
class Turn:
    """One turn as history has it.

    place       `implement:4`, or `fix_tests.2:1` in the second loop of a step: what `perdure rewind --to` takes
    checkpoint  what it ended with; empty: it has not ended
    cost_usd    None: not known, or not ended
    paid        False: an earlier run's, or a turn that a rewind has left behind
    """

    step: str
    attempt: int
    turn: int
    began: datetime
    summary: str = ""
    checkpoint: str = ""
    cost_usd: float | None = None
    run: str = ""
    task: int = 0

    @property
    def place(self) -> str:
        return f"{self.step}.{self.attempt}:{self.turn}" if self.attempt > 1 else f"{self.step}:{self.turn}"


async def turns(delivery: Delivery) -> list[Turn]:
    """The turns that the delivery stands on, oldest first: not those that a rewind has left behind.

    BadInput when there is no such delivery. Raises RPCError.
    """
    return turns_in(await runs_of(delivery.client, delivery.id, (await delivery.describe()).run_id))


def turns_in(runs: Sequence[tuple[str, Past]]) -> list[Turn]:
    found: dict[tuple[str, int, int], Turn] = {}
    for run, past in runs:
        for act in past.acts:
            if act.activity in AGENTIC and act.turn:
                # Where a retry goes on within a step, its turns come after those of the run before.
                found[act.activity, act.attempt, act.turn] = _turn(run, act)
    return list(found.values())


async def runs_of(client: Client, id: str, newest: str) -> list[tuple[str, Past]]:
    """The runs that a delivery goes on from, oldest first."""
    runs: list[tuple[str, Past]] = []
    run = newest
    while run and len(runs) < RUNS_READ:
        try:
            runs.append((run, await read_run(client, id, run)))
        except RPCError as error:
            if not runs or error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise
            break
        resume = runs[-1][1].request.get("resume")
        run = str(resume.get("run_id") or "") if isinstance(resume, dict) else ""
    return list(reversed(runs))


def _turn(run: str, act: Act) -> Turn:
    turn = Turn(act.activity, max(act.attempt, 1), act.turn, act.scheduled, run=run, task=act.task)
    if act.result is None:
        return turn
    cost = (act.result.get("usage") or {}).get("cost_usd")
    told = str(act.result.get("summary", "")).partition(" · ")[2], str(act.result.get("checkpoint", ""))
    return replace(turn, summary=told[0], checkpoint=told[1], cost_usd=cost if isinstance(cost, float | int) else None)


def find(known: Sequence[Turn], text: str, *, where: str = "--to") -> Turn:
    """The turn that `STEP[.ATTEMPT][:TURN]` names: of the newest attempt and the first turn where it does not say.

    BadInput that names the nearest turn when there is none like it.
    """
    places = [turn.place for turn in known]
    wanted = _PLACE.fullmatch(text.strip().lower().replace("-", "_"))
    step = {"build": "implement"}.get(wanted["step"], wanted["step"]) if wanted else ""
    of_step = [turn for turn in known if turn.step == step]
    if wanted is None or not of_step:
        near = difflib.get_close_matches(text, [*dict.fromkeys(turn.step for turn in known), *places], 1, 0.5)
        fix = f"did you mean {near[0]}?" if near else "perdure turns shows them"
        raise BadInput(f"there is no turn {text[:60]!r}", where=where, fix=fix)
    attempt = int(wanted["attempt"] or of_step[-1].attempt)
    number = int(wanted["turn"] or 1)
    found = [turn for turn in of_step if (turn.attempt, turn.turn) == (attempt, number)]
    if not found:
        near_by = min(of_step, key=lambda turn: (abs(turn.attempt - attempt), abs(turn.turn - number)))
        raise BadInput(f"there is no turn {text[:60]!r}", where=where, fix=f"the nearest one is {near_by.place}")
    return found[0]


@dataclass(frozen=True)
class Rewound:
    """A rewind that has happened: the delivery goes on in run `run_id`, and takes the turn `place` anew.

    before  it had happened before this call: nothing was done now
    """

    place: str
    run_id: str
    before: bool = False


async def rewind(delivery: Delivery, to: str, *, say: str = "", by: str = "", again: bool = False) -> Rewound:
    """Go back to before a turn: it is taken anew, from the files and the conversation it began with.

    Earlier turns are not paid again; what was said and held before is forgotten, `say` are words for the turn itself.
    The run that is left begins no further turn once it has the signal; where the reset then does not come, it goes on
    after a minute and says so. The same rewind sent twice happens once, also where the first sender died; `again`: one
    more all the same.
    BadInput for a turn that is not there, for a delivery of a backlog, and for one that has ended.
    """
    described = await delivery.describe()
    if not described.running:
        words = "it is delivered" if described.status == WorkflowExecutionStatus.COMPLETED else "it has ended"
        raise BadInput(f"{words}: nothing of it runs that could be taken back", fix=f"perdure show {delivery.id}")
    request = await delivery.request()
    if request.get("landing"):
        fix = f'perdure say {delivery.id} "…" tells it something'
        raise BadInput("an item of a backlog cannot be rewound: its turn to land was granted for what it is", fix=fix)
    runs = await runs_of(delivery.client, delivery.id, described.run_id)
    if not again and (place := _made_by(runs, to, say)):
        return Rewound(place, described.run_id, before=True)
    turn = find(turns_in(runs), to)
    await _announce(delivery, described.run_id, turn, say)
    asked = ResetWorkflowExecutionRequest(
        namespace=delivery.client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=delivery.id, run_id=turn.run),
        reason=f"rewound to {turn.place}" + (f" by {by}" if by else ""),
        workflow_task_finish_event_id=turn.task,
        request_id=_named(described.run_id, turn, say),
        identity=delivery.client.identity,
    )
    try:
        made = await delivery.client.workflow_service.reset_workflow_execution(asked)
    except RPCError as error:
        raise PerdureError(f"it was not rewound: {error.message}", where=delivery.id, fix="try it again") from None
    return Rewound(turn.place, made.run_id)


def _named(run: str, turn: Turn, say: str) -> str:
    """The name of a rewind: the same whoever sends it, and however often."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{run} {turn.run} {turn.task} {say}"))


def _made_by(runs: Sequence[tuple[str, Past]], to: str, say: str) -> str:
    """The place that the newest run was rewound to, where it was made by just such a rewind; else empty."""
    run, past = runs[-1]
    if not past.rewinds or past.rewinds[-1].get("from_run") in (None, run):
        return ""
    place, text = (str(past.rewinds[-1].get(name) or "") for name in ("to", "text"))
    # Its turn may not have begun anew yet: without a worker none does.
    known = [*turns_in(runs), *([_turn_at(place)] if _PLACE.fullmatch(place) else [])]
    return place if text == say and find(known, to).place == place else ""


def _turn_at(place: str) -> Turn:
    found = _PLACE.fullmatch(place)
    assert found is not None
    return Turn(found["step"], int(found["attempt"] or 1), int(found["turn"] or 1), datetime.now(UTC))


async def _announce(delivery: Delivery, run: str, turn: Turn, say: str) -> None:
    """Say it to the run that is to be left, and to no other: it begins no further turn."""
    said = {"from_run": run, "to": turn.place, "text": say, "id": _named(run, turn, say)}
    handle = delivery.client.get_workflow_handle(delivery.id, run_id=run)
    try:
        await handle.signal("rewind", understood(Rewind, said).model_dump(mode="json"))
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        raise PerdureError("it went on in another run meanwhile", where=delivery.id, fix="try it again") from None
