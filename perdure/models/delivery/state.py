"""The state of a delivery, by parts, each written by one part of the workflow: enough for another run to go on from,
small enough for history. Also its progress as a query answers it, and the request of a retry."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, field_serializer

from perdure.models.backlog.request import BacklogItem
from perdure.models.base import LazyModel, read_as
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.budget.treasury import BudgetReservation
from perdure.models.delivery.decisions import DecisionRecord, GateVerdict, PendingDecision, Question, UserMessage
from perdure.models.delivery.request import ResumePoint, describe_invalid_field
from perdure.models.delivery.result import (
    AttemptResult,
    DecisionMade,
    ProgressStatus,
    PullRequest,
    Reason,
    Receipt,
    ReviewResult,
    Status,
    StepRecord,
)
from perdure.models.delivery.specialists import TaskResult
from perdure.models.delivery.steps import STEPS
from perdure.models.delivery.turn import FixAttempt, Outcome
from perdure.models.delivery.work import ChangeSize, InspectResult, PreparedWorkspace, TestVerdict
from perdure.models.errors import InvalidRequest
from perdure.models.phases import Phase, Step

RESUME_BYTES = 512 * 1024
"""Of the state that a retry sends back: that of a delivery of a thousand turns has a fifth of it."""

DELIVERED_MESSAGE_BYTES = 16 * 1024
"""Of all messages that earlier conversations have read, the newest ones: each new conversation begins with them."""


class PlanningState(LazyModel):
    """The plan, for the change or for a backlog. Written by workflows/steps.py; of a task, whose plan is there,
    workflows/landing.py sets the kind.

    kind, title   of the request: bug, feature or chore; the plan's title
    plan          artifact of the plan; plan_text: its beginning, for people
    plan_count    how many plans were made; edit_count: how many people put in their place
    items         what the request was decomposed into, once that is approved
    """

    kind: str = ""
    title: str = ""
    plan: str = ""
    plan_text: str = ""
    plan_count: int = 0
    edit_count: int = 0
    items: tuple[BacklogItem, ...] = ()


class BuildingState(LazyModel):
    """The change as it was built. Written by workflows/delivery.py, which builds it, and by each step that makes a
    commit.

    built, documented  whether the step and its commit are done
    head          the newest commit of the branch, empty before the first one
    change_size   of the whole change up to the newest commit, from its base
    """

    built: bool = False
    documented: bool = False
    head: str = ""
    change_size: ChangeSize | None = None


class TestingState(LazyModel):
    """The tests' verdict. Written by workflows/steps.py.

    verdict   on `tested_commit`; None when the head was not tested
    runs      how many times they have run
    """

    __test__ = False

    verdict: TestVerdict | None = None
    tested_commit: str = ""
    runs: int = 0


class ReviewingState(LazyModel):
    """Findings of the reviewer, and of the engine itself, in the change. Written by workflows/steps.py, and by
    workflows/attempts.py for a change that was reviewed as an attempt.

    review      artifact of the newest review; runs: how many there were
    result      of that review, about `reviewed_commit`
    inspection  what the engine itself found in `inspected_commit`
    """

    review: str = ""
    result: ReviewResult = ReviewResult.model_construct()
    reviewed_commit: str = ""
    runs: int = 0
    inspection: InspectResult = InspectResult.model_construct()
    inspected_commit: str = ""

    @property
    def findings(self) -> str:
        """Return the artifact of the engine's own findings; empty: none."""
        return self.inspection.findings


class FixingState(LazyModel):
    """Fixes of the change: their number and results. Written by workflows/delivery.py, which counts what the limits
    are about, and workflows/steps.py, which fixes.

    test_fixes, review_fixes   since the delivery or its retry began: what the limits are about
    requested_fixes    fixes a person asked for where nothing else can tell which failures are new
    rejection_rounds   rounds of fixing what a person rejected before it was published
    counts     by step, how many fixes were made, in all runs: it numbers the next one
    attempts   the fixes made, the newest TRIES_KEPT: each later one is told of them
    """

    test_fixes: int = 0
    review_fixes: int = 0
    requested_fixes: int = 0
    rejection_rounds: int = 0
    counts: dict[str, int] = {}
    attempts: tuple[FixAttempt, ...] = ()


class PublishingState(LazyModel):
    """The pull request or branch, and the pictures for it. Written by workflows/steps.py.

    screenshots   artifact: the application's pages at the commit `captured_commit`
    """

    pull_request: PullRequest | None = None
    screenshots: str = ""
    captured_commit: str = ""


