"""The text of the one comment that a delivery keeps on its issue: what it is doing or how it ended, and what a person
can do next. `activities.forge` has it written by the forge (HostedForge.write_status_comment)."""

from __future__ import annotations

from perdure.adapters.forges.markdown import code_span, neutral_line
from perdure.models.budget.ledger import Spend
from perdure.models.delivery.publishing import CommentInput
from perdure.models.delivery.result import Reason, Receipt, ReviewStatus, Status
from perdure.models.delivery.result_text import receipt_counts, review_line, spent_line, untested_text
from perdure.models.delivery.turn import Contract
from perdure.text import format_count, format_money, is_web_address, shell_word, shorten

STATUS_CHARS = 4000
"""The most characters of the comment on an issue: a screen or two."""


_REASON_TEXTS: dict[str, str] = {
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
    Reason.INVALID_REQUEST: "the request is not valid",
}

_PARAGRAPH_STARTS = ("where: ", "fix: ")
"""The beginnings of an error's second and third line."""


def status_comment(
    work: CommentInput,
    contract: Contract,
    receipt: Receipt | None = None,
    spend: Spend | None = None,
    watch_url: str = "",
) -> str:
    """Return the comment on a delivery's issue in Markdown, at most STATUS_CHARS characters, without the hidden marker:
    a headline, the message, facts, and the next step. It is not sent here.

    `watch_url`: a page where the delivery can be followed; `receipt` and `spend` None: they are left out.
    """
    facts = _fact_lines(work, contract, receipt, spend)
    parts = [
        f"**{_status_headline(work)}**",
        *_message_paragraphs(work.message),
        "\n".join(f"- {fact}" for fact in facts),
        _next_step(work, contract, watch_url),
    ]
    text = "\n\n".join(part for part in parts if part)
    return shorten(text, STATUS_CHARS)


def _message_paragraphs(text: str) -> list[str]:
    """Split a message into paragraphs and return each as one neutral line. A new one begins at a line that starts with
    `where: ` or `fix: `, as the second and third line of an error do."""
    paragraphs: list[list[str]] = [[]]
    for part in filter(None, (part.strip() for part in text.splitlines())):
        if part.startswith(_PARAGRAPH_STARTS):
            paragraphs.append([])
        paragraphs[-1].append(part)
    return [neutral_line(" ".join(part)) for part in paragraphs if part]


def _status_headline(work: CommentInput) -> str:
    """Return the comment's first line by the delivery's status: what it waits for, what was delivered, or why not."""
    pull = f"Pull request #{work.pull_request.number}" if work.pull_request else ""
    reason = _REASON_TEXTS.get(work.reason) or neutral_line(work.reason.replace("_", " "), 100)
    match work.status:
        case "running":
            waiting = neutral_line(work.waiting, 300)
            return f"Waiting for a person: {waiting}" if waiting else "Perdure is working on this."
        case Status.DELIVERED:
            return f"{pull} is ready." if pull else "The branch is pushed."
        case Status.DRAFT:
            because = f": {reason}" if reason else ""
            return f"{pull} is open as a draft{because}." if pull else f"The branch is pushed{because}."
        case Status.COMPLETED:
            return "Done; no pull request was asked for."
        case Status.NO_CHANGES:
            return "There was nothing to change."
        case Status.CANCELLED:
            return "Cancelled."
        case _:
            return f"Not delivered: {reason}." if reason else "Not delivered."


def _fact_lines(work: CommentInput, contract: Contract, receipt: Receipt | None, spend: Spend | None) -> list[str]:
    """Return the facts of a delivery for the comment on its issue, one a line.

    While its status is `running`: branch and budget. Afterwards, as far as there are any: the branch if it has a pull
    request, tests, changed promises (tests of the base that the change breaks), review, cost and receipt.
    """
    origin = f"{code_span(contract.base)} at `{contract.base_sha[:12]}`"
    if work.status == "running":
        budget = format_money(contract.config.limits.budget_usd)
        return [f"branch {code_span(work.branch or contract.branch)}, from {origin}", f"spends at most {budget}"]
    facts = [f"branch {code_span(work.branch or contract.branch)}, from {origin}"] if work.pull_request else []
    if work.tests is not None and (reason := untested_text(work.tests.status)):
        facts.append(f"tests: {reason}")
    elif work.tests is not None:
        facts.append(f"tests: {neutral_line(work.tests.summary, 300)}, on tree `{work.tests.tree[:12]}`")
        if work.tests.promises:
            number = format_count(work.tests.promises, "test")
            facts.append(f"changed promises: {number} of {code_span(contract.base)} that the change does not keep")
    review = work.review_result
    if review.status is not ReviewStatus.SKIPPED:
        facts.append(f"review: {review.status}, {review_line(review)}")
    if spend is not None:
        facts.append(f"cost: {spent_line(spend.usd, spend.at_risk_usd)}")
    if receipt is not None:
        facts.append(f"receipt: {', '.join(receipt_counts(receipt))}")
    return facts


def _next_step(work: CommentInput, contract: Contract, watch_url: str) -> str:
    """Return the comment's last line. While the delivery waits: where to see how to decide; while it runs: that the
    comment will be edited; afterwards: what to do with the pull request, or else the commands that show more and try
    again.

    `watch_url` is linked where it is a web address, but not beside a finished pull request.
    """
    pull, name = work.pull_request, work.workflow_id
    page = f" [Watch it]({watch_url})." if is_web_address(watch_url) else ""
    if work.waiting:
        return f"**Next:** {code_span(f'perdure show {shell_word(name)}')} says how to decide.{page}"
    if work.status == "running":
        show = code_span(f"perdure show {shell_word(name)}")
        return f"This comment is edited when it is done; {show} says more meanwhile.{page}"
    if pull is not None:
        closes = " Merging it closes this issue." if contract.config.ship.close_issue else ""
        action = "Look at what is missing" if work.status != Status.DELIVERED or pull.draft else "Review and merge it"
        return f"**Next:** {action}: #{pull.number}.{closes}"
    if work.status in (Status.NOT_DELIVERED, Status.CANCELLED, Status.NO_CHANGES):
        show, retry = code_span(f"perdure show {shell_word(name)}"), code_span(f"perdure retry {shell_word(name)}")
        return f"**Next:** {show} says more, {retry} goes on where it stopped.{page}"
    return f"**Next:** {code_span(f'perdure show {shell_word(name)}')}{page}"
