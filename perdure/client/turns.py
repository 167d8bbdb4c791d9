"""The turns of a delivery, as history has them: what `perdure turns` lists and other commands name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from perdure.client.delivery import Delivery
from perdure.client.history import Act, Past, runs_of
from perdure.models.errors import BadInput
from perdure.models.steps import AGENTIC

_PLACE = re.compile(r"(?P<step>[a-z_]+)(\.(?P<attempt>[0-9]{1,4}))?(:(?P<turn>[0-9]{1,6}))?")


@dataclass(frozen=True)
class Turn:
    """One turn as history has it.

    place       `implement:4`, or `fix_tests.2:1` in the second loop of a step: what `perdure rewind --to` takes
    checkpoint  what it ended with; empty: it has not ended, or failed
    failure     why it failed, as Temporal has it; empty unless it did
    cost_usd    None: not known, or not ended
    before      the checkpoint it began with; terms: the artifact of its Contract; queue: of its host
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
    before: str = ""
    terms: str = ""
    queue: str = ""
    failure: str = ""

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
        resume = past.request.get("resume")
        left = turn_at(str(resume.get("rewound") or "")) if isinstance(resume, dict) else None
        places = list(found)
        if left is not None and (left.step, left.attempt, left.turn) in places:
            for place in places[places.index((left.step, left.attempt, left.turn)) :]:
                del found[place]
        for act in past.acts:
            if act.activity in AGENTIC and act.turn:
                # Where a retry goes on within a step, its turns come after those of the run before.
                found[act.activity, act.attempt, act.turn] = _turn(run, act)
    return list(found.values())


def _turn(run: str, act: Act) -> Turn:
    turn = Turn(
        act.activity,
        max(act.attempt, 1),
        act.turn,
        act.scheduled,
        run=run,
        task=act.task,
        before=str(act.given.get("checkpoint") or ""),
        terms=str(act.given.get("policy") or ""),
        queue=act.queue,
        failure=act.failure,
    )
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


def turn_at(place: str) -> Turn | None:
    """A turn by its place alone; None where it is none."""
    if (found := _PLACE.fullmatch(place)) is None:
        return None
    return Turn(found["step"], int(found["attempt"] or 1), int(found["turn"] or 1), datetime.now(UTC))
