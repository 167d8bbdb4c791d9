"""The words of a pull request, of a comment on an issue and of a commit: what the home has sealed and its own
sentences, whatever the arguments of an activity say. Real activities, a real vault, a forge over HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from turn_fixtures import in_activity

from activities.forge import ForgeActivities
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker import sealed_facts
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.sealed_publishing import sealed_subject
from perdure.models.checks.report import Finding, FindingRule, Findings, Severity
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.publishing import ArtifactLinksInput, CommentInput, ShipInput
from perdure.models.delivery.result import PullRequest, ReviewResult, ReviewStatus
from perdure.models.delivery.turn import Contract, Outcome, TurnResult
from perdure.models.delivery.work import InspectResult
from perdure.models.issue import ForgeIssue
from tests.homes import fresh_home
from tests.repositories import CALC, make_target
from tests.twins.github import GitHubTwin

MADE_UP = "4321"
"""In everything that is claimed and nobody has sealed."""


@dataclass
class Delivery:
    """A prepared delivery whose facts are sealed, with a commit to publish. `common`: of every activity's input."""

    github: GitHubTwin
    host: Host
    vault: Vault
    contract: Contract
    common: dict[str, Any]
    head: str

    @property
    def facts(self) -> sealed_facts.SealedFacts:
        return self.host.facts("calc-sub")

    def findings(self, title: str) -> str:
        one = Finding(rule=FindingRule.SECRET, severity=Severity.TECH_DEBT, title=title)
        artifact = Findings(base=self.contract.base_sha, head=self.head, findings=(one,)).to_json()
        return self.vault.put_artifact("calc-sub", artifact)

    async def opens(self, **claims: Any) -> str:
        """The text of the pull request that is open afterwards."""
        work = ShipInput(base="main", branch="perdure/calc-sub", head=self.head, title=MADE_UP, **self.common, **claims)
        await in_activity(ForgeActivities(self.host).open_pull_request, work)
        (pull,) = self.github.pulls("me/calc")
        return f"{pull['title']}\n{pull['body']}"


@asynccontextmanager
async def prepared(tmp_path: Path) -> AsyncIterator[Delivery]:
    token = "ghp_" + "t0psecret" * 4
    async with GitHubTwin(tmp_path / "github", token=token) as github:
        github.add_repository("me/calc", source=make_target(tmp_path / "calc.git", CALC))
        env = {"PATH": os.environ["PATH"], "PERDURE_GITHUB_URL": github.url, "PERDURE_GITHUB_TOKEN": token}
        host, own = Host.from_environment(fresh_home(tmp_path / "home"), env), f"{github.url}/me/calc"
        vault = Vault.open_or_create(host.home, own, host.forges)
        base = await asyncio.to_thread(vault.fetch_branch, "main") or ""
        head = vault.objects.write_commit(vault.tree_of(base), [base], "feat: nothing")
        Workspace.create(host.home, vault, "calc-sub", base)
        number = github.add_issue("me/calc", "Add sub", "It is missing.")
        contract = Contract(
            delivery="calc-sub",
            repository=own,
            request="Add sub",
            base="main",
            base_sha=base,
            branch="perdure/calc-sub",
            config=RepositoryConfig(version=1),
            issue=ForgeIssue(number=number, title="Add sub", url=f"{own}/issues/{number}"),
            sealed=True,
        )
        stored = host.store_contract(vault, contract)
        common = {"delivery": "calc-sub", "contract": stored, "workflow_id": "calc-sub"}
        delivery = Delivery(github, host, vault, contract, common, head)
        delivery.facts.seal_facts(sealed_facts.commit_fact(head))
        yield delivery
        await host.close()


