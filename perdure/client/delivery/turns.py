"""The turns of a delivery, as history has them; the state as a turn began, and whether that turn can be taken again."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from perdure.client.delivery.handle import Delivery
from perdure.client.history.fold import ActivityRecord, RunHistory
from perdure.client.history.runs import read_runs
from perdure.client.history.state import apply_activity, steps_of, turn_result_of
from perdure.client.server.calls import HostRefused, HostSilent, run_on_host
from perdure.models.base import read_as
from perdure.models.delivery.decisions import DecisionRecord, Gate, GateVerdict, UserMessage
from perdure.models.delivery.request import ResumePoint, RewindTargetInput, RewindTargetResult
from perdure.models.delivery.state import DeliveryState, parse_resume_state
from perdure.models.delivery.steps import AGENTIC
from perdure.models.errors import BadInput
from perdure.models.ids import BACKLOG_WORKFLOW, delivery_key
from perdure.models.phases import Step
from perdure.models.rules.gates import gate_question
from perdure.models.rules.parallel_builds import has_landed_task
from perdure.text import shell_word, shorten

_PLACE = re.compile(r"(?P<step>[a-z_]+)(\.(?P<attempt>[0-9]{1,4}))?(:(?P<turn>[0-9]{1,6}))?")


@dataclass(frozen=True)
class TurnRecord:
    """A turn as history has it.

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


def turns_of_runs(runs: Sequence[RunHistory]) -> list[TurnRecord]:
    """Return the turns in these runs, oldest first; a rewind to a turn drops that turn and all after it."""
    by_name: dict[tuple[str, int, int], TurnRecord] = {}
    for run_history in runs:
        rewound_to = parse_turn_place(str(run_history.resume.get("rewound") or ""))
        names = list(by_name)
        if rewound_to is not None and (rewound_to.step, rewound_to.attempt, rewound_to.turn) in names:
            for name in names[names.index((rewound_to.step, rewound_to.attempt, rewound_to.turn)) :]:
                del by_name[name]
        for act in run_history.activities.values():
            if act.activity in AGENTIC and act.turn:
                # Where a retry goes on within a step, its turns come after those of the run before.
                by_name[act.activity, act.attempt, act.turn] = _turn_of(run_history.run_id, act)
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
    result = turn_result_of(act)
    summary = result.summary.partition(" · ")[2]
    return replace(turn, summary=summary, checkpoint=result.checkpoint, cost_usd=result.usage.cost_usd)


def find_turn(candidates: Sequence[TurnRecord], text: str, *, where: str = "--to") -> TurnRecord:
    """Find the turn that `STEP[.ATTEMPT][:TURN]` names: of the newest attempt and the first turn where it does not say.

    `build` means implement. `where`: the option to name in an error. Raises BadInput when there is no such turn; its
    fix is the nearest one, or for an unknown step without a similar name the command that lists them.
    """
    places = [turn.place for turn in candidates]
    parsed = _PLACE.fullmatch(text.strip().lower().replace("-", "_"))
    step = {"build": "implement"}.get(parsed["step"], parsed["step"]) if parsed else ""
    of_step = [turn for turn in candidates if turn.step == step]
    missing = f"there is no turn {shorten(text, 60)!r}"
    if parsed is None or not of_step:
        near = difflib.get_close_matches(text, [*dict.fromkeys(turn.step for turn in candidates), *places], 1, 0.5)
        fix = f"did you mean {near[0]}?" if near else "perdure turns shows them"
        raise BadInput(missing, where=where, fix=fix)
    attempt = int(parsed["attempt"] or of_step[-1].attempt)
    number = int(parsed["turn"] or 1)
    matches = [turn for turn in of_step if (turn.attempt, turn.turn) == (attempt, number)]
    if not matches:
        near_by = min(of_step, key=lambda turn: (abs(turn.attempt - attempt), abs(turn.turn - number)))
        raise BadInput(missing, where=where, fix=f"the nearest one is {near_by.place}")
    return matches[0]


def parse_turn_place(place: str) -> TurnRecord | None:
    """Parse a place, `implement:4`, to a turn with nothing but step, attempt and number; None where it is none."""
    if (match := _PLACE.fullmatch(place)) is None:
        return None
    return TurnRecord(match["step"], int(match["attempt"] or 1), int(match["turn"] or 1), datetime.now(UTC))


def _messages_of(act: ActivityRecord) -> tuple[UserMessage, ...]:
    """Return the messages that a turn was given."""
    raw_messages = act.input.get("messages")
    messages = (read_as(UserMessage, raw) for raw in raw_messages) if isinstance(raw_messages, list) else ()
    return tuple(message for message in messages if message is not None)


