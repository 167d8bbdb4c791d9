"""The evidence that the claims of a receipt are judged by: from history, the delivery's host, remote and forge. History
is folded here; `verifying` beside this asks the others, and `claims` judges. All three belong to `perdure verify`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from perdure.client.history.fold import ActivityRecord
from perdure.client.history.state import apply_activity
from perdure.models.delivery.request import ForkedFrom
from perdure.models.delivery.result import DeliveryResult, Receipt
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.steps import AGENTIC
from perdure.models.delivery.verify import CheckpointFact, ClaimStatus, HostFacts, PublishedFacts
from perdure.models.delivery.work import PreparedWorkspace
from perdure.models.ids import delivery_key
from perdure.models.phases import Step


@dataclass(frozen=True)
class UnknownFacts:
    """Facts that could not be had, and the reason."""

    reason: str


@dataclass(frozen=True)
class TurnSpan:
    """A turn as history has it: `before` and `after` are the checkpoints it began and ended with."""

    before: str
    after: str
    step: str
    attempt: int
    turn: int


@dataclass(frozen=True)
class HistoryFacts:
    """The facts of a delivery in history, over all its runs, oldest first.

    prepared             of the newest run
    first_checkpoint     prepare's in the first run, empty when that is lost
    start_commit         the commit it began on; its own may be on another one now, which is then prepared.head
    turns                that have ended, and what was brought onto another base
    newest_turns         how many of them, from the end, belong to the newest run
    commits              commit → (checkpoint it was made from, `step/attempt`); head: the newest one
    task_commits         commit → the delivery of the task of its plan that made it; tasks_usd: what all tasks paid
    tested_tree          tree of the newest verdict
    pull_request_number  of the one it opened
    receipt              as it was written at the end
    accepted             a person's word for red tests, as the pull request was opened with it
    has_repeats          a retry or a rewind did something for a second time, and gave up what had been done for it
    before
    complete             False: Temporal does not have the first runs any more
    forked               the delivery it was forked from, and where: what happened before is in that one's history
    """

    prepared: PreparedWorkspace | None = None
    first_checkpoint: str = ""
    start_commit: str = ""
    turns: tuple[TurnSpan, ...] = ()
    newest_turns: int = 0
    commits: dict[str, tuple[str, str]] = field(default_factory=dict)
    task_commits: dict[str, str] = field(default_factory=dict)
    tasks_usd: float = 0.0
    head: str = ""
    tested_tree: str = ""
    pull_request_number: int | None = None
    receipt: Receipt | None = None
    accepted: str = ""
    has_repeats: bool = False
    complete: bool = True
    forked: ForkedFrom | None = None


@dataclass(frozen=True)
class Evidence:
    """Everything that claims are judged by.

    workflow_status  Temporal's own word for the end of the workflow: completed, failed, cancelled
    host             from the delivery's host; checkpoints: of all pages of its answer
    published        from remote and forge
    delivery         its key, as trailers and checkpoints name it
    """

    result: DeliveryResult
    workflow_status: str
    history: HistoryFacts
    host: HostFacts | UnknownFacts
    checkpoints: tuple[CheckpointFact, ...]
    published: PublishedFacts | UnknownFacts
    delivery: str


def fold_activities(
    activities: Sequence[ActivityRecord], *, complete: bool, rewound: bool = False, forked: ForkedFrom | None = None
) -> HistoryFacts:
    """Fold a delivery's activities, oldest first, into what history says of it.

    `complete`, `rewound` and `forked` are of the whole history. Raises ValueError when a result has a shape that this
    release does not know.
    """
    state = DeliveryState()
    done = [act for act in activities if act.result is not None]
    last_prepare = max((number for number, act in enumerate(done) if act.activity == Step.PREPARE), default=-1)
    first_checkpoints: list[str] = []
    start_commit = ""
    turns, newest_turns = [], 0
    commits: dict[str, tuple[str, str]] = {}
    task_commits: dict[str, str] = {}
    accepted, pull_request_number, receipt = "", None, None
    for number, act in enumerate(done):
        apply_activity(state, act)
        before = str(act.input.get("checkpoint", ""))
        if act.activity in AGENTIC:
            turns.append(TurnSpan(before, state.turns.checkpoint, act.activity, act.attempt, act.turn))
            newest_turns += number > last_prepare
        elif act.activity == Step.PREPARE and state.prepared:
            first_checkpoints.append(state.prepared.checkpoint)
            start_commit = start_commit or state.prepared.head
        elif act.activity == Step.REBASE:
            if state.turns.checkpoint != before:
                turns.append(TurnSpan(before, state.turns.checkpoint, Step.REBASE, int(act.input.get("number", 1)), 0))
                newest_turns += number > last_prepare
            if commit := (act.result or {}).get("commit"):
                commits[str(commit)] = (state.turns.checkpoint, "")
        elif act.activity in ("take_tasks", "take_attempt"):
            if state.turns.checkpoint != before:
                turns.append(TurnSpan(before, state.turns.checkpoint, act.activity, act.attempt or 1, 0))
                newest_turns += number > last_prepare
            task_commits |= {task.commit: delivery_key(task.delivery) for task in state.children.tasks if task.commit}
        elif act.activity == Step.COMMIT and (act.result or {}).get("commit"):
            made_by = f"{act.input.get('step')}/{act.input.get('attempt')}"
            commits[state.building.head] = (before, made_by)
        elif act.activity == Step.OPEN_PULL_REQUEST and state.publishing.pull_request:
            pull_request_number, accepted = state.publishing.pull_request.number, str(act.input.get("accepted", ""))
        elif act.activity == "close":
            receipt = state.receipt
    return HistoryFacts(
        prepared=state.prepared,
        first_checkpoint=first_checkpoints[0] if first_checkpoints and complete else "",
        start_commit=start_commit,
        turns=tuple(turns),
        newest_turns=newest_turns,
        commits=commits,
        task_commits=task_commits,
        tasks_usd=state.children.usd,
        head=state.building.head,
        tested_tree=state.testing.verdict.tree if state.testing.verdict else "",
        pull_request_number=pull_request_number,
        receipt=receipt,
        accepted=accepted,
        has_repeats=rewound or not complete or len(first_checkpoints) > 1,
        complete=complete,
        forked=forked,
    )


Judgement = tuple[ClaimStatus, str]


def verified(explanation: str) -> Judgement:
    """Return the judgement that a claim is verified."""
    return ClaimStatus.VERIFIED, explanation


def contradicted(problems: Iterable[str]) -> Judgement:
    """Return the judgement that a claim is contradicted, with all problems in its explanation."""
    return ClaimStatus.CONTRADICTED, "; ".join(problems)


def unknown(reason: str) -> Judgement:
    """Return the judgement that a claim could not be checked."""
    return ClaimStatus.UNKNOWN, reason
