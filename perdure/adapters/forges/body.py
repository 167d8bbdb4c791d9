"""What a pull request says: what was asked, done, tested, reviewed and paid, in Markdown a person can trust.

Text that a model or a stranger wrote is neutralised: it can neither mention people, nor close issues, nor hide.
"""

from __future__ import annotations

import re

from perdure.models.contract import Contract
from perdure.models.details import dollars
from perdure.models.report import Plan, Review, Severity
from perdure.models.result import ReviewStatus, TestsStatus
from perdure.models.work import ShipInput

_CLOSING = re.compile(
    r"\b(clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?)"
    r"([\s:*_]+(?:issues?\s+)?)(#|gh-\d|[\w.-]+(?:/[\w.-]+)*#|https?://)",
    re.IGNORECASE,
)
"""What closes an issue at GitHub, Forgejo (the same words) or GitLab (more of them)."""
_REQUEST_SHOWN = 2000
"""Characters of the request; the whole of it stays in the delivery."""

PREFIX = {"bug": "fix", "feature": "feat", "chore": "chore"}


def title(work: ShipInput) -> str:
    """`feat: accept compound durations`, one line, at most 72 characters."""
    return subject(work.kind, work.title)


def subject(kind: str, words: str) -> str:
    """A conventional subject line from words of a model; a prefix that is there already stays."""
    line = _plain(" ".join(words.split())).strip().rstrip(".") or "changes"  # no Markdown: `<` stays what it is
    if not re.match(r"(feat|fix|chore|docs|test|refactor|perf|build|ci|style|revert)(\([^)]*\))?!?: ", line):
        first = line.split(" ", 1)[0]
        start = line[:1].lower() if first[1:].islower() else line[:1]  # "API" and "I/O" stay
        line = f"{PREFIX.get(kind, 'chore')}: {start}{line[1:]}"
    return line if len(line) <= 72 else line[:71].rstrip() + "…"


def body(work: ShipInput, contract: Contract, plan: Plan | None, review: Review | None) -> str:
    """The whole pull request text; the first line says so when it is a draft."""
    parts = [f"> **Draft:** {neutral(work.draft_reason)}\n"] if work.draft_reason else []
    parts.append(f"**Request**\n\n{quote(contract.request[:_REQUEST_SHOWN])}")
    if plan is not None:
        parts.append(_plan(plan))
    parts.append("### Evidence\n\n" + "\n".join(f"- {line}" for line in _evidence(work)))
    if review is not None and (open_ends := _open_ends(review)):
        parts.append("### Noted, not blocking\n\n" + open_ends)
    parts.append(
        f"---\nDelivered by Perdure as `{work.workflow_id}`, from `{contract.base}` at `{contract.base_sha[:12]}`."
    )
    return "\n\n".join(parts) + "\n"


def _plan(plan: Plan) -> str:
    tasks = "\n".join(f"- {_line(task.title)}" for task in plan.tasks)
    checks = "\n".join(f"- {_line(check)}" for check in plan.validation)
    return "\n\n".join(
        part
        for part in (
            f"### Problem\n\n{quote(plan.problem)}",
            f"### Solution\n\n{quote(plan.solution)}",
            f"### Tasks\n\n{tasks}" if tasks else "",
            f"### How to check\n\n{checks}" if checks else "",
        )
        if part
    )


def _evidence(work: ShipInput) -> list[str]:
    tests, review, spend = work.tests, work.review_result, work.spend
    if tests is None:
        lines = ["tests: not run, the phase was not selected"]
    elif tests.status is TestsStatus.NONE:
        lines = ["tests: the repository has no test command"]
    else:
        lines = [f"tests: {_line(tests.summary)}, on tree `{tests.tree[:12]}`"]
    if review.status is ReviewStatus.SKIPPED:
        lines.append("review: not done, the phase was not selected")
    else:
        counts = f"{review.blockers} blockers, {review.tech_debt} tech debt, {review.skippable} skippable"
        lines.append(f"review: {review.status}, {counts}")
    risk = f", at most {dollars(spend.at_risk_usd)} more for replies cut off" if spend.at_risk_usd else ""
    lines.append(f"cost: {dollars(spend.usd)}{risk}")
    return lines


def _open_ends(review: Review) -> str:
    shown = [issue for issue in review.issues if issue.severity is not Severity.BLOCKER]
    return "\n".join(
        f"- **{issue.severity.replace('_', ' ')}** {_line(issue.title)}"
        + (f" (`{_line(issue.file)}`)" if issue.file and "`" not in issue.file else "")
        for issue in shown
    )


def neutral(text: str) -> str:
    """No mentions, no closing words, no HTML, comments or control characters: a zero-width space breaks them."""
    return _plain(text).replace("<", "&lt;")


def quote(text: str) -> str:
    """Several lines of somebody else's: whatever they open (a heading, a fence) ends with the quotation."""
    return "\n".join(f"> {line}" for line in neutral(text).splitlines())


def _line(text: str) -> str:
    return neutral(" ".join(text.split()))


def _plain(text: str) -> str:
    text = "".join(c if c == "\n" or c.isprintable() else " " if c.isspace() else "" for c in text)
    text = re.sub(r"@(?=[\w-])", "@\u200b", text)
    return _CLOSING.sub(lambda m: f"{m[1]}{m[2]}\u200b{m[3]}", text)
