"""The words of a delivery's pull request, of the comment on its issue and of its commits: made of its sealed facts, its
contract and sentences of this home's own, in place of what a workflow claims.

A claim that no fact supports is left out or put right, never refused: a delivery that an earlier release began has
fewer facts, and is published all the same.
"""

from __future__ import annotations

from perdure.adapters.git.vault import Vault
from perdure.adapters.worker.sealed_facts import (
    Fact,
    SealedFacts,
    document_fact,
    link_fact,
    published_title,
    pull_request_fact,
    text_fact,
)
from perdure.models.budget.ledger import Spend
from perdure.models.delivery.decisions import Gate
from perdure.models.delivery.publishing import ArtifactLinksInput, CommentInput, ShipInput
from perdure.models.delivery.result import PullRequest, Reason, ReviewResult, ReviewStatus, Status
from perdure.models.delivery.turn import Contract
from perdure.models.delivery.work import InspectResult
from perdure.models.ids import delivery_key
from perdure.models.rules.gates import draft_reasons

_WAITING_TEXTS: dict[str, str] = {
    Gate.PLAN: "approve the plan",
    Gate.ITEMS: "approve the items",
    Gate.TESTS: "are the failing tests new?",
    Gate.PULL_REQUEST: "approve the pull request",
    Gate.BUDGET: "add to its budget, or end it",
    Gate.QUESTION: "answer a question",
    Gate.DEATHS: "try again what was cut off, or end it",
    Gate.LANDING: "mend once more what could not land, or end it",
}
"""Sentences about the gate at which a delivery waits."""


def restate_pull_request(
    facts: SealedFacts, vault: Vault, contract: Contract, spend: Spend, work: ShipInput
) -> ShipInput:
    """Return the input with what its pull request may say: the title of the sealed plan or the contract, documents,
    links, counts and assumptions that this home has sealed, why it is a draft in this home's sentences, and `spend`,
    what its log says was paid. That of a delivery which began before facts were sealed is returned as it is."""
    if not contract.sealed:
        return work
    tree = vault.tree_of(work.head)
    review_result = _sealed_review_result(facts, work.review_result, work.review)
    return work.model_copy(
        update={
            "workflow_id": _own_workflow_id(work.delivery, work.workflow_id),
            "title": published_title(facts, vault, contract, work.plan, work.title),
            "draft_reason": _draft_reason(facts, contract, tree, review_result, work) if work.draft else "",
            "plan": _sealed_plan(facts, work.plan),
            "review_result": review_result,
            "spend": spend,
            "artifacts": {name: url for name, url in work.artifacts.items() if link_fact(name, url) in facts},
            "findings": _sealed_findings(facts, work.findings, tree),
            "screenshots": _sealed_document(facts, "screenshots", work.screenshots),
            "assumptions": tuple(text for text in work.assumptions if text_fact("assumption", text) in facts),
        }
    )


def restate_artifacts(facts: SealedFacts, contract: Contract, work: ArtifactLinksInput) -> ArtifactLinksInput:
    """Return the input without the documents that no activity of this home has made for the delivery."""
    if not contract.sealed:
        return work
    reviews = [fact[2] for fact in facts if fact[0] == "review"]
    return work.model_copy(
        update={
            "plan": _sealed_plan(facts, work.plan),
            "report": _sealed_document(facts, "report", work.report),
            "review": work.review if work.review in reviews else "",
            "findings": _sealed_findings(facts, work.findings),
            "screenshots": _sealed_document(facts, "screenshots", work.screenshots),
        }
    )


def restate_comment(facts: SealedFacts, contract: Contract, work: CommentInput) -> CommentInput:
    """Return the input with what a comment on an issue may say: status and reason of the lists that this home knows, no
    message, what is waited for in this home's sentences or as the agent's sealed question, the contract's branch, and
    of the review the sealed counts. Whether its pull request is a draft says the fact that it was opened."""
    if not contract.sealed:
        return work
    pull, status = work.pull_request, work.status
    if pull is not None:
        pull = pull.model_copy(update={"draft": _opened_as_draft(facts, pull)})
    if status in (Status.DELIVERED, Status.DRAFT):
        status = Status.COMPLETED if pull is None else Status.DRAFT if pull.draft else Status.DELIVERED
    return work.model_copy(
        update={
            "workflow_id": _own_workflow_id(work.delivery, work.workflow_id),
            "branch": work.branch if work.branch in contract.branches.values() else contract.branch,
            "status": status,
            "reason": work.reason if work.reason in set(Reason) else "",
            "message": "",
            "waiting": _waiting_text(facts, work),
            "pull_request": pull,
            "review_result": _sealed_review_result(facts, work.review_result),
        }
    )


