"""What a change is named by where it is published: the plan or the contract of its home, never what a workflow says."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.adapters.worker import sealed_facts
from perdure.adapters.worker.sealed_facts import (
    SealedFacts,
    plan_fact,
    published_title,
    pull_request_fact,
    require_comment,
    require_publishable,
    review_fact,
)
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.publishing import CommentInput, ShipInput
from perdure.models.delivery.result import PullRequest, ReviewResult, ReviewStatus, TestsStatus
from perdure.models.delivery.turn import Contract
from perdure.models.delivery.work import InspectResult, TestVerdict
from perdure.models.errors import Diverged
from tests.repositories import CALC, make_target

PLAN, ANOTHER = "a" * 64, "b" * 64


@pytest.mark.timeout(60)
def test_a_change_is_named_by_its_sealed_plan_or_its_request_and_by_nothing_that_is_claimed(tmp_path: Path) -> None:
    home, url = Home(tmp_path / "home"), str(make_target(tmp_path / "calc.git"))
    vault, facts = Vault.open_or_create(home, url), SealedFacts(home, "calc-sub")
    contract = Contract(
        delivery="calc-sub",
        repository=url,
        request="Add sub,\nand test it",
        base="main",
        base_sha="0" * 40,
        branch="perdure/calc-sub",
        config=RepositoryConfig(version=1),
        sealed=True,
    )
    assert published_title(facts, vault, contract, PLAN, "Hijacked") == "Add sub, and test it"
    SealedFacts(home, "another").seal_facts(plan_fact(PLAN, "Hijacked"))
    assert published_title(facts, vault, contract, PLAN, "Hijacked") == "Add sub, and test it"
    facts.seal_facts(plan_fact(PLAN, "Add typed sub"), plan_fact(ANOTHER, "Add another"))
    assert published_title(facts, vault, contract, PLAN, "Hijacked") == "Add typed sub"
    facts.seal_facts(plan_fact(PLAN, "Add sub as edited"))
    assert published_title(facts, vault, contract, PLAN, "Hijacked") == "Add sub as edited"
    before_facts = contract.model_copy(update={"sealed": False})
    assert published_title(facts, vault, before_facts, PLAN, "As it was") == "As it was"


def test_a_comment_names_no_verdict_no_review_and_no_pull_request_that_the_home_has_not_made(tmp_path: Path) -> None:
    facts = SealedFacts(Home(tmp_path / "home"), "calc-sub")
    contract = Contract(
        delivery="calc-sub",
        repository="https://github.com/me/calc",
        request="Add sub",
        base="main",
        base_sha="0" * 40,
        branch="perdure/calc-sub",
        config=RepositoryConfig(version=1),
        sealed=True,
    )
    review = ReviewResult(status=ReviewStatus.CLEAN, tech_debt=1)
    pull = PullRequest(number=7, title="feat: add sub", url="https://github.com/me/calc/pull/7")
    verdict = TestVerdict(status=TestsStatus.GREEN, tree="1" * 40, summary="4321 passed")
    works = [
        CommentInput(delivery="calc-sub", contract=PLAN, workflow_id="calc-sub", status="delivered", **named)
        for named in ({"pull_request": pull}, {"tests": verdict}, {"review_result": review})
    ]
    for work in works:
        with pytest.raises(Diverged):
            require_comment(facts, contract, work)
        require_comment(facts, contract.model_copy(update={"sealed": False}), work)
    facts.seal_facts(review_fact("1" * 40, ANOTHER, 1))
    with pytest.raises(Diverged, match="no review that found no blockers was made here"):
        require_comment(facts, contract, works[2])
    facts.seal_facts(pull_request_fact(pull), sealed_facts.tests_fact(contract, verdict))
    facts.seal_facts(review_fact("2" * 40, PLAN, 0))
    for work in works:
        require_comment(facts, contract, work)
    with pytest.raises(Diverged, match="pull request #8 was not opened here"):
        require_comment(
            facts, contract, works[0].model_copy(update={"pull_request": pull.model_copy(update={"number": 8})})
        )


def test_a_pull_request_that_nobody_reviewed_here_says_of_no_review_that_it_was_clean(tmp_path: Path) -> None:
    home, url = Home(tmp_path / "home"), str(make_target(tmp_path / "calc.git", CALC))
    vault, facts = Vault.open_or_create(home, url), SealedFacts(home, "calc-sub")
    base = vault.fetch_branch("main")
    assert base is not None
    phases = RepositoryConfig.model_validate({"version": 1, "delivery": {"phases": ["build", "ship"]}})
    contract = Contract(
        delivery="calc-sub",
        repository=url,
        request="Add sub",
        base="main",
        base_sha=base,
        branch="perdure/calc-sub",
        config=phases,
        sealed=True,
    )
    work = ShipInput(
        delivery="calc-sub", contract=PLAN, workflow_id="calc-sub", base="main", branch="b", head=base, title="x"
    )
    facts.seal_facts(sealed_facts.inspection_fact(vault.tree_of(base), InspectResult()))
    require_publishable(facts, vault, contract, work)
    clean = work.model_copy(update={"review_result": ReviewResult(status=ReviewStatus.CLEAN)})
    foreign = work.model_copy(update={"draft": True, "review": ANOTHER})
    for claim in (clean, clean.model_copy(update={"draft": True}), foreign):
        with pytest.raises(Diverged, match="review"):
            require_publishable(facts, vault, contract, claim)
    facts.seal_facts(review_fact(vault.tree_of(base), ANOTHER, 0))
    for claim in (clean, foreign):
        require_publishable(facts, vault, contract, claim)
