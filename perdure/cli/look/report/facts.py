"""The material of a report: everything that is known about one delivery, and what could not be read."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from perdure.models.plan import Plan
from perdure.models.report import Findings, Review, Screenshots, TestReport
from perdure.models.result import (
    Attempted,
    DecisionMade,
    PullRequest,
    Receipt,
    ReviewResult,
    StepRecord,
    TestsResult,
    UsageResult,
)


class Turn(BaseModel):
    """One turn. Times as history has them; `cost_usd` None: unknown; `said` is empty where the host was not read.

    tries  how often it was begun; died: one of the earlier tries ended with its worker
    tokens of the prompt and of the reply
    """

    step: str
    attempt: int
    turn: int
    summary: str = ""
    checkpoint: str = ""
    started: datetime
    seconds: float | None = None
    tries: int = 1
    died: bool = False
    prompt_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    said: str = ""


class Death(BaseModel):
    """A worker ended while it worked on this. `tries`: 2 for one death, more when it happened again at once."""

    at: datetime
    activity: str
    tries: int = 2


class Waited(BaseModel):
    """A time in which nothing was done. `until` None: it lasts."""

    since: datetime
    until: datetime | None
    reason: str = ""


class Report(BaseModel):
    """One delivery.

    status      as in the result; `running`, `waiting`, or Temporal's own word where the delivery could not say one
    started, ended   of all its runs; taken: when this was read
    began       when each of `steps` began, more exactly than they say; None where history does not have it
    diff        against the base, its beginning where it is long
    pictures    PNG by SHA-256; not in the JSON form
    untold      who was not told what it waited for or how it ended, and why
    unread      what could not be read and why, one sentence each
    """

    delivery_id: str
    run_id: str
    status: str
    reason: str = ""
    message: str = ""
    waiting: str = ""
    repository: str = ""
    request: str = ""
    issue: str = ""
    base: str = ""
    base_sha: str = ""
    branch: str = ""
    head_sha: str = ""
    pull_request: PullRequest | None = None
    kind: str = ""
    title: str = ""
    started: datetime
    ended: datetime | None = None
    taken: datetime
    budget_usd: float | None = None
    usage: UsageResult = UsageResult()
    receipt: Receipt = Receipt()
    tests: TestsResult = TestsResult()
    review: ReviewResult = ReviewResult()
    steps: tuple[StepRecord, ...] = ()
    began: tuple[datetime | None, ...] = Field(default=(), exclude=True)
    turns: tuple[Turn, ...] = ()
    deaths: tuple[Death, ...] = ()
    waits: tuple[Waited, ...] = ()
    plan: Plan | None = None
    test_report: TestReport | None = None
    reviewed: Review | None = None
    findings: Findings | None = None
    screenshots: Screenshots | None = None
    pictures: dict[str, bytes] = Field(default={}, exclude=True)
    decisions: tuple[DecisionMade, ...] = ()
    attempts: tuple[Attempted, ...] = ()
    diff: str = ""
    untold: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        return self.ended is None

    @property
    def seconds(self) -> float:
        """From the first run's start to the end, or to now."""
        return max(((self.ended or self.taken) - self.started).total_seconds(), 0.0)