class LandingState(LazyModel):
    """The change on its way onto a backlog's branch. Written by workflows/landing.py.

    planned_touches   files that the plan names, as patterns, until the backlog is told of them
    foreseen_conflicts   other open deliveries it would conflict with, by path, as the backlog was told
    turn_requests     how often it has asked for the turn to land
    fixes             rounds of fixing what could not land
    conflicts         files with conflict markers at the checkpoint, while there is no commit
    unlanded_commit   the commit before those conflicts
    landed_changes    artifact: what landed since it began, for the agent that fixes conflicts
    landed_commit     its commit on the integration branch
    """

    planned_touches: tuple[str, ...] = ()
    foreseen_conflicts: dict[str, str] = {}
    turn_requests: int = 0
    fixes: int = 0
    conflicts: tuple[str, ...] = ()
    unlanded_commit: str = ""
    landed_changes: str = ""
    landed_commit: str = ""


class ChildrenState(LazyModel):
    """The deliveries that build the plan for this one: its tasks, or several attempts at it. Written by
    workflows/plan_tasks.py or workflows/attempts.py, and by workflows/children.py, which both use.

    ids        workflow ids of these deliveries, from the moment they begin
    tasks      of the plan: how each ended; empty: one agent builds it
    attempts   at the plan, once they have ended and one of them was chosen
    planned_checkpoint   the checkpoint with which building begins, where there are several attempts
    budget_raises   how often their budget was raised
    usd        what they paid together: the delivery pays it, and they reported it to a fleet's budget
    """

    ids: tuple[str, ...] = ()
    tasks: tuple[TaskResult, ...] = ()
    attempts: tuple[AttemptResult, ...] = ()
    planned_checkpoint: str = ""
    budget_raises: int = 0
    usd: float = 0.0


class TurnsState(LazyModel):
    """The position of the agents' turns. Written by workflows/step_runner.py, and by workflows/steps.py, which makes
    the commit of a step.

    checkpoint  the newest one: where a retry goes on
    resume_at   (step, attempt, turn) of the newest turn of an unfinished step, so that a retry goes on within it
    outcome     of the step at `resume_at`, where only its commit is still to be made
    assumptions   what agents assumed where they would have asked
    sample      the run whose replies are kept apart from those before it: it was rewound, or the run before it ended
                because of its replies; empty: the first run
    """

    checkpoint: str = ""
    resume_at: tuple[str, int, int] | None = None
    outcome: Outcome | None = None
    assumptions: tuple[str, ...] = ()
    sample: str = ""


class GatesState(LazyModel):
    """Decisions of people: the pending one, and those that were made. Written by workflows/gates.py, and by
    perdure/models/rules/inbox.py, which takes their decisions.

    pending_decision   what it waits for a person to decide
    decided       what was decided before, by gate and what it named
    question      what an agent asked and nobody has answered yet; question_id: names it
    hold_reason   why no further turn begins, in one line; empty: one may
    rewinding_to  the turn it is about to be rewound to: a reset is on its way; empty: none is
    deaths        how often a person was asked about work that had been cut off again and again
    """

    pending_decision: PendingDecision | None = None
    decided: dict[str, DecisionRecord] = {}
    question: Question | None = None
    question_id: str = ""
    hold_reason: str = ""
    rewinding_to: str = ""
    deaths: int = 0


class MessagesState(LazyModel):
    """Messages of people to the agents. Written by perdure/models/rules/inbox.py, which takes messages;
    workflows/gates.py adds answers, workflows/attempts.py removes what every attempt has read.

    pending     messages for the next turn, in order
    ids         that senders gave to messages; count: how many messages ever came
    delivered   messages that turns have read and notes of rejections: later conversations begin with them
    """

    pending: tuple[UserMessage, ...] = ()
    ids: tuple[str, ...] = ()
    count: int = 0
    delivered: tuple[UserMessage, ...] = ()

    def add_delivered(self, *messages: UserMessage) -> None:
        """Add messages that a turn has read to `delivered`, and drop the oldest of them beyond
        DELIVERED_MESSAGE_BYTES."""
        remaining_bytes, kept = DELIVERED_MESSAGE_BYTES, list[UserMessage]()
        for message in reversed((*self.delivered, *messages)):
            remaining_bytes -= len(message.text.encode()) + len(message.question.encode())
            if remaining_bytes < 0:
                break
            kept.insert(0, message)
        self.delivered = tuple(kept)