def state_before(run_history: RunHistory, turn: TurnRecord) -> DeliveryState:
    """Build a delivery's state as a turn began, from its run's history, for another run that begins with that turn.

    Activities that had ended by then are applied, and the turn's checkpoint and contract set. The plan counts as
    approved when the turn comes after planning; the pull request is forgotten. Messages from people that no turn has
    read are left out, except answers to what the agent had asked. Raises BadInput when nothing was prepared before that
    turn.
    """
    resume_point = read_as(ResumePoint, run_history.resume)
    state = parse_resume_state(resume_point) if resume_point is not None else DeliveryState()
    name = turn.step, turn.attempt, turn.turn
    turn_activity = [
        act for act in run_history.activities.values() if (act.activity, max(act.attempt, 1), act.turn) == name
    ][-1]
    before = [
        act
        for act in run_history.activities.values()
        if act.ended is not None and act.ended <= turn_activity.scheduled and act is not turn_activity
    ]
    for act in before:
        if act.result is not None:
            state.messages.pending = _messages_of(act)
            apply_activity(state, act, branch=bool(run_history.request.get("branch")))
    # A step that was in the middle is recorded as done: what follows has another record.
    finished_steps = [
        record.model_copy(update={"status": "done"} if record.status == "running" else {})
        for record in steps_of(before)
    ]
    if state.prepared is None:
        raise BadInput("nothing is prepared before that turn", where=turn.place)
    messages = _messages_of(turn_activity)
    approved = (
        state.planning.plan and turn.step != Step.PLAN and Gate.PLAN in state.prepared.decisions.gates
    )  # or it had not begun
    decided = (
        {f"{Gate.PLAN}:{gate_question(Gate.PLAN, state)[0]}": DecisionRecord(verdict=GateVerdict.APPROVED)}
        if approved
        else {}
    )
    if terms := turn_activity.input.get("policy"):  # of a turn with another model than it was prepared for
        state.prepared = state.prepared.model_copy(update={"contract": str(terms)})
    retried = state.for_retry()
    retried.turns.checkpoint = str(turn_activity.input.get("checkpoint") or state.turns.checkpoint)
    retried.turns.resume_at, retried.turns.outcome = (state.turns.resume_at if turn.turn > 1 else None), None
    retried.planning.plan = "" if turn.step == Step.PLAN else state.planning.plan
    retried.gates.decided, retried.gates.question, retried.gates.question_id = decided, None, ""
    retried.messages.pending = tuple(record for record in messages if record.question)  # answers to what it has asked
    retried.children.tasks = state.children.tasks if has_landed_task(state.children.tasks) else ()
    retried.publishing.pull_request = None
    retried.steps = [*state.steps, *finished_steps]
    return retried


AIM_TIMEOUT = timedelta(seconds=5)
"""Limit for the host's answer: a live host answers in milliseconds. Without an answer the checkpoint is not checked
here; the turn itself checks it when it begins."""


async def resolve_turn_contract(
    delivery: Delivery, turn: TurnRecord, *, model: str = "", agent: str = "", keep: bool = False
) -> RewindTargetResult | None:
    """Ask the turn's host to check its checkpoint; return the contract and the models that hold from that turn on.

    Runs activity `aim` on the turn's task queue, outside of any workflow, for at most AIM_TIMEOUT. `model` and `agent`
    are wanted for all steps from the turn on; empty: unchanged. With `keep` the host stores the changed contract as an
    artifact of the delivery. Returns None where the contract stays as it is: the host does not answer, or neither model
    nor agent is given and its worker, of an earlier release, does not have the activity. Raises BadInput where the
    checkpoint is damaged, the agent cannot take the turn or the host refuses for another reason, and HostSilent where
    the host does not answer although another model or agent was to be kept.
    """
    work = RewindTargetInput(
        delivery=delivery_key(delivery.id),
        contract=turn.terms,
        step=Step(turn.step),
        turn=turn.turn,
        checkpoint=turn.before,
        model=model,
        agent=agent,
        keep=keep,
    )
    try:
        return await run_on_host(
            delivery.client, "aim", work, RewindTargetResult, queue=turn.queue, about=delivery.id, within=AIM_TIMEOUT
        )
    except HostRefused as error:
        if error.type == "NotFoundError" and not (model or agent):
            return None  # a worker of an earlier release
        raise BadInput(f"{turn.place}: {error.failure_message.partition(chr(10))[0]}", where=delivery.id) from None
    except HostSilent:
        if keep and (model or agent):
            raise
        return None


def require_no_backlog(id: str, runs: Sequence[RunHistory]) -> None:
    """Raise BadInput for a backlog and for the delivery of a backlog's item: neither can be rewound or forked.

    `runs` are those of workflow `id`, the newest last. Other deliveries build on what a backlog's delivery has landed.
    """
    newest = runs[-1]
    if newest.workflow == BACKLOG_WORKFLOW:
        fix = f"perdure backlog status {shell_word(id)} names what can be done with one"
        raise BadInput("a backlog cannot go back: its deliveries have begun, and what landed stays", where=id, fix=fix)
    if newest.request.get("landing"):
        fix = f'perdure say {shell_word(id)} "…" tells it something'
        reason = "an item of a backlog cannot be rewound or forked: its turn to land was granted for what it is"
        raise BadInput(reason, where=id, fix=fix)
