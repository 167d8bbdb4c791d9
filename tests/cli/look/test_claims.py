"""Each line of a receipt is judged by what the other sources say: a story told by one of them alone is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perdure.cli.look.claims import check_claims
from perdure.cli.look.evidence import Evidence, HistoryFacts, TurnSpan, UnknownFacts
from perdure.cli.look.verifying import compare_experiments, compare_tests
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.result import (
    DeliveryResult,
    PullRequest,
    Receipt,
    ReviewResult,
    ReviewStatus,
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
    ExperimentFact,
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


def test_a_delivery_about_which_everybody_tells_the_same_is_verified_in_every_line() -> None:
    assert marked(GOOD, ClaimStatus.VERIFIED) == set(judged(GOOD))
    assert len(judged(GOOD)) == 11


@pytest.mark.parametrize(
    ("evidence", "claim", "words"),
    [
        (replace(GOOD, workflow_status="failed"), "ended as it says", "it says delivered, the workflow is failed"),
        (result(review=ReviewResult(status=ReviewStatus.BLOCKED, blockers=2)), "ended as it says", "2 blockers"),
        (
            replace(result(tests=RED), host=HOST.model_copy(update={"report": RED_REPORT})),
            "ended as it says",
            "it says delivered, and its tests are red",
        ),
        (
            replace(
                result(tests=RED.model_copy(update={"accepted": "approved by Ada"})),
                host=HOST.model_copy(update={"report": RED_REPORT}),
            ),
            "ended as it says",
            "it says that a person let red tests through, history has nobody",
        ),
        (told(pull_request_number=None), "ended as it says", "it names pull request #1, history has none"),
        (told(head=sha("f")), "ended as it says", "history's last one is fffffff"),
        (outside(pulls=()), "one pull request", "#1 is not there any more"),
        (
            outside(pulls=(PULL, PullFact(number=2, state="open", head=HEAD))),
            "one pull request",
            "#2 is open for perdure/calc-sub, too",
        ),
        (outside(pulls=(PULL.model_copy(update={"head": sha("f")}),)), "one pull request", "proposes fffffff"),
        (outside(tip=sha("f")), "tested tree", "is at fffffff on the remote, the tests ran on eeeeeee"),
        (host(start_differences=("README.rst",)), "begins at the base", "differs from bbbbbbb in README.rst"),
        (host(tree=sha("f")), "tested tree", "holds tree fffffff, the tests ran on ddddddd"),
        (told(tested_tree=sha("f")), "tested tree", "history's last tests ran on fffffff"),
        (host(report=None), "tested tree", "missing or was changed"),
        (
            host(report=ReportFact(commit=HEAD, tree=TREE, status="red", passed=1, failed=1)),
            "tested tree",
            "the report says red",
        ),
        (
            host(report=ReportFact(commit=HEAD, tree=TREE, status="green", passed=1, failed=0)),
            "tested tree",
            "1 passed and 0 failed",
        ),
        (commit(delivery=""), "commits", "eeeeeee does not carry the delivery's trailer"),
        (commit(delivery="other"), "commits", "carries the trailer of other"),
        (commit(commit=sha("f")), "commits", "fffffff is not in history"),
        (commit(step="fix_tests/1"), "commits", "history says implement/1"),
        (commit(checkpoint=False), "commits", "checkpoint 2222222, which is not in the vault"),
        (commit(differs=("calc.py",)), "commits", "differs from checkpoint 2222222 in calc.py"),
        (host(commits=()), "commits", "has none of the 1 that history tells of"),
        (host(broken="error: missing blob"), "checkpoints", "a hole: error: missing blob"),
        (host(is_referenced=False), "checkpoints", "no ref keeps the last one"),
        (told(first_checkpoint=sha("9")), "checkpoints", "they begin at 0000000, prepare's is 9999999"),
        (replace(GOOD, checkpoints=CHECKPOINTS[:2]), "checkpoints", "implement 1, turn 1 has no checkpoint"),
        (told(turns=TOLD.turns[1:], newest_turns=1), "checkpoints", "1111111 (plan 1, turn 1) is not in history"),
        (
            told(turns=(TOLD.turns[0], TurnSpan(sha("0"), sha("2"), "implement", 1, 1))),
            "checkpoints",
            "2222222 follows 1111111, in history 0000000",
        ),
        (
            told(turns=(TOLD.turns[0], TurnSpan(sha("1"), sha("2"), "implement", 1, 2))),
            "checkpoints",
            "is implement 1, turn 1, in history implement 1, turn 2",
        ),
        (
            replace(GOOD, checkpoints=(*CHECKPOINTS[:2], CHECKPOINTS[2].model_copy(update={"delivery": "other"}))),
            "checkpoints",
            "2222222 is other's",
        ),
        (ledger(worker_deaths=2), "worker deaths", "the receipt says 1, the journal 2"),
        (ledger(unknown_deaths=("7/1",)), "worker deaths", "a death that the journal has not: 7/1"),
        (ledger(turns_redone=0), "turns redone", "the receipt says 1, the journal 0"),
        (ledger(replies_paid_twice=1), "replies paid twice", "the receipt says 0, the spend log 1"),
        (ledger(replies_cut=1), "replies cut", "the receipt says 0, the spend log 1"),
        (ledger(spend=Spend(usd=0.2)), "cost", "the result says $0.30, the ledger $0.20"),
        (ledger(spend=Spend(usd=0.3, at_risk_usd=0.5)), "cost", "in the ledger $0.50"),
        (ledger(unpaid=("plan 1, turn 1",)), "cost", "no settled reply for plan 1, turn 1"),
        (ledger(kept_usage=Usage(cost_usd=0.25)), "cost", "the turns in the vault $0.25"),
        (result(steps=RESULT.steps[:1]), "cost", "the steps cost $0.10"),
        (result(usage=UsageResult(cost_usd=None)), "cost", "the result says cost unknown"),
    ],
)
def test_one_source_that_tells_another_story_contradicts_one_claim(evidence: Evidence, claim: str, words: str) -> None:
    assert marked(evidence, ClaimStatus.CONTRADICTED) == {claim}
    assert words in judged(evidence)[claim][1]


def test_an_altered_receipt_is_not_what_history_and_journal_have() -> None:
    altered = result(receipt=Receipt(worker_deaths=0, turns_redone=1))
    assert marked(altered, ClaimStatus.CONTRADICTED) == {"worker deaths"}
    assert judged(altered)["worker deaths"][1] == (
        "the receipt says 0, the journal 1; 1 were written down when it ended"
    )


def test_a_commit_that_the_vault_has_lost_is_missed_by_every_line_about_it() -> None:
    lost = host(tree="", commits=())
    assert marked(lost, ClaimStatus.CONTRADICTED) == {"tested tree", "commits"}
    for claim in ("tested tree", "commits"):
        assert judged(lost)[claim][1] == "commit eeeeeee is not in the vault any more"


def test_a_host_that_does_not_answer_leaves_its_lines_open_and_contradicts_nothing() -> None:
    alone = replace(GOOD, host=UnknownFacts("nobody answers"), checkpoints=())
    assert marked(alone, ClaimStatus.CONTRADICTED) == set()
    assert marked(alone, ClaimStatus.VERIFIED) == {"ended as it says", "one pull request"}


def test_a_remote_that_does_not_answer_leaves_what_was_published_open() -> None:
    away = replace(GOOD, published=UnknownFacts("the remote cannot be reached"))
    assert marked(away, ClaimStatus.UNKNOWN) == {"one pull request", "tested tree"}
    assert "green" in judged(away)["tested tree"][1], "vault and report are worth something by themselves"


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (outside(tip=None), "perdure/calc-sub is deleted on the remote"),
        (
            outside(tip=sha("f"), pulls=(PULL.model_copy(update={"state": "merged"}),)),
            "perdure/calc-sub on the remote has moved on since",
        ),
    ],
)
def test_a_branch_that_has_done_its_duty_is_the_vaults_to_show(evidence: Evidence, words: str) -> None:
    assert marked(evidence, ClaimStatus.CONTRADICTED) == set()
    assert words in judged(evidence)["tested tree"][1]


def test_where_no_forge_is_spoken_to_nobody_can_count_pull_requests() -> None:
    pushed = replace(GOOD, published=PublishedFacts(tip=HEAD))
    assert judged(pushed)["one pull request"][0] is ClaimStatus.UNKNOWN
    assert marked(pushed, ClaimStatus.CONTRADICTED) == set()


def test_a_delivery_that_committed_nothing_has_no_commit_to_compare() -> None:
    idle = replace(host(commits=()), history=replace(TOLD, commits={}, head=""))
    assert judged(idle)["commits"] == (ClaimStatus.VERIFIED, "it made none, says history")


def test_a_closed_pull_request_of_an_earlier_delivery_is_no_second_one() -> None:
    earlier = PullFact(number=7, state="closed", head=sha("f"))
    assert marked(outside(pulls=(PULL, earlier)), ClaimStatus.CONTRADICTED) == set()


def test_a_delivery_that_opened_nothing_has_nothing_open() -> None:
    changes: dict[str, Any] = {"status": Status.COMPLETED, "pull_request": None}
    nothing = replace(
        result(**changes), history=replace(TOLD, pull_request_number=None), published=PublishedFacts(forge=True)
    )
    assert marked(nothing, ClaimStatus.VERIFIED) == set(judged(nothing)) >= {"no pull request"}
    hidden = replace(nothing, published=OUTSIDE)
    assert judged(hidden)["no pull request"] == (ClaimStatus.CONTRADICTED, "#1 is open")


def test_money_for_turns_that_a_retry_gave_up_is_named_and_accuses_nobody() -> None:
    more = LEDGER.model_copy(update={"settled": 3, "spend": Spend(usd=0.35)})
    once = replace(host(ledger=more), result=RESULT.model_copy(update={"usage": UsageResult(cost_usd=0.35)}))
    assert "the ledger has $0.05 more than the turns in the vault" in judged(once)["cost"][1]
    retried = replace(once, history=replace(TOLD, has_repeats=True))
    assert judged(retried)["cost"] == (
        ClaimStatus.VERIFIED,
        "$0.35: 3 settled replies in the ledger, the result, and the sum of the steps, $0.05 of it for turns that were "
        "not kept",
    )


def test_a_price_nobody_knows_is_not_a_contradiction() -> None:
    both = replace(
        ledger(spend=Spend(usd=None)), result=RESULT.model_copy(update={"usage": UsageResult(cost_usd=None)})
    )
    assert judged(both)["cost"][0] is ClaimStatus.UNKNOWN


def test_histories_that_temporal_has_deleted_leave_the_comparison_open() -> None:
    late = told(first_checkpoint="", turns=TOLD.turns[1:], newest_turns=1, complete=False)
    assert judged(late)["checkpoints"][0] is ClaimStatus.UNKNOWN
    assert "the first runs' history is gone" in judged(late)["checkpoints"][1]


def test_a_delivery_that_ended_before_it_had_a_workspace_has_nothing_to_count() -> None:
    changes: dict[str, Any] = {"status": Status.NOT_DELIVERED, "pull_request": None, "branch": None, "head_sha": None}
    never = UnknownFacts("it had none")
    early = Evidence(result(**changes, tests=Verdict()).result, "failed", HistoryFacts(), never, (), never, KEY)
    assert marked(early, ClaimStatus.VERIFIED) == set(judged(early)) == {"ended as it says", "no pull request"}


LINE = "2/2 of main's own tests pass on the change · 1 new test fails without it · canaries caught"
TRIED = ExperimentFact(line=LINE, promises=1)


def judged_of(
    fact: ExperimentFact | None, in_result: str = LINE, in_receipt: str = LINE, promises: int = 1
) -> Evidence:
    tests = RESULT.tests.model_copy(update={"experiment": in_result, "promises": promises})
    receipt = RESULT.receipt.model_copy(update={"experiment": in_receipt})
    assert HOST.report is not None
    changed = HOST.report.model_copy(update={"experiment": fact})
    return replace(result(tests=tests, receipt=receipt), host=HOST.model_copy(update={"report": changed}))


@pytest.mark.parametrize(
    ("evidence", "mark", "words"),
    [
        (judged_of(TRIED), ClaimStatus.VERIFIED, f"{LINE}, 1 changed promise, added up from the report"),
        (
            judged_of(TRIED, in_result=LINE.replace("2/2", "3/3")),
            ClaimStatus.CONTRADICTED,
            f"the report comes to {LINE}",
        ),
        (judged_of(TRIED, promises=0), ClaimStatus.CONTRADICTED, "the report has 1 changed promise, the result 0"),
        (judged_of(TRIED, in_receipt=""), ClaimStatus.CONTRADICTED, "the receipt says nothing"),
        (judged_of(TRIED.model_copy(update={"tampered": True})), ClaimStatus.CONTRADICTED, "that tests were bent"),
        (judged_of(None), ClaimStatus.CONTRADICTED, "the report has none"),
        (replace(judged_of(TRIED), host=UnknownFacts("asleep")), ClaimStatus.UNKNOWN, "asleep"),
    ],
)
def test_what_the_experiments_have_shown_is_added_up_again(evidence: Evidence, mark: ClaimStatus, words: str) -> None:
    [claim] = [one for one in check_claims(evidence) if one.claim == "experiment"]
    assert (claim.mark, words in claim.explanation) == (mark, True), claim.explanation


@pytest.mark.parametrize(
    ("now", "base", "mark", "words"),
    [
        ({}, "b", ClaimStatus.VERIFIED, f"{LINE}, 1 changed promise, as before"),
        ({"experiment": LINE.replace("2/2", "1/2")}, "b", ClaimStatus.CONTRADICTED, "now it is 1/2 of"),
        ({"promises": 2}, "b", ClaimStatus.CONTRADICTED, "now it is"),
        ({"experiment": LINE.partition(" · ")[0]}, "b", ClaimStatus.UNKNOWN, "not all of it could be asked again"),
        ({"experiment": f"{LINE} · something new"}, "b", ClaimStatus.VERIFIED, "all of it, and more"),
        ({"tampered": 1, "status": "red"}, "b", ClaimStatus.CONTRADICTED, "1 place tampered with"),
        ({"promises": 2}, "c", ClaimStatus.UNKNOWN, "main has moved on to ccccccc"),
        ({"promises": 2, "flaky": 1}, "b", ClaimStatus.UNKNOWN, "tests are flaky"),
        ({"experiment": "", "status": "red"}, "b", ClaimStatus.UNKNOWN, "nothing more was tried"),
        ({"status": "skipped"}, "b", ClaimStatus.UNKNOWN, "without a verdict"),
        ({"tree_sha": sha("f")}, "b", ClaimStatus.UNKNOWN, "has moved to tree fffffff"),
    ],
)
def test_experiments_that_are_made_again_find_the_same_on_the_same_base(
    now: dict[str, Any], base: str, mark: ClaimStatus, words: str
) -> None:
    before = RESULT.model_copy(update={"tests": judged_of(TRIED).result.tests, "base_sha": sha("b")})
    tests = Verdict.model_validate({**before.tests.model_dump(), **now})
    found = compare_experiments(before, before.model_copy(update={"tests": tests, "base_sha": sha(base)}))
    assert (found[0], words in found[1]) == (mark, True), found[1]


@pytest.mark.parametrize(
    ("before", "now", "mark", "words"),
    [
        ({}, {}, ClaimStatus.VERIFIED, "green, 2 passed, 0 failed on tree ddddddd, as before (again)"),
        ({"flaky": 1}, {}, ClaimStatus.VERIFIED, "the receipt says green, 2 passed, 0 failed, 1 flaky (again)"),
        (
            {},
            {"flaky": 1},
            ClaimStatus.VERIFIED,
            "green, 2 passed, 0 failed, 1 flaky on tree ddddddd, the receipt says",
        ),
        ({"killed_runs": 1}, {}, ClaimStatus.VERIFIED, "0 failed, 1 run killed and done again (again)"),
        ({"passed": None, "flaky": 1}, {"passed": None}, ClaimStatus.VERIFIED, "green on tree"),
        ({}, {"passed": 1}, ClaimStatus.CONTRADICTED, "now it is green, 1 passed"),
        ({"flaky": 1}, {"passed": 1}, ClaimStatus.UNKNOWN, "tests are flaky; the receipt says"),
        ({"flaky": 1}, {"status": "red", "passed": 1, "failed": 1}, ClaimStatus.CONTRADICTED, "now it is red"),
        ({}, {"tree_sha": sha("f")}, ClaimStatus.UNKNOWN, "has moved to tree fffffff"),
        ({}, {"status": "skipped"}, ClaimStatus.UNKNOWN, "without a verdict"),
    ],
)
def test_a_flake_or_a_kill_that_the_other_run_did_not_see_is_named_and_contradicts_nothing(
    before: dict[str, Any], now: dict[str, Any], mark: ClaimStatus, words: str
) -> None:
    tests = [Verdict.model_validate({**RESULT.tests.model_dump(), **changed}) for changed in (before, now)]
    found = compare_tests(tests[0], RESULT.model_copy(update={"tests": tests[1]}), "again")
    assert (found[0], words in found[1]) == (mark, True), found[1]
