"""The published result of a delivery, as a client gets it, or the details of its failure `NotDelivered`; and its parts:
statuses, reasons, tests, review, steps, usage, receipt, attempts."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from perdure.models.backlog.request import BacklogItem
from perdure.models.base import PublishedModel


class Status(StrEnum):
    """The ways in which a delivery ends."""

    DELIVERED = "delivered"
    DRAFT = "draft"
    COMPLETED = "completed"
    NOT_DELIVERED = "not_delivered"
    NO_CHANGES = "no_changes"
    CANCELLED = "cancelled"


SUCCESSES = (Status.DELIVERED, Status.DRAFT, Status.COMPLETED)


class ProgressStatus(StrEnum):
    """`status` of query `progress`, and search attribute PerdureStatus: those of a delivery that goes on, and each
    Status (docs/events.md)."""

    RUNNING = "running"
    WAITING = "waiting"
    DELIVERED = "delivered"
    DRAFT = "draft"
    COMPLETED = "completed"
    NOT_DELIVERED = "not_delivered"
    NO_CHANGES = "no_changes"
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """The reason a delivery is `not_delivered`."""

    TESTS_RED = "tests_red"
    BLOCKERS = "blockers"
    TAMPERED = "tampered"
    BUDGET = "budget"
    REFUSED = "refused"
    LIMITS = "limits"
    PLAN_REJECTED = "plan_rejected"
    WORKSPACE_LOST = "workspace_lost"
    SETUP_FAILED = "setup_failed"
    FORGE_REFUSED = "forge_refused"
    INVALID_REQUEST = "invalid_request"


class PullRequest(PublishedModel):
    number: int
    url: str
    title: str
    draft: bool = False


class TestsStatus(StrEnum):
    __test__ = False  # not a test class, whatever its name says to pytest

    GREEN = "green"
    RED = "red"
    NONE = "none"
    SKIPPED = "skipped"


class TestsResult(PublishedModel):
    """`none`: no test command exists. `skipped`: not selected. `tree_sha`: the git tree that was tested.

    new_failures    failed here and not on the base commit; None: cannot be told
    known_failures  failed there too, and do not count as red; fixed: failed there and passed here
    flaky           failed, and passed when they were run once more, alone
    killed_runs     runs that a signal ended which somebody had sent, and that were done again: no failures, no flakes
    tampered        places where the change makes the tests say less than they did on the base
    accepted        a person's word that red tests were red before, where nothing else can tell; else empty
    experiment      `455/455 of the base's own tests pass on the change · 3 new tests fail without it · canaries
                    caught`; empty: not tried
    promises        tests of the base that fail on the change, where it has changed them: each was justified by the
                    request, or is a blocker
    """

    status: TestsStatus = TestsStatus.SKIPPED
    tree_sha: str | None = None
    passed: int | None = None
    failed: int | None = None
    new_failures: int | None = None
    known_failures: int | None = None
    fixed: int | None = None
    flaky: int = 0
    killed_runs: int = 0
    tampered: int = 0
    accepted: str = ""
    experiment: str = ""
    promises: int = 0
    report: str | None = None


class ReviewStatus(StrEnum):
    CLEAN = "clean"
    BLOCKED = "blocked"
    SKIPPED = "skipped"


class ReviewResult(PublishedModel):
    """Counts of what the reviewer and the engine found. `findings`: the engine's own, `report`: the reviewer's."""

    status: ReviewStatus = ReviewStatus.SKIPPED
    blockers: int = 0
    tech_debt: int = 0
    skippable: int = 0
    report: str | None = None
    findings: str | None = None


class StepRecord(PublishedModel):
    """One step as it happened.

    step        a Step's name; commit is a record of its own after implement, fix_tests and fix_review
    status      running, done, cancelled, or failed (run_tests: red; review: blockers found; others: it did not end
                well, and summary says why)
    started_at  RFC 3339 in UTC; duration_s in seconds; cost_usd None when a price is not known
    summary     prepare "setup 17 s · 41 green", plan "feature · 3 tasks, 2 files", implement the model's
                last line, commit "+48 −7 in 2 files", run_tests "44 green", review "1 blocker, 1 tech debt",
                open_pull_request "pull request #12"
    """

    step: str
    attempt: int = 1
    status: str = "running"
    started_at: str | None = None
    duration_s: float | None = None
    turns: int = 0
    commit: str | None = None
    summary: str = ""
    cost_usd: float | None = 0.0


class UsageResult(PublishedModel):
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    at_risk_usd: float = 0.0


class Receipt(PublishedModel):
    """The record of what the delivery survived.

    worker_deaths       workers that died while they worked on this delivery
    turns_redone        turns that were cut off and done again from their checkpoint
    replies_paid_twice  replies that were received whole, written down, and asked for again (0 by design)
    replies_cut         requests cut off (by a death, a cancellation, the line) before the reply was whole: possibly
                        billed, never counted as free
    experiment          what was shown of the tree that was tested: the base's own tests on it, its tests without the
                        change, canaries; empty: not tried
    forked_from         the delivery and its turn that it began before, `night at implement:4`; empty: it is no fork
    inherited_turns, inherited_usd   of that delivery, until then: it has paid, this is no part of this one's cost;
                        null: not known
    """

    worker_deaths: int = 0
    turns_redone: int = 0
    replies_paid_twice: int = 0
    replies_cut: int = 0
    experiment: str = ""
    forked_from: str = ""
    inherited_turns: int = 0
    inherited_usd: float | None = 0.0


class DecisionMade(PublishedModel):
    """The decision of a person: `of` names a plan, a commit, a question or a limit, by `gate`; `note` is cut."""

    gate: str
    target: Annotated[str, Field(alias="of")] = ""
    verdict: str
    by: str = ""
    note: str = ""


class AttemptResult(PublishedModel):
    """The end of one attempt, the same whatever its worker survived on the way.

    number      from 1; delivery: its workflow id, the delivery's own where it was that one's; branch: where its commits
                stay; head: the newest of them, empty where it has none
    words       how it ended, in one line; empty: well
    tests       the verdict on exactly `head`; review: of exactly `head`, the engine's own findings in it
    lines       added and removed from base to head: the change that was reviewed
    cost_usd    of its own replies, not of the plan before it; null: a price is not known
    chosen      the delivery went on with this one
    """

    number: int = Field(ge=1)
    delivery: str = ""
    branch: str = ""
    head: str = ""
    failure: Annotated[str, Field(alias="words")] = ""
    tests: TestsStatus = TestsStatus.SKIPPED
    review: ReviewResult = ReviewResult.model_construct()
    lines: int = Field(default=0, ge=0)
    cost_usd: float | None = 0.0
    chosen: bool = False

    @property
    def is_sound(self) -> bool:
        """Return True when the attempt may ship: it ended well, with a commit, tested green, reviewed, and without
        blockers."""
        reviewed = self.review.status is ReviewStatus.CLEAN and not self.review.blockers
        return not self.failure and bool(self.head) and self.tests is TestsStatus.GREEN and reviewed

    @property
    def summary_line(self) -> str:
        """Return one line for people, `attempt 2: green, review clean, 14 lines`; for one that failed, the failure."""
        outcome = self.failure or f"{self.tests}, review {self.review.status}, {self.lines} lines"
        return f"attempt {self.number}: {outcome}"


class DeliveryResult(PublishedModel):
    """The end of a delivery, and what exists now. `plan`: its address, in the submitter's words or as it was made;
    `unread`: what people said and no turn has read, each cut to 200 characters, a retry's first turn reads it;
    `decisions`: the newest 20 of what people decided, in their order; `landed`: its commit on a backlog's branch;
    `items`: what a request consists of that was decomposed for a backlog; `attempts`: at the plan, where it had
    several."""

    delivery_id: str
    run_id: str
    spec_version: int = 1
    status: Status
    reason: Reason | None = None
    message: str = ""
    repository: str
    base: str | None = None
    base_sha: str | None = None
    branch: str | None = None
    head_sha: str | None = None
    checkpoint: str | None = None
    pull_request: PullRequest | None = None
    landed: str | None = None
    items: tuple[BacklogItem, ...] = ()
    attempts: tuple[AttemptResult, ...] = ()
    plan: str | None = None
    tests: TestsResult = TestsResult.model_construct()
    review: ReviewResult = ReviewResult.model_construct()
    steps: tuple[StepRecord, ...] = ()
    usage: UsageResult = UsageResult.model_construct()
    receipt: Receipt = Receipt.model_construct()
    next: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    decisions: tuple[DecisionMade, ...] = ()
