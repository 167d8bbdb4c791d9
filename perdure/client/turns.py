"""The turns of a delivery, as history has them: what `perdure turns` lists and other commands name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from perdure.client.delivery import Delivery
from perdure.client.history import ActivityRecord, DeliveryHistory, read_runs
from perdure.models.errors import BadInput
from perdure.models.steps import AGENTIC

_PLACE = re.compile(r"(?P<step>[a-z_]+)(\.(?P<attempt>[0-9]{1,4}))?(:(?P<turn>[0-9]{1,6}))?")


@dataclass(frozen=True)
class TurnRecord:
    """One turn as history has it.

    place       `implement:4`, or `fix_tests.2:1` in the second loop of a step: what `perdure rewind --to` takes
    checkpoint  the one it ended with; empty: it has not ended, or failed
    failure     why it failed, as Temporal has it; empty unless it did
    cost_usd    None: not known, or not ended
    before      the checkpoint it began with; terms: the artifact of its Contract; queue: of its host
    run_id      the run it is in; task: the event that a reset to before it goes to
    """

    step: str
    attempt: int
    turn: int
    began: datetime
    summary: str = ""
    checkpoint: str = ""
    cost_usd: float | None = None
    run_id: str = ""
    task: int = 0
    before: str = ""
    terms: str = ""
    queue: str = ""
    failure: str = ""

    @property
    def place(self) -> str:
        return f"{self.step}.{self.attempt}:{self.turn}" if self.attempt > 1 else f"{self.step}:{self.turn}"


async def turns(delivery: Delivery) -> list[TurnRecord]:
    """Return the turns that the delivery stands on, oldest first: not those that a rewind has left behind.

    Raises BadInput when there is no such delivery, and RPCError.
    """
    return turns_of_runs(await read_runs(delivery.client, delivery.id, (await delivery.describe()).run_id))


def turns_of_runs(runs: Sequence[tuple[str, DeliveryHistory]]) -> list[TurnRecord]:
    """Return the turns in these runs, oldest first; a rewind to a turn drops that turn and all after it."""
    by_name: dict[tuple[str, int, int], TurnRecord] = {}
    for run_id, past in runs:
        resume = past.request.get("resume")
        rewound_to = parse_turn_place(str(resume.get("rewound") or "")) if isinstance(resume, dict) else None
        names = list(by_name)
        if rewound_to is not None and (rewound_to.step, rewound_to.attempt, rewound_to.turn) in names:
            for name in names[names.index((rewound_to.step, rewound_to.attempt, rewound_to.turn)) :]:
                del by_name[name]
        for act in past.activities:
            if act.activity in AGENTIC and act.turn:
                # Where a retry goes on within a step, its turns come after those of the run before.
                by_name[act.activity, act.attempt, act.turn] = _turn_of(run_id, act)
    return list(by_name.values())


def _turn_of(run_id: str, act: ActivityRecord) -> TurnRecord:
    """Return the turn that an activity is, with summary, checkpoint and cost where it has a result."""
    turn = TurnRecord(
        act.activity,
        max(act.attempt, 1),
        act.turn,
        act.scheduled,
        run_id=run_id,
        task=act.task,
        before=str(act.input.get("checkpoint") or ""),
        terms=str(act.input.get("policy") or ""),
        queue=act.queue,
        failure=act.failure,
    )
    if act.result is None:
        return turn
    cost = (act.result.get("usage") or {}).get("cost_usd")
    ending = str(act.result.get("summary", "")).partition(" · ")[2], str(act.result.get("checkpoint", ""))
    return replace(
        turn, summary=ending[0], checkpoint=ending[1], cost_usd=cost if isinstance(cost, float | int) else None
    )


def find_turn(candidates: Sequence[TurnRecord], text: str, *, where: str = "--to") -> TurnRecord:
    """Find the turn that `STEP[.ATTEMPT][:TURN]` names: of the newest attempt and the first turn where it does not say.

    Raises BadInput that names the nearest turn when there is none like it; `where` is the option to name in it.
    """
    places = [turn.place for turn in candidates]
    parsed = _PLACE.fullmatch(text.strip().lower().replace("-", "_"))
    step = {"build": "implement"}.get(parsed["step"], parsed["step"]) if parsed else ""
    of_step = [turn for turn in candidates if turn.step == step]
    if parsed is None or not of_step:
        near = difflib.get_close_matches(text, [*dict.fromkeys(turn.step for turn in candidates), *places], 1, 0.5)
        fix = f"did you mean {near[0]}?" if near else "perdure turns shows them"
        raise BadInput(f"there is no turn {text[:60]!r}", where=where, fix=fix)
    attempt = int(parsed["attempt"] or of_step[-1].attempt)
    number = int(parsed["turn"] or 1)
    matches = [turn for turn in of_step if (turn.attempt, turn.turn) == (attempt, number)]
    if not matches:
        near_by = min(of_step, key=lambda turn: (abs(turn.attempt - attempt), abs(turn.turn - number)))
        raise BadInput(f"there is no turn {text[:60]!r}", where=where, fix=f"the nearest one is {near_by.place}")
    return matches[0]


def parse_turn_place(place: str) -> TurnRecord | None:
    """Parse a place, `implement:4`, to a turn with nothing but step, attempt and number; None where it is none."""
    if (match := _PLACE.fullmatch(place)) is None:
        return None
    return TurnRecord(match["step"], int(match["attempt"] or 1), int(match["turn"] or 1), datetime.now(UTC))
