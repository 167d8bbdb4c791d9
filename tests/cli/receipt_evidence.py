"""A delivery about which all sources tell the same, and ways to let one of them tell something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perdure.cli.look.claims import check_claims
from perdure.cli.look.evidence import Evidence, HistoryFacts, TurnSpan
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.result import (
    DeliveryResult,
    PullRequest,
    Receipt,
    Status,
    StepRecord,
    TestsStatus,
    UsageResult,
)
from perdure.models.delivery.result import TestsResult as Verdict
from perdure.models.delivery.verify import (
    CheckpointFact,
    ClaimStatus,
    CommitFact,
    HostFacts,
    LedgerFact,
    PublishedFacts,
    PullFact,
    ReportFact,
)
from perdure.models.delivery.work import BaseCommit, PreparedWorkspace


def sha(letter: str) -> str:
    return letter * 40


KEY, HEAD, TREE, BRANCH = "calc-sub", sha("e"), sha("d"), "perdure/calc-sub"

RESULT = DeliveryResult(
    delivery_id=KEY,
    run_id="run-1",
    status=Status.DELIVERED,
    repository="/calc.git",
    base="main",
    branch=BRANCH,
    head_sha=HEAD,
    checkpoint=sha("2"),
    pull_request=PullRequest(number=1, url="/calc.git#pull/1", title="feat: add sub"),
    tests=Verdict(status=TestsStatus.GREEN, tree_sha=TREE, passed=2, failed=0, report="artifact:sha256:00"),
    steps=(StepRecord(step="plan", cost_usd=0.1), StepRecord(step="implement", cost_usd=0.2)),
    usage=UsageResult(cost_usd=0.3),
    receipt=Receipt(worker_deaths=1, turns_redone=1),
)

PREPARED = PreparedWorkspace(
    queue="q",
    base_commit=BaseCommit(branch="main", sha=sha("b")),
    head=sha("b"),
    branch=BRANCH,
    checkpoint=sha("0"),
    contract="p",
    phases=(),
)

TOLD = HistoryFacts(
    prepared=PREPARED,
    first_checkpoint=sha("0"),
    start_commit=PREPARED.head,
    turns=(TurnSpan(sha("0"), sha("1"), "plan", 1, 1), TurnSpan(sha("1"), sha("2"), "implement", 1, 1)),
    newest_turns=2,
    commits={HEAD: (sha("2"), "implement/1")},
    head=HEAD,
    tested_tree=TREE,
    pull_request_number=1,
    receipt=RESULT.receipt,
)

CHECKPOINTS = (
    CheckpointFact(commit=sha("0"), delivery=KEY, step="prepare"),
    CheckpointFact(commit=sha("1"), delivery=KEY, step="plan", attempt=1, turn=1),
    CheckpointFact(commit=sha("2"), delivery=KEY, step="implement", attempt=1, turn=1),
)

COMMIT = CommitFact(commit=HEAD, parents=(sha("b"),), delivery=KEY, step="implement/1", checkpoint=True)
LEDGER = LedgerFact(
    worker_deaths=1, turns_redone=1, settled=2, spend=Spend(usd=0.3), kept_usage=Usage(cost_usd=0.3), turns=2
)
HOST = HostFacts(
    start_differences=(),
    is_referenced=True,
    tree=TREE,
    commits=(COMMIT,),
    report=ReportFact(commit=HEAD, tree=TREE, status="green", passed=2, failed=0),
    ledger=LEDGER,
)
PULL = PullFact(number=1, state="open", head=HEAD, ours=True)
OUTSIDE = PublishedFacts(tip=HEAD, forge=True, pulls=(PULL,))

RED = RESULT.tests.model_copy(update={"status": TestsStatus.RED, "passed": 1, "failed": 1})
RED_REPORT = ReportFact(commit=HEAD, tree=TREE, status="red", passed=1, failed=1)

GOOD = Evidence(RESULT, "completed", TOLD, HOST, CHECKPOINTS, OUTSIDE, KEY)


def judged(evidence: Evidence) -> dict[str, tuple[ClaimStatus, str]]:
    return {claim.claim: (claim.mark, claim.explanation) for claim in check_claims(evidence)}


def marked(evidence: Evidence, mark: ClaimStatus) -> set[str]:
    return {claim for claim, (found, _) in judged(evidence).items() if found is mark}


def result(**changes: Any) -> Evidence:
    return replace(GOOD, result=RESULT.model_copy(update=changes))


def told(**changes: Any) -> Evidence:
    return replace(GOOD, history=replace(TOLD, **changes))


def host(**changes: Any) -> Evidence:
    return replace(GOOD, host=HOST.model_copy(update=changes))


def ledger(**changes: Any) -> Evidence:
    return host(ledger=LEDGER.model_copy(update=changes))


def commit(**changes: Any) -> Evidence:
    return host(commits=(COMMIT.model_copy(update=changes),))


def outside(**changes: Any) -> Evidence:
    return replace(GOOD, published=OUTSIDE.model_copy(update=changes))
