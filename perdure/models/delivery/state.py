"""Everything a delivery knows about itself: enough to go on from, small enough for history."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perdure.models.backlog.request import BacklogItem
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.budget.treasury import BudgetReservation
from perdure.models.delivery.decisions import DecisionRecord, GateVerdict, PendingDecision, Question, UserMessage
from perdure.models.delivery.request import ResumePoint, describe_invalid_field
from perdure.models.delivery.result import (
    AttemptResult,
    DecisionMade,
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


class DeliveryState(BaseModel):
    """The state of a delivery. Mutable, owned by one workflow run; carried to the next run by a retry.

    head        the newest commit of the branch, empty before the first one
    checkpoint  the newest checkpoint: where a retry goes on
    plan, kind, title, review   what planning and reviewing produced (artifacts and small facts)
    plan_text   the beginning of the plan, for people
    tests       verdict on `head`, None when `head` was not tested; tested_commit: the commit that it is about
    change      the size of the whole change up to the newest commit, from its base
    reviewed_commit    the commit that `review_result` is about
    inspection         what the engine itself found in the commit `inspected_commit`
    screenshots        artifact: the application's pages at the commit `captured_commit`
    built, documented  whether the step and its commit are done
    resume_at   (step, attempt, turn) of the newest turn of an unfinished step, so that a retry goes on within it
    outcome     of the step at `resume_at`, where only its commit is still to be made
    waiting     what it waits for, in one line, while it waits
    notes       what a person should know about the forge and the delivery, one sentence each
    started     when its time limit began to run
    pending_decision   what it waits for a person to decide
    decided            what was decided before, by gate and what it named
    pending_messages   messages for the next turn, in order
    message_ids        ids that senders gave to messages; message_count: how many messages ever came
    delivered_messages   messages that turns have read and notes of rejections: later conversations begin with them
    question    what an agent asked and nobody has answered yet; question_id: names it
    hold_reason   why no further turn begins, in one line; empty: one may
    rewinding_to  the turn it is about to be rewound to: a reset is on its way; empty: none is
    extra_usd, extra_tokens, extra_time_s   what people added to the budget, in dollars, tokens and seconds
    breaches    how often a limit was reached; unpriced: a person approved going on without knowing a price
    plans, edits   how many plans were made, and how many people put in their place
    mend_rounds    rounds of fixing what a person rejected before it was published
    requested_fixes   fixes a person asked for where nothing else can tell which failures are new
    fix_counts        by step, how many fixes were made, in all runs: it numbers the next one
    fix_attempts      the fixes made, the newest TRIES_KEPT: each later one is told of them
    assumptions    what agents assumed where they would have asked
    reservation    what it has reserved of a fleet's budget, where it is under one
    deaths         how often a person was asked about work that had been cut off again and again
    landings       how often it has asked for the turn to land; landed_commit: its commit on the integration branch
    landing_fixes  rounds of fixing what could not land
    conflicts      files with conflict markers at `checkpoint`, while there is no commit
    unlanded_commit  the commit before those conflicts
    landed_changes   artifact: what landed since it began, for the agent that fixes conflicts
    items       what it was decomposed into, once that is approved
    touches     files that its plan names, as patterns, until its backlog is told of them
    foreseen_conflicts   other open deliveries it would conflict with, by path, as its backlog was told
    tasks       of the plan, when several agents built it: how each ended; empty: one agent builds
    planned_checkpoint   the checkpoint with which building begins, where there are several attempts
    attempts      at the plan, once they have ended and one of them was chosen
    attempt_ids   workflow ids of their deliveries, from the moment they begin
    budget_raises   how often their budget was raised
    tasks_usd   what tasks and attempts paid together: the delivery pays it, and they reported it to a fleet's budget
    total_usage   usage of all replies, where it has ended and `usage` is of those that a retry goes on from
    sample      the run whose replies are kept apart from those before it: it was rewound, or the run before it ended
                because of its replies; empty: the first run
    """

    model_config = ConfigDict(extra="ignore")

    version: int = 1
    phase: Phase | None = None
    status: Status | None = None
    reason: Reason | None = None
    message: str = ""
    prepared: PreparedWorkspace | None = None
    kind: str = ""
    title: str = ""
    plan: str = ""
    head: str = ""
    checkpoint: str = ""
    tests: TestVerdict | None = None
    change: ChangeSize | None = None
    tested_commit: str = ""
    review: str = ""
    review_result: ReviewResult = ReviewResult()
    reviewed_commit: str = ""
    inspection: InspectResult = InspectResult()
    inspected_commit: str = ""
    screenshots: str = ""
    captured_commit: str = ""
    plan_text: str = ""
    pull_request: PullRequest | None = None
    built: bool = False
    documented: bool = False
    resume_at: tuple[str, int, int] | None = None
    outcome: Outcome | None = None
    test_fixes: int = 0
    review_fixes: int = 0
    test_runs: int = 0
    reviews: int = 0
    steps: list[StepRecord] = []
    usage: Usage = Usage()
    spend: Spend = Spend()
    receipt: Receipt = Receipt()
    waiting: str = ""
    notes: tuple[str, ...] = ()
    started: datetime | None = None
    pending_decision: PendingDecision | None = None
    decided: dict[str, DecisionRecord] = {}
    pending_messages: tuple[UserMessage, ...] = ()
    message_ids: tuple[str, ...] = ()
    message_count: int = 0
    delivered_messages: tuple[UserMessage, ...] = ()
    question: Question | None = None
    question_id: str = ""
    hold_reason: str = ""
    rewinding_to: str = ""
    extra_usd: float = 0.0
    extra_tokens: int = 0
    extra_time_s: float = 0.0
    breaches: int = 0
    unpriced: bool = False
    plans: int = 0
    edits: int = 0
    mend_rounds: int = 0
    requested_fixes: int = 0
    fix_counts: dict[str, int] = {}
    fix_attempts: tuple[FixAttempt, ...] = ()
    assumptions: tuple[str, ...] = ()
    reservation: BudgetReservation = BudgetReservation()
    deaths: int = 0
    sample: str = ""
    landings: int = 0
    landed_commit: str = ""
    landing_fixes: int = 0
    conflicts: tuple[str, ...] = ()
    unlanded_commit: str = ""
    landed_changes: str = ""
    touches: tuple[str, ...] = ()
    foreseen_conflicts: dict[str, str] = {}
    items: tuple[BacklogItem, ...] = ()
    tasks: tuple[TaskResult, ...] = ()
    planned_checkpoint: str = ""
    attempts: tuple[AttemptResult, ...] = ()
    tasks_usd: float = 0.0
    attempt_ids: tuple[str, ...] = ()
    budget_raises: int = 0
    total_usage: Usage | None = None

    @property
    def findings(self) -> str:
        """Return the artifact of the engine's own findings; empty: none."""
        return self.inspection.findings

    def add_delivered_messages(self, *messages: UserMessage) -> None:
        """Add messages that a turn has read to `delivered_messages`, of which the newest DELIVERED_MESSAGE_BYTES
        stay."""
        remaining_bytes, kept = DELIVERED_MESSAGE_BYTES, list[UserMessage]()
        for message in reversed((*self.delivered_messages, *messages)):
            remaining_bytes -= len(message.text.encode()) + len(message.question.encode())
            if remaining_bytes < 0:
                break
            kept.insert(0, message)
        self.delivered_messages = tuple(kept)

    def end_step(self, step: Step, outcome: Outcome) -> None:
        """Record that an agentic step has ended; of one that writes, keep the outcome until its commit is made.

        Any other step is over with this: nothing of it is left to go on with.
        """
        self.resume_at, self.outcome = (self.resume_at, outcome) if STEPS[step].writes else (None, None)

    def outcome_of(self, step: Step, attempt: int) -> Outcome | None:
        """Return the outcome of a step of which only the commit is still to be made, or None."""
        return self.outcome if self.resume_at is not None and self.resume_at[:2] == (step, attempt) else None

    def for_retry(self, resumed_usage: Usage | None = None) -> DeliveryState:
        """Return a copy with which a retry begins: the work is kept, the outcome and the counts that led to it are
        reset.

        Decisions of people are kept, but for those that expired because nobody decided in time.

        resumed_usage  of the turns that the retry goes on from; None: `usage` is of those already. A turn that was
                       cut off is counted by the turn that replaces it
        """
        fresh = {
            "usage": resumed_usage or self.usage,
            "total_usage": self.usage if resumed_usage is not None else None,
            "status": None,
            "reason": None,
            "message": "",
            "waiting": "",
            "started": None,
            "pending_decision": None,
            "hold_reason": "",
            "reservation": self.reservation.for_retry(),
            "landing_fixes": 0,
            "attempts": self.attempts if any(attempt.chosen for attempt in self.attempts) else (),
            "decided": {
                key: decision for key, decision in self.decided.items() if decision.verdict is not GateVerdict.EXPIRED
            },
        }
        return self.model_copy(update={**fresh, "test_fixes": 0, "review_fixes": 0})

    def as_ended(self) -> DeliveryState:
        """Return a copy of a state that was kept for a retry, with the usage of all replies."""
        return self.model_copy(update={"usage": self.total_usage or self.usage})

    def enter_workspace(self, prepared: PreparedWorkspace) -> None:
        """Record the workspace that was prepared, and where work goes on in it.

        Where prepare had to fall back behind a damaged checkpoint, what came after is done again: within the unfinished
        step its conversation goes on; further back, building goes on from the files that are left, because commits and
        verdicts may be of files that are not.
        """
        self.prepared = prepared
        self.plan = self.plan or prepared.plan
        self.checkpoint = prepared.fallback or self.checkpoint or prepared.checkpoint
        if not prepared.fallback:
            return
        self.outcome = None
        if self.resume_at and prepared.fallback_position and self.resume_at[:2] == prepared.fallback_position[:2]:
            self.resume_at = prepared.fallback_position
        else:
            self.resume_at, self.built, self.documented, self.head, self.tests = None, False, False, "", None
            self.tasks = self.fix_attempts = ()


class Progress(BaseModel):
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
    status: str
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
    usage: Usage = Usage()
    spend: Spend = Spend()
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


def parse_resume_state(resume: ResumePoint) -> DeliveryState:
    """Return the state that another run left behind.

    Raises InvalidRequest for one that is not valid, or larger than RESUME_BYTES.
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
    """Return a request as it was sent, with the point from which a retry goes on.

    resume_point  from the memo of the run that ended; None: it was terminated, and the retry begins where that run
                  began; a request that began anew is then returned as it is
    """
    earlier_point = ResumePoint.model_validate(request["resume"]) if "resume" in request else None
    if (point := resume_point or earlier_point) is None:
        return request
    state = parse_resume_state(point).for_retry().model_dump(mode="json", exclude_defaults=True)
    return {**request, "resume": ResumePoint(run_id=point.run_id, state=state).model_dump(mode="json")}
