"""The evidence about a delivery when its receipt is verified: from history, its host, remote and forge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from perdure.client.history import Act
from perdure.models import fold
from perdure.models.forking import ForkedFrom
from perdure.models.ids import delivery_key
from perdure.models.phases import Step
from perdure.models.result import DeliveryResult, Receipt
from perdure.models.state import DeliveryState
from perdure.models.steps import AGENTIC
from perdure.models.verify import CheckpointFact, Facts, Mark, PublishedFacts
from perdure.models.work import Prepared


@dataclass(frozen=True)
class Unknown:
    """Facts that nobody could give, and why."""

    why: str


@dataclass(frozen=True)
class TurnSpan:
    """A turn as history has it: from which checkpoint to which."""

    before: str
    after: str
    step: str
    attempt: int
    turn: int


@dataclass(frozen=True)
class HistoryFacts:
    """The tale of history, over all runs, oldest first.

    prepared   of the newest run; first: prepare's checkpoint in the first run, empty when that is lost
    start      the commit it began on; its own may be on another one now, which is then prepared.head
    turns      that have ended, and what was brought onto another base; newest: how many of them, from the end, belong
               to the newest run
    commits    commit → (checkpoint it was made from, `step/attempt`); head: the newest one
    tasks      commit → the delivery of the task of its plan that made it; tasks_usd: what all tasks paid
    tested     tree of the newest verdict; shipped: number of the pull request
    receipt    as it was written at the end
    accepted   a person's word for red tests, as the pull request was opened with it
    again      a retry or a rewind did something for a second time, and gave up what had been done for it before
    complete   False: Temporal does not have the first runs any more
    forked     the delivery it was forked from, and where: what that one made until then is in that one's history
    """

    prepared: Prepared | None = None
    first: str = ""
    start: str = ""
    turns: tuple[TurnSpan, ...] = ()
    newest: int = 0
    commits: dict[str, tuple[str, str]] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)
    tasks_usd: float = 0.0
    head: str = ""
    tested: str = ""
    shipped: int | None = None
    receipt: Receipt | None = None
    accepted: str = ""
    again: bool = False
    complete: bool = True
    forked: ForkedFrom | None = None


@dataclass(frozen=True)
class Evidence:
    """Everything a claim is judged by.

    ended     Temporal's own word for the end of the workflow: completed, failed, cancelled
    host      from the delivery's host; checkpoints: all its pages
    outside   from remote and forge
    delivery  its key, as trailers and checkpoints name it
    """

    result: DeliveryResult
    ended: str
    told: HistoryFacts
    host: Facts | Unknown
    checkpoints: tuple[CheckpointFact, ...]
    outside: PublishedFacts | Unknown
    delivery: str


def told_by(
    acts: Sequence[Act], *, complete: bool, rewound: bool = False, forked: ForkedFrom | None = None
) -> HistoryFacts:
    """Fold the activities of a delivery. ValueError when they are not what this version knows."""
    state = DeliveryState()
    done = [act for act in acts if act.result is not None]
    newest = max((number for number, act in enumerate(done) if act.activity == Step.PREPARE), default=-1)
    first: list[str] = []
    start = ""
    turns, late = [], 0
    commits: dict[str, tuple[str, str]] = {}
    tasks: dict[str, str] = {}
    accepted, shipped, receipt = "", None, None
    for number, act in enumerate(done):
        fold.take(state, act.activity, act.given, act.result or {})
        before = str(act.given.get("checkpoint", ""))
        if act.activity in AGENTIC:
            turns.append(TurnSpan(before, state.checkpoint, act.activity, act.attempt, act.turn))
            late += number > newest
        elif act.activity == Step.PREPARE and state.prepared:
            first.append(state.prepared.checkpoint)
            start = start or state.prepared.head
        elif act.activity == Step.REBASE:
            if state.checkpoint != before:
                turns.append(TurnSpan(before, state.checkpoint, Step.REBASE, int(act.given.get("number", 1)), 0))
                late += number > newest
            if made := (act.result or {}).get("commit"):
                commits[str(made)] = (state.checkpoint, "")
        elif act.activity in ("take_tasks", "take_attempt"):
            if state.checkpoint != before:
                turns.append(TurnSpan(before, state.checkpoint, act.activity, act.attempt or 1, 0))
                late += number > newest
            tasks |= {task.commit: delivery_key(task.delivery) for task in state.tasks if task.commit}
        elif act.activity == Step.COMMIT and (act.result or {}).get("commit"):
            made_by = f"{act.given.get('step')}/{act.given.get('attempt')}"
            commits[state.head] = (before, made_by)
        elif act.activity == Step.OPEN_PULL_REQUEST and state.pull_request:
            shipped, accepted = state.pull_request.number, str(act.given.get("accepted", ""))
        elif act.activity == "close":
            receipt = state.receipt
    return HistoryFacts(
        prepared=state.prepared,
        first=first[0] if first and complete else "",
        start=start,
        turns=tuple(turns),
        newest=late,
        commits=commits,
        tasks=tasks,
        tasks_usd=state.tasks_usd,
        head=state.head,
        tested=state.tests.tree if state.tests else "",
        shipped=shipped,
        receipt=receipt,
        accepted=accepted,
        again=rewound or not complete or len(first) > 1,
        complete=complete,
        forked=forked,
    )


Judged = tuple[Mark, str]


def yes(said: str) -> Judged:
    return Mark.VERIFIED, said


def no(problems: Iterable[str]) -> Judged:
    return Mark.CONTRADICTED, "; ".join(problems)


def unknown(why: str) -> Judged:
    return Mark.UNKNOWN, why
