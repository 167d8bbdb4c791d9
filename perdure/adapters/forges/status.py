"""The text of the one comment on an issue: how its delivery stands, what it came to, what to do next."""

from __future__ import annotations

from perdure.adapters.forges.neutral import code, line, web_address
from perdure.models.contract import Contract
from perdure.models.ledger import Spend
from perdure.models.publishing import CommentInput
from perdure.models.result import Reason, Receipt, ReviewStatus, Status, TestsStatus
from perdure.models.webui.details import dollars

STATUS_CHARS = 4000
"""Of the comment on an issue: a screen or two."""


_WHY: dict[str, str] = {
    Reason.TESTS_RED: "tests are red",
    Reason.BLOCKERS: "the review found blockers that remain",
    Reason.TAMPERED: "tests were changed that had to stay",
    Reason.BUDGET: "the budget is spent",
    Reason.REFUSED: "the model refused",
    Reason.LIMITS: "a limit was reached",
    Reason.PLAN_REJECTED: "the plan was rejected",
    Reason.WORKSPACE_LOST: "its workspace was lost",
    Reason.SETUP_FAILED: "setup failed",
    Reason.FORGE_REFUSED: "the repository does not let it",
}

_BEGINS = ("where: ", "fix: ")
"""The beginnings of an error's second and third line."""


def status_comment(
    work: CommentInput, contract: Contract, receipt: Receipt | None = None, spend: Spend | None = None, watch: str = ""
) -> str:
    """Markdown, at most STATUS_CHARS characters, without the hidden marker. `watch`: a page where it can be followed;
    `receipt` and `spend` None: not said."""
    facts = _facts(work, contract, receipt, spend)
    parts = [
        f"**{_headline(work)}**",
        *_message(work.message),
        "\n".join(f"- {fact}" for fact in facts),
        _next(work, contract, watch),
    ]
    text = "\n\n".join(part for part in parts if part)
    return text if len(text) <= STATUS_CHARS else text[: STATUS_CHARS - 1] + "…"


def _message(text: str) -> list[str]:
    """A paragraph of what it says, and one each of where it is and what to do about it, as errors have them."""
    paragraphs: list[list[str]] = [[]]
    for said in filter(None, (said.strip() for said in text.splitlines())):
        if said.startswith(_BEGINS):
            paragraphs.append([])
        paragraphs[-1].append(said)
    return [line(" ".join(said)) for said in paragraphs if said]


def _headline(work: CommentInput) -> str:
    pull = f"Pull request #{work.pull_request.number}" if work.pull_request else ""
    why = _WHY.get(work.reason) or line(work.reason.replace("_", " "), 100)
    match work.status:
        case "running":
            waiting = line(work.waiting, 300)
            return f"Waiting for a person: {waiting}" if waiting else "Perdure is working on this."
        case Status.DELIVERED:
            return f"{pull} is ready." if pull else "The branch is pushed."
        case Status.DRAFT:
            doubt = f": {why}" if why else ""
            return f"{pull} is open as a draft{doubt}." if pull else f"The branch is pushed{doubt}."
        case Status.COMPLETED:
            return "Done; no pull request was asked for."
        case Status.NO_CHANGES:
            return "There was nothing to change."
        case Status.CANCELLED:
            return "Cancelled."
        case _:
            return f"Not delivered: {why}." if why else "Not delivered."


def _facts(work: CommentInput, contract: Contract, receipt: Receipt | None, spend: Spend | None) -> list[str]:
    origin = f"{code(contract.base)} at `{contract.base_sha[:12]}`"
    if work.status == "running":
        budget = dollars(contract.config.limits.budget_usd)
        return [f"branch {code(work.branch or contract.branch)}, from {origin}", f"spends at most {budget}"]
    facts = [f"branch {code(work.branch or contract.branch)}, from {origin}"] if work.pull_request else []
    if work.tests is not None and work.tests.status is TestsStatus.NONE:
        facts.append("tests: the repository has no test command")
    elif work.tests is not None:
        facts.append(f"tests: {line(work.tests.summary, 300)}, on tree `{work.tests.tree[:12]}`")
        if work.tests.promises:
            number = "1 test" if work.tests.promises == 1 else f"{work.tests.promises} tests"
            facts.append(f"changed promises: {number} of {code(contract.base)} that the change does not keep")
    review = work.review_result
    if review.status is not ReviewStatus.SKIPPED:
        facts.append(f"review: {review.status}, {review.blockers} blockers, {review.tech_debt} tech debt")
    if spend is not None:
        risk = f", at most {dollars(spend.at_risk_usd)} more for replies cut off" if spend.at_risk_usd else ""
        facts.append(f"cost: {dollars(spend.usd)}{risk}")
    if receipt is not None:
        facts.append(
            f"receipt: worker deaths {receipt.worker_deaths}, turns redone {receipt.turns_redone}, "
            f"replies paid twice {receipt.replies_paid_twice}"
        )
    return facts


def _next(work: CommentInput, contract: Contract, watch: str) -> str:
    pull, name = work.pull_request, work.workflow_id
    page = f" [Watch it]({watch})." if web_address(watch) else ""
    if work.waiting:
        return f"**Next:** {code(f'perdure show {name}')} says how to decide.{page}"
    if work.status == "running":
        return f"This comment is edited when it is done; {code(f'perdure show {name}')} says more meanwhile.{page}"
    if pull is not None:
        closes = " Merging it closes this issue." if contract.config.ship.close_issue else ""
        look = "Look at what is missing" if work.status != Status.DELIVERED or pull.draft else "Review and merge it"
        return f"**Next:** {look}: #{pull.number}.{closes}"
    if work.status in (Status.NOT_DELIVERED, Status.CANCELLED, Status.NO_CHANGES):
        show, retry = code(f"perdure show {name}"), code(f"perdure retry {name}")
        return f"**Next:** {show} says more, {retry} goes on where it stopped.{page}"
    return f"**Next:** {code(f'perdure show {name}')}{page}"
