"""Everything a delivery knows about itself: enough to go on from, small enough for history."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from perdure.models.backlog import BacklogItem
from perdure.models.decisions import Asked, Decided, Question, Said, Verdict
from perdure.models.errors import InvalidRequest
from perdure.models.ledger import Spend, Usage
from perdure.models.phases import Phase, Step
from perdure.models.request import ResumePoint, explain
from perdure.models.result import (
    Attempted,
    DecisionMade,
    PullRequest,
    Reason,
    Receipt,
    ReviewResult,
    Status,
    StepRecord,
)
from perdure.models.specialists import TaskBuilt
from perdure.models.steps import STEPS
from perdure.models.treasury import Purse
from perdure.models.turn import Outcome, Try
from perdure.models.work import ChangeSize, Inspected, Prepared, TestVerdict

RESUME_BYTES = 512 * 1024
"""Of what a retry sends back: the whole state of a delivery of a thousand turns has a fifth of it."""

SAID_BYTES_AGAIN = 16 * 1024
"""Of all the words that earlier conversations have read, the newest ones: each new conversation begins with them."""


class DeliveryState(BaseModel):
    """Mutable, owned by one workflow run; carried to the next run by a retry.

    head        the newest commit of the branch, empty before the first one
    checkpoint  the newest checkpoint: where a retry goes on
    plan, kind, title, review   what planning and reviewing produced (artifacts and small facts)
    tests       verdict on `head`, None when `head` was not tested
    change      the size of the newest commit, from its base; tested: the commit that `tests` is about
    reviewed    the commit that `review_result` is about
    found       what the engine itself found in the commit `inspected`
    screenshots artifact: the application's pages at the commit `captured`
    built, documented   whether the step and its commit are behind us
    at          (step, attempt, turn) of the newest turn of an unfinished step, so that a retry goes on within it
    outcome     of the step at `at`, where its commit is all that is left of it
    waiting     what it waits for, in one line, while it waits
    notes       what a person should know about the forge, one sentence each
    started     when its time limit began to run
    asked       what it waits for a person to decide; decided: what was decided before, by gate and what it named
    said        words for the next turn, in order; heard: ids their senders gave them; listened: how many ever came
    told        words that turns have read and what was rejected with which words: what later conversations begin with
    question    what an agent asked and nobody has answered yet, and what names it
    held        why no further turn begins, in one line; empty: one may
    leaving     the turn it is about to be rewound to: a reset is on its way; empty: none is
    extra_usd, extra_tokens, extra_time_s   what people added to the budget, in dollars, tokens and seconds
    breaches    how often a limit was reached; unpriced: going on without knowing a price was approved
    plans, edits, mends   plans made, plans people put in their place, rounds of mending what was rejected
    asked_fixes fixes a person asked for where nothing else can tell which failures are new
    fixed       by step, how many of its fixes were made, in all runs: what numbers the next one
    tries       the fixes made, the newest TRIES_KEPT: what each later one is told of
    assumptions    what agents assumed where they would have asked
    purse       what it has reserved of a fleet's budget, where it is under one
    deaths      how often a person was asked about work that had been cut off again and again
    landings    how often it has asked for the turn to land; landed: its commit on the integration branch
    landing_fixes   rounds of mending what could not land
    conflicts   files with conflict markers at `checkpoint`, while there is no commit; unlanded: the commit before them
    since       artifact: what landed since it began, for the agent that mends
    items       what it was decomposed into, once that is approved
    touches     files that its plan names, as patterns, until its backlog is told of them
    foreseen    other open deliveries it would conflict with, by path, as its backlog was told
    tasks       of the plan, when several agents built it: what became of each; empty: one agent builds
    planned     the checkpoint with which building begins, where there are several attempts
    attempts    at the plan, once they have ended and one of them was taken
    begun       workflow ids of their deliveries, from the moment they begin; added: how often their budget was raised
    tasks_usd   what they paid together: it is paid by the delivery, and they told a fleet's budget themselves
    paid        usage of all replies, where it has ended and `usage` is of those that a retry goes on from
    sample      the run whose replies are kept apart from those before it: it was rewound, or the run before it ended by
                its replies; empty: the first
    """

    model_config = ConfigDict(extra="ignore")

    version: int = 1
    phase: Phase | None = None
    status: Status | None = None
    reason: Reason | None = None
    message: str = ""
    prepared: Prepared | None = None
    kind: str = ""
    title: str = ""
    plan: str = ""
    head: str = ""
    checkpoint: str = ""
    tests: TestVerdict | None = None
    change: ChangeSize | None = None
    tested: str = ""
    review: str = ""
    review_result: ReviewResult = ReviewResult()
    reviewed: str = ""
    found: Inspected = Inspected()
    inspected: str = ""
    screenshots: str = ""
    captured: str = ""
    plan_words: str = ""
    pull_request: PullRequest | None = None
    built: bool = False
    documented: bool = False
    at: tuple[str, int, int] | None = None
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
    asked: Asked | None = None
    decided: dict[str, Decided] = {}
    said: tuple[Said, ...] = ()
    heard: tuple[str, ...] = ()
    listened: int = 0
    told: tuple[Said, ...] = ()
    question: Question | None = None
    question_of: str = ""
    held: str = ""
    leaving: str = ""
    extra_usd: float = 0.0
    extra_tokens: int = 0
    extra_time_s: float = 0.0
    breaches: int = 0
    unpriced: bool = False
    plans: int = 0
    edits: int = 0
    mends: int = 0
    asked_fixes: int = 0
    fixed: dict[str, int] = {}
    tries: tuple[Try, ...] = ()
    assumptions: tuple[str, ...] = ()
    purse: Purse = Purse()
    deaths: int = 0
    sample: str = ""
    landings: int = 0
    landed: str = ""
    landing_fixes: int = 0
    conflicts: tuple[str, ...] = ()
    unlanded: str = ""
    since: str = ""
    touches: tuple[str, ...] = ()
    foreseen: dict[str, str] = {}
    items: tuple[BacklogItem, ...] = ()
    tasks: tuple[TaskBuilt, ...] = ()
    planned: str = ""
    attempts: tuple[Attempted, ...] = ()
    tasks_usd: float = 0.0
    begun: tuple[str, ...] = ()
    added: int = 0
    paid: Usage | None = None

    @property
    def findings(self) -> str:
        return self.found.findings

    def remember(self, *read: Said) -> None:
        """Keep the newest words, as many as a conversation begins with."""
        room, kept = SAID_BYTES_AGAIN, list[Said]()
        for said in reversed((*self.told, *read)):
            room -= len(said.text.encode()) + len(said.about.encode())
            if room < 0:
                break
            kept.insert(0, said)
        self.told = tuple(kept)

    def end(self, step: Step, outcome: Outcome) -> None:
        """An agentic step has ended; one that writes is over with its commit, and is not to be written again."""
        self.at, self.outcome = (self.at, outcome) if STEPS[step].writes else (None, None)

    def outcome_of(self, step: Step, attempt: int) -> Outcome | None:
        """Return the outcome of a step whose commit is all that is left of it, or None."""
        return self.outcome if self.at is not None and self.at[:2] == (step, attempt) else None

    def again(self, booked: Usage | None = None) -> DeliveryState:
        """As a retry begins: the work is kept, the verdict and the counts that led to it are not; what people decided
        is, but not that nobody did in time.

        booked  of the turns it goes on from, where the usage is that of all replies: one whose turn was cut off is
                counted by the turn that takes it up
        """
        fresh = {
            "usage": booked or self.usage,
            "paid": self.usage if booked is not None else None,
            "status": None,
            "reason": None,
            "message": "",
            "waiting": "",
            "started": None,
            "asked": None,
            "held": "",
            "purse": self.purse.again(),
            "landing_fixes": 0,
            "attempts": self.attempts if any(one.chosen for one in self.attempts) else (),
            "decided": {key: made for key, made in self.decided.items() if made.verdict is not Verdict.EXPIRED},
        }
        return self.model_copy(update={**fresh, "test_fixes": 0, "review_fixes": 0})

    def as_ended(self) -> DeliveryState:
        """The state that `again` has kept for a retry, as it was at the end."""
        return self.model_copy(update={"usage": self.paid or self.usage})

    def begin(self, prepared: Prepared) -> None:
        """A workspace is there. Where it had to fall back behind a damaged checkpoint, what came after is done again:
        within the unfinished step its conversation goes on; further back, building goes on from the files that are
        left, because commits and verdicts may be of files that are not."""
        self.prepared = prepared
        self.plan = self.plan or prepared.plan
        self.checkpoint = prepared.fallback or self.checkpoint or prepared.checkpoint
        if not prepared.fallback:
            return
        self.outcome = None
        if self.at and prepared.at and self.at[:2] == prepared.at[:2]:
            self.at = prepared.at
        else:
            self.at, self.built, self.documented, self.head, self.tests = None, False, False, "", None
            self.tasks = self.tries = ()


class Progress(BaseModel):
    """The answer to query `progress`: what a live view needs, and nothing that grows without bound.

    `waiting` says in one line what the delivery waits for, when it waits; `asked` what of that a person decides.
    `held`: why no further turn begins. `plan`, `report` (of the newest tests), `review`: artifacts. Of the limits, with
    what people added to them, `budget_tokens` is 0 where there is none; `used_s` of `time_s` seconds are used, waiting
    for people aside.
    """

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
    asked: Asked | None = None
    unread: int = 0
    held: str = ""
    plan: str = ""
    report: str = ""
    review: str = ""
    budget_tokens: int = 0
    time_s: float | None = None
    used_s: float | None = None
    decisions: list[DecisionMade] = []


def parse_resume(resume: ResumePoint) -> DeliveryState:
    """The state another run left behind. InvalidRequest when it is none, or larger than any that was left."""
    if (size := len(json.dumps(resume.state))) > RESUME_BYTES:
        raise InvalidRequest(f"resume.state: is {size} bytes, at most {RESUME_BYTES // 1024} KiB fit")
    try:
        return DeliveryState.model_validate(resume.state)
    except ValidationError as error:
        raise InvalidRequest(f"resume.state.{explain(error, tuple(DeliveryState.model_fields))}") from None


def retried(request: dict[str, Any], left: ResumePoint | None) -> dict[str, Any]:
    """A request as it was sent, made to go on where its run ended.

    left  from the memo of that run; None: it was terminated, and where it began is all that is known of it
    """
    begun = ResumePoint.model_validate(request["resume"]) if "resume" in request else None
    if (known := left or begun) is None:
        return request
    again = parse_resume(known).again().model_dump(mode="json", exclude_defaults=True)
    return {**request, "resume": ResumePoint(run_id=known.run_id, state=again).model_dump(mode="json")}