class BudgetState(LazyModel):
    """Additions to the delivery's limits, and the reservation for it. Written by workflows/gates.py and
    workflows/allowance.py; perdure/models/rules/inbox.py takes what people add.

    extra_usd, extra_tokens, extra_time_s   what people added, in dollars, tokens and seconds
    breaches      how often a limit was reached; unpriced: a person approved going on without knowing a price
    unpriced_models   the models whose price was not known when they did
    started       when its time limit began to run
    reservation   what it has reserved of a fleet's budget, where it is under one
    """

    extra_usd: float = 0.0
    extra_tokens: int = 0
    extra_time_s: float = 0.0
    breaches: int = 0
    unpriced: bool = False
    unpriced_models: tuple[str, ...] = ()
    started: datetime | None = None
    reservation: BudgetReservation = BudgetReservation.model_construct()


class SpendingState(LazyModel):
    """The usage and spending of the delivery. Written by perdure/models/delivery/fold.py, and by workflows/allowance.py
    where a turn was stopped at a limit.

    usage         of the replies it goes on from; spend: of all, by the spend log
    total_usage   of all replies, where it has ended and `usage` is of those that a retry goes on from
    """

    usage: Usage = Usage.model_construct()
    spend: Spend = Spend.model_construct()
    total_usage: Usage | None = None


class DeliveryState(LazyModel):
    """The state of a delivery. Mutable, owned by one workflow run; carried to the next run by a retry.

    Each piece is about one part of the work, and says which workflow part writes it. A result of an activity is put
    into its piece by perdure/models/delivery/fold.py, for the workflow and for whoever reads its history.

    phase, status, reason, message   where it is, and how it ended
    waiting     what it waits for, in one line, while it waits
    host_wait   why its host takes no activities, in one line, as of the last time that was asked
    notes       what a person should know about the forge and the delivery, one sentence each
    steps       a record of each step, in order
    receipt     what it survived, once it has ended
    prepared    its workspace and settings, once it is prepared
    """

    model_config = ConfigDict(extra="ignore")

    version: int = 1
    phase: Phase | None = None
    status: Status | None = None
    reason: Reason | None = None
    message: str = ""
    waiting: str = ""
    host_wait: str = ""
    notes: tuple[str, ...] = ()
    steps: list[StepRecord] = []
    receipt: Receipt = Receipt.model_construct()
    prepared: PreparedWorkspace | None = None
    planning: PlanningState = PlanningState.model_construct()
    building: BuildingState = BuildingState.model_construct()
    testing: TestingState = TestingState.model_construct()
    reviewing: ReviewingState = ReviewingState.model_construct()
    fixing: FixingState = FixingState.model_construct()
    publishing: PublishingState = PublishingState.model_construct()
    landing: LandingState = LandingState.model_construct()
    children: ChildrenState = ChildrenState.model_construct()
    turns: TurnsState = TurnsState.model_construct()
    gates: GatesState = GatesState.model_construct()
    messages: MessagesState = MessagesState.model_construct()
    budget: BudgetState = BudgetState.model_construct()
    spending: SpendingState = SpendingState.model_construct()

    def end_step(self, step: Step, outcome: Outcome) -> None:
        """Record that an agentic step has ended: for one that writes, keep the outcome and its position until its
        commit is made; for any other, remove both, because nothing of it is left to go on with."""
        turns = self.turns
        turns.resume_at, turns.outcome = (turns.resume_at, outcome) if STEPS[step].writes else (None, None)

    def outcome_of(self, step: Step, attempt: int) -> Outcome | None:
        """Return the outcome of this step and attempt when only its commit is still to be made, else None."""
        resume_at = self.turns.resume_at
        return self.turns.outcome if resume_at is not None and resume_at[:2] == (step, attempt) else None

    def for_retry(self, resumed_usage: Usage | None = None) -> DeliveryState:
        """Return a copy with which a retry begins: the work is kept; the outcome, what is waited for, the counts of
        fixes, a pending decision or hold, the used time, the reservation in shared budgets, and attempts of which none
        was chosen are reset.

        Decisions of people are kept, but for those that expired because nobody decided in time.

        resumed_usage  of the turns that the retry goes on from; None: `usage` is of those already. A turn that was
                       cut off is counted by the turn that replaces it
        """
        retried = self.model_copy(deep=True)
        retried.status, retried.reason, retried.message = None, None, ""
        retried.waiting = retried.host_wait = ""
        retried.fixing.test_fixes = retried.fixing.review_fixes = retried.landing.fixes = 0
        if not any(attempt.chosen for attempt in self.children.attempts):
            retried.children.attempts = ()
        retried.gates.pending_decision, retried.gates.hold_reason = None, ""
        retried.gates.decided = {
            key: decision for key, decision in self.gates.decided.items() if decision.verdict is not GateVerdict.EXPIRED
        }
        retried.budget.started, retried.budget.reservation = None, self.budget.reservation.for_retry()
        retried.spending.usage = resumed_usage or self.spending.usage
        retried.spending.total_usage = self.spending.usage if resumed_usage is not None else None
        return retried

    def as_ended(self) -> DeliveryState:
        """Return a copy of a state that was kept for a retry, as it was when the delivery ended: with the usage of all
        replies."""
        ended = self.model_copy(deep=True)
        ended.spending.usage = self.spending.total_usage or self.spending.usage
        return ended

    def enter_workspace(self, prepared: PreparedWorkspace) -> None:
        """Record the workspace that was prepared, and where work goes on in it.

        When `prepare` had to fall back behind a damaged checkpoint, what came after is done again. Within the
        unfinished step its conversation goes on there; further back, building goes on from the files that are left, and
        commits, verdict, tasks and fixes are forgotten, because they may be of files that are not.
        """
        turns = self.turns
        self.prepared = prepared
        self.planning.plan = self.planning.plan or prepared.request.plan
        turns.checkpoint = prepared.fallback or turns.checkpoint or prepared.checkpoint
        if not prepared.fallback:
            return
        turns.outcome = None
        if turns.resume_at and prepared.fallback_position and turns.resume_at[:2] == prepared.fallback_position[:2]:
            turns.resume_at = prepared.fallback_position
        else:
            turns.resume_at, self.testing.verdict = None, None
            self.building.built, self.building.documented, self.building.head = False, False, ""
            self.children.tasks, self.fixing.attempts = (), ()