def sealed_subject(facts: SealedFacts, vault: Vault, contract: Contract, claimed: str) -> str:
    """Return the subject of a commit on the delivery's own branch: `claimed`, where it is the title of a sealed plan or
    the summary of a turn that was made here; else the text by which the delivery is named."""
    titles = [fact[2] for fact in facts if fact[0] == "plan"]
    if not contract.sealed or claimed in titles or text_fact("summary", claimed) in facts:
        return claimed
    return published_title(facts, vault, contract, "", "")


def _own_workflow_id(delivery: str, workflow_id: str) -> str:
    """Return the id of the delivery's workflow where it is that, else the delivery's key."""
    return workflow_id if delivery_key(workflow_id) == delivery else delivery


def _sealed_plan(facts: SealedFacts, plan: str) -> str:
    return plan if any(fact[:2] == ("plan", plan) for fact in facts) else ""


def _sealed_document(facts: SealedFacts, name: str, artifact: str) -> str:
    return artifact if document_fact(name, artifact) in facts else ""


def _sealed_findings(facts: SealedFacts, artifact: str, tree: str = "") -> str:
    """Return the artifact where it holds the engine's findings in this tree, in any with an empty `tree`; else an empty
    text."""
    inspections = [fact for fact in facts if fact[0] == "inspection" and tree in ("", fact[1])]
    return artifact if any(artifact in fact[6:] for fact in inspections) else ""


def _sealed_review_result(facts: SealedFacts, claim: ReviewResult, review: str = "") -> ReviewResult:
    """Return the counts of the review and of the engine's own look at the same tree: those that are claimed where they
    were found here, else those of the newest review, or of `review`, an artifact. Where an earlier release made it,
    which sealed no counts, return what is claimed; where no review was made, that there was none."""
    reviews = [fact for fact in facts if fact[0] == "review" and review in ("", fact[2])]
    if claim.status is ReviewStatus.SKIPPED or not reviews:
        return ReviewResult()
    results = [
        look.with_review({"blocker": int(blockers), "tech_debt": int(tech_debt), "skippable": int(skippable)})
        for _, tree, _, blockers, tech_debt, skippable in (fact for fact in reviews if len(fact) == 6)
        for look in _inspections(facts, tree)
    ]
    if not results:
        return claim
    claimed_counts = claim.model_copy(update={"report": None, "findings": None})
    return claimed_counts if claimed_counts in results else results[-1]


def _inspections(facts: SealedFacts, tree: str) -> list[InspectResult]:
    """Return the counts of each of the engine's own looks at a tree; one without findings where there was none."""
    looks = [
        InspectResult(blockers=int(fact[2]), tech_debt=int(fact[4]), skippable=int(fact[5]))
        for fact in facts
        if fact[:2] == ("inspection", tree) and len(fact) > 5
    ]
    return looks or [InspectResult()]


def _draft_reason(
    facts: SealedFacts, contract: Contract, tree: str, review_result: ReviewResult, work: ShipInput
) -> str:
    """Return why a pull request is a draft, in this home's sentences; empty where nothing is missing and it is claimed
    that nothing is."""
    reasons = draft_reasons(
        work.tests,
        review_result.status,
        allow_untested=contract.config.ship.allow_untested,
        is_accepted=bool(work.accepted),
    )
    if not reasons and any(look.blockers for look in _inspections(facts, tree)):
        reasons = ["the engine found blockers"]
    return "; ".join(reasons or (["it did not come to its end"] if work.draft_reason else []))


def _opened_as_draft(facts: SealedFacts, pull: PullRequest) -> bool:
    """Return whether the pull request was a draft when this home opened or updated it last; what is claimed, where an
    earlier release did."""
    opened: list[Fact] = [fact for fact in facts if fact[:3] == pull_request_fact(pull)[:3]]
    return opened[-1][3] == "draft" if opened and len(opened[-1]) > 3 else pull.draft


def _waiting_text(facts: SealedFacts, work: CommentInput) -> str:
    """Return what a person has to decide, in one line; empty: nothing. A question is named in its own words where an
    agent of this home asked it."""
    if work.gate == Gate.QUESTION and text_fact("question", work.waiting) in facts:
        return work.waiting
    return _WAITING_TEXTS.get(work.gate, "a decision") if work.waiting else ""