@pytest.mark.timeout(60)
async def test_a_pull_request_says_nothing_that_only_the_arguments_of_its_activity_say(tmp_path: Path) -> None:
    async with prepared(tmp_path) as delivery:
        tree, own = delivery.vault.tree_of(delivery.head), delivery.contract.repository
        findings = delivery.findings("a wide except")
        sealed = InspectResult(findings=findings, tech_debt=1)
        review = delivery.vault.put_artifact("calc-sub", b'{"summary": "x", "issues": []}')
        delivery.facts.seal_facts(
            sealed_facts.inspection_fact(tree, sealed),
            sealed_facts.review_fact(tree, review, 1, 2, 3),
            sealed_facts.link_fact("plan.md", f"{own}/plan.md"),
        )
        plan = delivery.vault.put_artifact("calc-sub", b'{"title": "4321", "problem": "4321", "solution": "4321"}')
        body = await delivery.opens(
            draft=True,
            draft_reason=f"all {MADE_UP} are green",
            review=review,
            review_result=ReviewResult(status=ReviewStatus.BLOCKED, blockers=4321),
            plan=plan,
            findings=delivery.findings(MADE_UP),
            screenshots=MADE_UP,
            assumptions=(f"it is right {MADE_UP} times",),
            artifacts={
                "plan.md": f"{own}/plan.md",
                "tests.md": f"{own}/{MADE_UP}",
                "review.md": "https://evil.invalid",
            },
            spend={"usd": 4321.0},
        )
        assert MADE_UP not in body
        assert "evil" not in body
        assert f"{own}/plan.md" in body
        assert "**Draft:** not tested: the test phase was not selected; the review found blockers" in body
        assert "1 blocker, 3 tech debt, 3 skippable" in body
        assert "cost: $0.00" in body

        result = TurnResult(checkpoint="c", summary="s", assumption="it rounds down")
        sealed_facts.seal_texts(delivery.facts, result)
        body = await delivery.opens(draft=True, findings=findings, assumptions=("it rounds down", MADE_UP))
        assert "it rounds down" in body
        assert "a wide except" in body
        assert MADE_UP not in body


@pytest.mark.timeout(60)
async def test_a_comment_says_nothing_that_only_the_arguments_of_its_activity_say(tmp_path: Path) -> None:
    async with prepared(tmp_path) as delivery:
        pull = PullRequest(number=7, title="feat: add sub", url=f"{delivery.contract.repository}/pull/7", draft=True)
        delivery.facts.seal_facts(sealed_facts.pull_request_fact(pull), sealed_facts.review_fact("t" * 40, "r", 0, 1))
        ready = pull.model_copy(update={"draft": False})
        clean = ReviewResult(status=ReviewStatus.CLEAN, tech_debt=4321)
        made_up = {"message": MADE_UP, "reason": MADE_UP, "branch": f"hijacked-{MADE_UP}", "review_result": clean}
        assert delivery.contract.issue is not None

        async def comments(**claims: Any) -> str:
            work = CommentInput(**delivery.common, **{**made_up, **claims})
            await in_activity(ForgeActivities(delivery.host).comment, work)
            *_, newest = delivery.github.comments("me/calc", 1)
            assert MADE_UP not in newest["body"]
            return str(newest["body"])

        assert "**Pull request #7 is open as a draft.**" in await comments(status="delivered", pull_request=ready)
        assert "review: clean, 0 blockers, 1 tech debt" in await comments(status="delivered", pull_request=ready)
        assert "**Done; no pull request was asked for.**" in await comments(status="delivered")
        assert "**Not delivered: tests are red.**" in await comments(status="not_delivered", reason="tests_red")
        assert "**Waiting for a person: approve the plan**" in await comments(waiting=MADE_UP, gate="plan")
        assert "**Waiting for a person: answer a question**" in await comments(waiting=MADE_UP, gate="question")
        assert "**Waiting for a person: a decision**" in await comments(waiting=MADE_UP, gate=MADE_UP)


@pytest.mark.timeout(60)
async def test_documents_that_no_activity_has_made_are_not_published_and_a_commit_is_named_by_what_was_said_here(
    tmp_path: Path,
) -> None:
    async with prepared(tmp_path) as delivery:
        artifact = delivery.vault.put_artifact("calc-sub", MADE_UP.encode())
        names = ("plan", "report", "review", "findings", "screenshots")
        work = ArtifactLinksInput(
            delivery="calc-sub", contract=delivery.common["contract"], **dict.fromkeys(names, artifact)
        )
        published = await in_activity(ForgeActivities(delivery.host).publish_artifacts, work)
        assert [*published.links] == ["receipt.json"]
        facts, vault, contract = delivery.facts, delivery.vault, delivery.contract
        assert sealed_facts.link_fact("receipt.json", published.links["receipt.json"]) in facts

        assert sealed_subject(facts, vault, contract, MADE_UP) == "Add sub"
        outcome = Outcome(summary="Subtract, with tests")
        sealed_facts.seal_texts(facts, TurnResult(checkpoint="c", summary="s", outcome=outcome))
        assert sealed_subject(facts, vault, contract, "Subtract, with tests") == "Subtract, with tests"
        facts.seal_facts(sealed_facts.plan_fact("a" * 64, "Add typed sub"))
        assert sealed_subject(facts, vault, contract, "Add typed sub") == "Add typed sub"
        began_before = contract.model_copy(update={"sealed": False})
        assert sealed_subject(facts, vault, began_before, "As it was") == "As it was"
