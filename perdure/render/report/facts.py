"""The material of a report: everything that is known about one delivery, and what could not be read. Models only:
`gather` beside this reads them; text, page and comparison show them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from perdure.models.checks.report import Findings, Review, Screenshots, TestReport
from perdure.models.delivery.result import (
    AttemptResult,
    DecisionMade,
    PullRequest,
    Receipt,
    ReviewResult,
    StepRecord,
    TestsResult,
    UsageResult,
)
from perdure.models.delivery.steps import Plan


class ReportTurn(BaseModel):
    """One turn. Times as history has them; `cost_usd` None: unknown.

    tries       how often it was started; died: one of the earlier tries ended with its worker
    prompt_tokens, output_tokens   of the prompt and of the reply
    transcript  what was said and done in it, empty where the host was not read; in JSON its name is `said`
    """

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

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
    transcript: Annotated[str, Field(alias="said")] = ""


class WorkerDeath(BaseModel):
    """The death of a worker that worked on this. `tries`: 2 for one death, more when it happened again at once.
    `silent`: nobody saw it die; its host may have slept or been cut off instead.
    """

    at: datetime
    activity: str
    tries: int = 2
    silent: bool = False


class ReportWait(BaseModel):
    """A time in which nothing was done. `until` None: it lasts."""

    since: datetime
    until: datetime | None
    reason: str = ""


class DeliveryReport(BaseModel):
    """Everything about one delivery that a report shows.

    status      as in the result; `running`, `waiting`, or Temporal's own word where the delivery could not say one
    started, ended   of all its runs; taken: when the report was read
    began       when each of `steps` began, more exactly than they say; None where history does not have it
    diff        against the base, its beginning where it is long; has_change: there is one, read or not
    queue       the task queue of its host, empty before it has one; neither is in the JSON form
    pictures    PNG by SHA-256; not in the JSON form
    written_plan  the plan or items as they are stored, or somebody's own words; not in the JSON form
    untold      who was not told what it waited for or how it ended, and why
    unread      what could not be read and why, one sentence each
    """

    delivery_id: str
    run_id: str
    queue: str = Field(default="", exclude=True)
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
    turns: tuple[ReportTurn, ...] = ()
    deaths: tuple[WorkerDeath, ...] = ()
    waits: tuple[ReportWait, ...] = ()
    plan: Plan | None = None
    written_plan: str = Field(default="", exclude=True)
    test_report: TestReport | None = None
    reviewed: Review | None = None
    findings: Findings | None = None
    screenshots: Screenshots | None = None
    pictures: dict[str, bytes] = Field(default={}, exclude=True)
    decisions: tuple[DecisionMade, ...] = ()
    attempts: tuple[AttemptResult, ...] = ()
    has_change: bool = Field(default=False, exclude=True)
    diff: str = ""
    untold: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Return whether the delivery had not ended when the report was read."""
        return self.ended is None

    @property
    def seconds(self) -> float:
        """Return the time from the first run's start to the end, or to when the report was read."""
        return max(((self.ended or self.taken) - self.started).total_seconds(), 0.0)
