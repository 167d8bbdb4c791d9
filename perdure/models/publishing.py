"""Inputs and results of the activities that speak to a forge, access, branch, pull request and comment, and of the one
that takes the pictures for it."""

from __future__ import annotations

from perdure.models.base import ContractHash, Recorded
from perdure.models.ledger import Spend
from perdure.models.result import PullRequest, ReviewResult
from perdure.models.work import TestVerdict


class PushInput(Recorded):
    """Push `head` as `branch`, and open nothing. `tests`: the verdict on it, when it was tested."""

    delivery: str
    contract: ContractHash
    workflow_id: str
    branch: str
    head: str
    tests: TestVerdict | None = None


class Pushed(Recorded):
    summary: str = ""


class ShipInput(Recorded):
    """Push `head` as `branch` and open one pull request into `base`.

    artifacts    name → address of what the body links to, such as `plan` and `review`
    assumptions  what agents assumed where they would have asked
    accepted     a person's word for tests that are red as they were on the base, as far as anything can tell
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
    review_result: ReviewResult = ReviewResult()
    spend: Spend = Spend()
    artifacts: dict[str, str] = {}
    findings: str = ""
    screenshots: str = ""
    assumptions: tuple[str, ...] = ()
    accepted: str = ""


class Shipped(Recorded):
    """`pull_request` None: the branch is pushed, but this origin has no forge that Perdure speaks to yet."""

    pull_request: PullRequest | None = None
    message: str = ""
    summary: str = ""


class CheckInput(Recorded):
    """The question, before any money is spent, if this delivery can be published. Policy: artifact of the Contract."""

    delivery: str
    contract: ContractHash


class Checked(Recorded):
    """`notes`: what a person should know, one sentence each."""

    notes: tuple[str, ...] = ()


class ArtifactsInput(Recorded):
    """Pages that the pull request will link to: artifacts of the vault by hash, empty where there is none."""

    delivery: str
    contract: ContractHash
    plan: str = ""
    report: str = ""
    review: str = ""
    findings: str = ""
    screenshots: str = ""


class Artifacts(Recorded):
    """`links`: name → address."""

    links: dict[str, str] = {}


class CommentInput(Recorded):
    """The content of the one comment on the delivery's issue from now on.

    status        running, or how the delivery ended; reason and message as in the result
    waiting       what a person has to decide before it goes on
    pull_request  once there is one
    branch        as far as it is settled; empty: the contract's
    """

    delivery: str
    contract: ContractHash
    workflow_id: str
    branch: str = ""
    status: str = "running"
    reason: str = ""
    message: str = ""
    waiting: str = ""
    pull_request: PullRequest | None = None
    tests: TestVerdict | None = None
    review_result: ReviewResult = ReviewResult()


class Commented(Recorded):
    """`url` of the comment."""

    url: str = ""


class CaptureInput(Recorded):
    """Start the application of `commit` and take its pages. Policy: artifact of the Contract."""

    delivery: str
    contract: ContractHash
    commit: str


class Captured(Recorded):
    """`screenshots`: artifact (perdure.models.report.Screenshots), empty when nothing was taken; never a failure."""

    screenshots: str = ""
    taken: int = 0
    summary: str = ""
