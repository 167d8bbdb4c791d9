"""Inputs and results of the activities that publish: check of access, branch, pull request, links to artifacts,
comment, and screenshots. The activities are in activities/forge.py and activities/inspect_change.py."""

from __future__ import annotations

from perdure.models.base import ContractHash, HistoryModel
from perdure.models.budget.ledger import Spend
from perdure.models.delivery.result import PullRequest, ReviewResult
from perdure.models.delivery.work import TestVerdict


class PushInput(HistoryModel):
    """Push `head` as `branch` and open no pull request. `tests`: the verdict on it, when it was tested."""

    delivery: str
    contract: ContractHash
    workflow_id: str
    branch: str
    head: str
    tests: TestVerdict | None = None


class PushResult(HistoryModel):
    """The result of pushing a branch. `summary`: one line for people."""

    summary: str = ""


class ShipInput(HistoryModel):
    """Push `head` as `branch` and open one pull request into `base`.

    artifacts    name → address of what the body links to, such as `plan` and `review`
    assumptions  what agents assumed where they would have asked
    accepted     a person's statement that red tests were red on the base too, where nothing else can tell; else empty
    """

    delivery: str
    contract: ContractHash
    workflow_id: str
    base: str
    branch: str
    head: str
    title: str
    kind: str = ""
    draft: bool = False
    draft_reason: str = ""
    plan: str = ""
    tests: TestVerdict | None = None
    review: str = ""
    review_result: ReviewResult = ReviewResult.model_construct()
    spend: Spend = Spend.model_construct()
    artifacts: dict[str, str] = {}
    findings: str = ""
    screenshots: str = ""
    assumptions: tuple[str, ...] = ()
    accepted: str = ""


class ShipResult(HistoryModel):
    """The pull request; None: the branch is pushed, but this origin has no forge that Perdure speaks to yet."""

    pull_request: PullRequest | None = None
    message: str = ""
    summary: str = ""


class AccessCheckInput(HistoryModel):
    """Check, before any money is spent, whether this delivery can be published. Contract: artifact with the terms."""

    delivery: str
    contract: ContractHash


class AccessCheckResult(HistoryModel):
    """The forge can be used. `notes`: what a person should know about that, one sentence each."""

    notes: tuple[str, ...] = ()


class ArtifactLinksInput(HistoryModel):
    """Publish the pages that the pull request will link to: artifacts of the vault by hash, empty where there is
    none."""

    delivery: str
    contract: ContractHash
    plan: str = ""
    report: str = ""
    review: str = ""
    findings: str = ""
    screenshots: str = ""


class ArtifactLinks(HistoryModel):
    """Addresses of the published pages. `links`: name → address."""

    links: dict[str, str] = {}


class CommentInput(HistoryModel):
    """The content that the one comment on the delivery's issue has from now on.

    status        running, or how the delivery ended; reason and message as in the result
    waiting       what it waits for before it goes on, in one line; gate: where it does (Gate)
    pull_request  once there is one
    branch        once its name is final; empty: the Contract's
    """

    delivery: str
    contract: ContractHash
    workflow_id: str
    branch: str = ""
    status: str = "running"
    reason: str = ""
    message: str = ""
    waiting: str = ""
    gate: str = ""
    pull_request: PullRequest | None = None
    tests: TestVerdict | None = None
    review_result: ReviewResult = ReviewResult.model_construct()


class CommentResult(HistoryModel):
    """The comment on the issue. `url`: its address."""

    url: str = ""


class CaptureInput(HistoryModel):
    """Start the application of `commit` and take screenshots of its pages."""

    delivery: str
    contract: ContractHash
    commit: str


class CaptureResult(HistoryModel):
    """The screenshots that were taken; taking none is no failure.

    screenshots    artifact (perdure.models.checks.report.Screenshots), empty when nothing was taken
    picture_count  how many pictures are in it
    """

    screenshots: str = ""
    picture_count: int = 0
    summary: str = ""
