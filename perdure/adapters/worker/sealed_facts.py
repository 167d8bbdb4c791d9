"""Facts about a delivery's work, sealed by the activity that found them with this home's key: which commits were made,
what tests and reviews said of which files. Only sealed ones are published: what an activity is told by a workflow, or
finds in history, anybody can have written who reaches Temporal.

A fact stands beside the delivery's journal, with a keyed hash over the delivery and itself.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator

from perdure.adapters.git.vault import Vault
from perdure.adapters.repository.terms import delivery_title
from perdure.adapters.system.files import append_json_line, read_json_lines
from perdure.adapters.system.home import Home
from perdure.models.checks.report import Severity
from perdure.models.delivery.publishing import CommentInput, ShipInput
from perdure.models.delivery.request import keyed_hash
from perdure.models.delivery.result import PullRequest, ReviewResult, ReviewStatus, TestsStatus
from perdure.models.delivery.turn import Contract, Ending, TurnInput, TurnResult
from perdure.models.delivery.work import InspectResult, TestVerdict
from perdure.models.errors import Diverged
from perdure.models.ids import digest
from perdure.models.phases import Phase
from perdure.text import shorten

Fact = tuple[str, ...]

TITLE_WORDS_CHARS = 60
"""The most characters of a request that name its pull request, where neither plan nor issue does."""


class SealedFacts:
    """The sealed facts of one delivery on this host."""

    def __init__(self, home: Home, delivery: str) -> None:
        self._home, self._delivery = home, delivery
        self._path = home.workspace(delivery) / "facts.jsonl"

    def seal_facts(self, *facts: Fact) -> None:
        """Record facts. The same ones again do no harm."""
        if facts:
            lines = ({"fact": fact, "seal": self._sign_fact(fact)} for fact in facts)
            append_json_line(self._path, *lines, sync=True)

    def copy_facts(self, other: SealedFacts) -> None:
        """Seal the facts of another delivery, whose work this one goes on with, for this one."""
        self.seal_facts(*other)

    def __contains__(self, fact: Fact) -> bool:
        return any(fact == recorded for recorded in self)

    def __iter__(self) -> Iterator[Fact]:
        for entry in read_json_lines(self._path):
            fact = tuple(map(str, entry.get("fact") or ()))
            if hmac.compare_digest(str(entry.get("seal")).encode(), self._sign_fact(fact).encode()):
                yield fact

    def _sign_fact(self, fact: Fact) -> str:
        return keyed_hash(self._home.key(), "fact", json.dumps([self._delivery, *fact]).encode())


def commit_fact(commit: str) -> Fact:
    """Return the fact that a commit was made for the delivery."""
    return "commit", commit


def tests_fact(contract: Contract, verdict: TestVerdict) -> Fact:
    """Return the fact that the tests' verdict on its tree is this one, all of it, compared with the contract's base."""
    return "tests", contract.base_sha, verdict.tree, digest(verdict.model_dump_json())


def seal_review(facts: SealedFacts, vault: Vault, work: TurnInput, result: TurnResult) -> None:
    """Seal what a turn of a review tells: with the first one the tree that is reviewed, with the last one its outcome
    on that tree."""
    if head := work.materials.get("head"):  # of the first turn alone
        facts.seal_facts(("reviewing", str(work.attempt), vault.tree_of(head)))
    trees = [fact[2] for fact in facts if fact[:2] == ("reviewing", str(work.attempt))]
    if result.outcome is not None and result.outcome.ending is Ending.DONE and trees:
        counts = (int(result.outcome.data.get(severity, 0)) for severity in Severity)
        facts.seal_facts(review_fact(trees[-1], result.outcome.artifact, *counts))


def review_fact(tree: str, review: str, blockers: int, tech_debt: int = 0, skippable: int = 0) -> Fact:
    """Return the fact that a review of this tree, an artifact, found that many issues of each severity."""
    return "review", tree, review, str(blockers), str(tech_debt), str(skippable)


def seal_texts(facts: SealedFacts, result: TurnResult) -> None:
    """Seal what a turn's agent says that may be published: its summary, which names a commit, what it assumed, and its
    question."""
    texts = {
        "summary": result.outcome.summary if result.outcome is not None else "",
        "assumption": result.assumption,
        "question": result.question.line if result.question is not None else "",
    }
    facts.seal_facts(*(text_fact(kind, text) for kind, text in texts.items() if text))


def text_fact(kind: str, text: str) -> Fact:
    """Return the fact that an agent of this delivery said this text, as its summary, assumption or question."""
    return "text", kind, digest(text)


def document_fact(name: str, artifact: str) -> Fact:
    """Return the fact that this artifact was made here for the delivery as its `report` or `screenshots`."""
    return "document", name, artifact


def link_fact(name: str, url: str) -> Fact:
    """Return the fact that a document of the delivery was published at this address."""
    return "link", name, url


def plan_fact(plan: str, title: str) -> Fact:
    """Return the fact that this plan, an artifact, was made for the delivery, or accepted as a person's edit of it, and
    that the change is named so by it."""
    return "plan", plan, title


def published_title(facts: SealedFacts, vault: Vault, contract: Contract, plan: str, claimed: str) -> str:
    """Return the text by which a delivery's pull request, and its commit on a shared branch, is named: of the sealed
    plan `plan`, else of the contract: its parent's, its issue's, or the request's first words. `claimed`, what the
    workflow names it, counts only for a delivery that began before facts were sealed."""
    if not contract.sealed:
        return claimed
    titles = [
        title
        for name, artifact, title in (fact for fact in facts if len(fact) == 3)
        if (name, artifact) == ("plan", plan)
    ]
    parent_title = contract.parent_delivery.title if contract.parent_delivery is not None else ""
    own_title = (titles[-1] if titles else "") or parent_title or delivery_title(vault, contract)
    return own_title or shorten(" ".join(contract.request.split()), TITLE_WORDS_CHARS)


def inspection_fact(tree: str, result: InspectResult) -> Fact:
    """Return the fact that the engine found this in the change up to this tree: so many blockers, secrets and others,
    and an artifact that names them."""
    counts = (result.blockers, result.secrets, result.tech_debt, result.skippable)
    return "inspection", tree, *map(str, counts), result.findings


def move_fact(repository: str, branch: str, onto: str, head: str) -> Fact:
    """Return the fact that a backlog's branch may be moved from `onto` to `head`: made there from its base, and not
    red."""
    return "move", repository, branch, onto, head


def pull_request_fact(pull: PullRequest) -> Fact:
    """Return the fact that the home has opened this pull request for the delivery, or updated the one that was open."""
    return "pull request", str(pull.number), pull.url, "draft" if pull.draft else "ready"


def require_commit(facts: SealedFacts, vault: Vault, contract: Contract, commit: str) -> None:
    """Raise Diverged unless the commit was made for the delivery, or is the one it began on; do nothing for a delivery
    that began before facts were sealed."""
    if contract.sealed and commit != (contract.head or contract.base_sha) and commit_fact(commit) not in facts:
        raise Diverged(f"{commit[:12]} is no commit that was made here for this delivery")


def require_no_secret(facts: SealedFacts, vault: Vault, contract: Contract, commit: str, *, blockers: bool) -> None:
    """Raise Diverged unless the engine looked at the change up to this commit and found no secret and, unless
    `blockers` may be there, no blocker; do nothing for a delivery that began before facts were sealed."""
    inspections = [fact[2:4] for fact in facts if fact[:2] == ("inspection", vault.tree_of(commit))]
    if contract.sealed and not any(secrets == "0" and (blockers or count == "0") for count, secrets in inspections):
        raise Diverged(f"nobody has looked at {commit[:12]} here and found nothing that forbids it")


def require_verdict(facts: SealedFacts, contract: Contract, verdict: TestVerdict | None) -> None:
    """Raise Diverged when the tests did not give this verdict here, or there is none although the delivery's phases
    have tests; do nothing for a delivery that began before facts were sealed."""
    if not contract.sealed or (verdict is None and Phase.TEST not in contract.config.delivery.phases):
        return
    if verdict is None or tests_fact(contract, verdict) not in facts:
        raise Diverged(f"no tests gave that verdict here{f' on {verdict.tree[:12]}' if verdict is not None else ''}")


def require_review(facts: SealedFacts, claim: ReviewResult, review: str = "") -> None:
    """Raise Diverged when a review is said to be clean and none that was made here found no blockers, or when `review`,
    an artifact, is that of none."""
    outcomes = [fact[2:4] for fact in facts if fact[0] == "review"]
    if claim.status is ReviewStatus.CLEAN and not any(blockers == "0" for _, blockers in outcomes):
        raise Diverged("no review that found no blockers was made here for this delivery")
    if review and review not in [artifact for artifact, _ in outcomes]:
        raise Diverged(f"{review[:12]} is no review that was made here for this delivery")


def require_comment(facts: SealedFacts, contract: Contract, work: CommentInput) -> None:
    """Raise Diverged unless this home opened the pull request and made the verdict and the review that a comment names,
    as far as it names any; do nothing for a delivery that began before facts were sealed."""
    if not contract.sealed:
        return
    require_review(facts, work.review_result)
    if work.tests is not None:
        require_verdict(facts, contract, work.tests)
    pull = work.pull_request  # facts of earlier releases do not tell a draft
    if pull is not None and not any(fact[:3] == pull_request_fact(pull)[:3] for fact in facts):
        raise Diverged(f"pull request #{pull.number} was not opened here for this delivery")


def require_publishable(facts: SealedFacts, vault: Vault, contract: Contract, work: ShipInput) -> None:
    """Raise Diverged unless this home's own facts allow what a pull request says: commit, verdict, and for one that is
    no draft green tests and a review without blockers, as far as the delivery's phases have them. A person may have
    accepted red tests. Do nothing for a delivery that began before facts were sealed."""
    require_commit(facts, vault, contract, work.head)
    if not contract.sealed:
        return
    if Phase.SHIP not in contract.config.delivery.phases:
        raise Diverged("this delivery was not asked to open a pull request")
    require_no_secret(facts, vault, contract, work.head, blockers=work.draft)
    require_review(facts, work.review_result, work.review)
    if work.tests is not None or not work.draft:
        require_verdict(facts, contract, work.tests)
    if work.draft:
        return
    if (
        work.tests is not None
        and work.tests.status is TestsStatus.RED
        and not (work.accepted and work.tests.undecidable)
    ):
        raise Diverged("tests are red, and nobody has accepted that")
    is_reviewed = Phase.REVIEW in contract.config.delivery.phases or work.review
    clean_review = review_fact(vault.tree_of(work.head), work.review, 0)[:4]
    if is_reviewed and not any(fact[:4] == clean_review for fact in facts):
        raise Diverged(f"no review of {work.head[:12]} was made here that found no blockers")