class Progress(LazyModel):
    """The answer to query `progress`: what a live view needs, and nothing that grows without bound.

    `waiting` says in one line what the delivery waits for, when it waits; `asked` what of that a person decides.
    `held`: why no further turn begins. `plan`, `report` (of the newest tests), `review`: artifacts. Of the limits, with
    what people added to them, `budget_tokens` is 0 where there is none; `used_s` of `time_s` seconds are used, waiting
    for people aside.
    """

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    delivery_id: str
    run_id: str
    repository: str
    status: ProgressStatus
    phase: str | None = None
    reason: str | None = None
    message: str = ""
    base: str | None = None
    base_sha: str | None = None
    branch: str | None = None
    head_sha: str | None = None
    checkpoint: str | None = None
    queue: str | None = None
    budget_usd: float | None = None
    test_fixes: int | None = None
    review_fixes: int | None = None
    steps: list[StepRecord] = []
    usage: Usage = Usage.model_construct()
    spend: Spend = Spend.model_construct()
    pull_request: PullRequest | None = None
    waiting: str = ""
    pending_decision: Annotated[PendingDecision | None, Field(alias="asked")] = None
    unread: int = 0
    held: str = ""
    plan: str = ""
    report: str = ""
    review: str = ""
    budget_tokens: int = 0
    time_s: float | None = None
    used_s: float | None = None
    decisions: list[DecisionMade] = []

    @field_serializer("usage", "spend")
    def _keep_defaults(self, value: Usage | Spend) -> dict[str, Any]:
        """Return all fields: programs that read null as 0 must be able to tell an unknown price from $0."""
        return {name: getattr(value, name) for name in type(value).model_fields}


def parse_resume_state(resume: ResumePoint) -> DeliveryState:
    """Return the state that another run left behind for a retry.

    Raises InvalidRequest, which names the field, when it is not valid or larger than RESUME_BYTES.
    """
    if (size := len(json.dumps(resume.state))) > RESUME_BYTES:
        raise InvalidRequest(f"resume.state: is {size} bytes, at most {RESUME_BYTES // 1024} KiB fit")
    try:
        return DeliveryState.model_validate(resume.state)
    except ValidationError as error:
        raise InvalidRequest(
            f"resume.state.{describe_invalid_field(error, tuple(DeliveryState.model_fields))}"
        ) from None


def retry_request(request: dict[str, Any], resume_point: ResumePoint | None) -> dict[str, Any]:
    """Return a request as it was sent, with the point from which a retry goes on. Raises InvalidRequest when that
    point's state is not valid.

    resume_point  from the memo of the run that ended; None: it was terminated, and the retry begins where that run
                  began; a request that began anew is then returned as it is
    """
    earlier_point = read_as(ResumePoint, request.get("resume"))
    if earlier_point is None and request.get("resume") is not None:
        raise InvalidRequest("resume: is no point that a run has left")
    if (point := resume_point or earlier_point) is None:
        return request
    state = parse_resume_state(point).for_retry().model_dump(mode="json", exclude_defaults=True)
    return {**request, "resume": point.model_copy(update={"state": state, "continued": False}).model_dump(mode="json")}
