"""The text of a pull request: what was asked, done, tested, reviewed and paid, in Markdown a person can trust.

Text that a model or a stranger wrote is neutralised: it can neither mention people, nor close issues, nor hide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perdure.adapters.forges.neutral import code, line, neutral, plain, quote, span, web_address
from perdure.adapters.forges.pictures import Addresses, gallery, picture_addresses, pictures_of
from perdure.adapters.forges.reports import bullets, findings_line, findings_section, promises_section
from perdure.adapters.forges.template import Section, arranged, clean, laid_out
from perdure.adapters.git.initial_commit import FIRST_COMMIT
from perdure.models.contract import Contract
from perdure.models.plan import Plan
from perdure.models.publishing import ShipInput
from perdure.models.report import Findings, Review, Screenshots, Severity, TestReport
from perdure.models.result import Receipt, ReviewStatus, TestsStatus
from perdure.models.webui.details import dollars

BODY_CHARS = 60_000
"""Of a pull request's text: below FORGE_TEXT_CHARS, so that a person can still add to it."""


__all__ = ["PREFIX", "body", "marker", "neutral", "quote", "subject", "title"]

OURS = "<!-- perdure:delivery="
"""In the text of every pull request that a delivery or a backlog has opened."""

_REQUEST_SHOWN = 2000
"""Characters of the request; the whole of it stays in the delivery."""

PREFIX = {"bug": "fix", "feature": "feat", "chore": "chore", "docs": "docs"}


@dataclass(frozen=True)
class Looks:
    """The engine's own observations. `beside`: the pictures lie beside the text, as in a local pull request's record;
    `report`: of the newest tests."""

    findings: Findings | None = None
    screenshots: Screenshots | None = None
    beside: bool = False
    report: TestReport | None = None


def marker(delivery: str) -> str:
    """The last line of a pull request that is this delivery's: what carries it is ours to edit."""
    return f"{OURS}{delivery} -->"


def issues_of(text: str) -> tuple[int, ...]:
    """Numbers of the issues that a pull request of ours is about: those it closes, and those it leaves open. Words of
    others in it refer to nothing (perdure.adapters.forges.neutral)."""
    if OURS not in text:
        return ()
    left = re.findall(r"Merging this leaves ((?:#\d+(?:, )?)+) open", text)
    found = re.findall(r"(?i)\bcloses #(\d+)", text) + [number for some in left for number in re.findall(r"\d+", some)]
    return tuple(dict.fromkeys(int(number) for number in found if len(number) < 10))


def title(work: ShipInput) -> str:
    """`feat: accept compound durations`, one line, at most 72 characters."""
    return subject(work.kind, work.title)


def subject(kind: str, words: str) -> str:
    """A conventional subject line from words of a model; a prefix that is there already stays."""
    said = plain(" ".join(words.split())).strip().rstrip(".") or "changes"  # no Markdown: `<` stays what it is
    if not re.match(r"(feat|fix|chore|docs|test|refactor|perf|build|ci|style|revert)(\([^)]*\))?!?: ", said):
        first = said.split(" ", 1)[0]
        start = said[:1].lower() if first[1:].islower() else said[:1]  # "API" and "I/O" stay
        said = f"{PREFIX.get(kind, 'chore')}: {start}{said[1:]}"
    return said if len(said) <= 72 else said[:71].rstrip() + "…"


def body(
    work: ShipInput,
    contract: Contract,
    plan: Plan | None,
    review: Review | None,
    receipt: Receipt | None = None,
    template: str | None = None,
    looks: Looks | None = None,
) -> str:
    """The whole pull request text, at most BODY_CHARS long: what is too long is cut and says so.

    A draft says so in the first line; the last one is the marker, always. `template` is the repository's own form
    (perdure.adapters.forges.template.read_template): its headings then hold our sections. `receipt` None: without one.
    `looks` None: the engine has not looked at the change, nor at the application.
    """
    draft = f"> **Draft:** {line(work.draft_reason)}" if work.draft_reason else ""
    made_from = f"from {code(contract.base)} at `{contract.base_sha[:12]}`"
    if contract.base_sha == FIRST_COMMIT:
        made_from += ", an empty commit that Perdure began the repository with"
    end = f"---\nDelivered by Perdure as {code(work.workflow_id)}, {made_from}.\n\n{marker(work.delivery)}\n"
    form = clean(template) if template else ""
    sections = _sections(work, contract, plan, review, receipt, looks or Looks())
    room = BODY_CHARS - len(draft) - len(end) - len(form) - 500  # what holds the pieces together
    fitting = _fit(sections, room)
    written = [arranged(form, fitting)] if form.strip() else []
    for text in (*written, laid_out(fitting)):
        whole = "\n\n".join(part for part in (draft, text, end) if part)
        if len(whole) <= BODY_CHARS:  # a template can be nothing but headings
            break
    return whole


def _sections(
    work: ShipInput,
    contract: Contract,
    plan: Plan | None,
    review: Review | None,
    receipt: Receipt | None,
    looks: Looks,
) -> list[Section]:
    links = {name.partition(".")[0]: url for name, url in work.artifacts.items() if web_address(url)}
    sections = [Section("request", "Request", _request(contract))]
    if contract.issue is not None:
        number = f"#{contract.issue.number}"
        closes = contract.config.ship.close_issue
        said = f"Closes {number}" if closes else f"Merging this leaves {number} open."
        sections.append(Section("issue", "", said, fixed=True))
    if plan is not None:
        sections += [
            Section("problem", "Problem", quote(plan.problem)),
            Section("solution", "Solution", quote(plan.solution)),
            Section("tasks", "Tasks", bullets(line(task.title) + task.title_suffix for task in plan.tasks)),
            Section("checks", "How to check", bullets(line(check) for check in plan.validation)),
        ]
    sections.append(Section("assumptions", "Assumptions", _assumptions(work.assumptions)))
    sections.append(Section("evidence", "Evidence", bullets(_evidence(work, links, looks)), fixed=True))
    sections.append(Section("promises", "Changed promises", promises_section(looks.report, review)))
    shown = picture_addresses(looks.screenshots, work.artifacts, beside=looks.beside)
    sections.append(Section("screenshots", "Screenshots", gallery(looks.screenshots, shown)))
    if review is not None and work.draft_reason:
        sections.append(Section("blockers", "Blocking", _issues(review, shown, blocking=True)))
    if review is not None:
        sections.append(Section("noted", "Noted, not blocking", _issues(review, shown, blocking=False)))
    sections.append(Section("findings", "Found by the engine", findings_section(looks.findings)))
    if receipt is not None:
        sections.append(Section("receipt", "Receipt", bullets(_receipt(work, receipt, links)), fixed=True))
    return [section for section in sections if section.text]


def _request(contract: Contract) -> str:
    """Quote what was asked; an issue speaks for itself, so only what the submitter said beside it. Empty when there is
    nothing beside it, and the line that closes it names it."""
    words = contract.request.strip()
    if not words and contract.issue is not None and contract.config.ship.close_issue:
        return ""
    shown = words if len(words) <= _REQUEST_SHOWN else words[:_REQUEST_SHOWN] + "…"
    origin = f"From #{contract.issue.number}" if contract.issue is not None else ""
    return "\n\n".join(part for part in (origin, quote(shown)) if part)


def _assumptions(assumptions: Sequence[str]) -> str:
    """List what agents took for granted where they would have asked, each in a line."""
    said = [line(one) for together in assumptions for one in together.splitlines() if one.strip()]
    return f"Nobody was asked, so this was assumed:\n\n{bullets(said)}" if said else ""


def _evidence(work: ShipInput, links: Mapping[str, str], looks: Looks) -> list[str]:
    tests, review, spend = work.tests, work.review_result, work.spend
    if tests is None:
        lines = ["tests: not run, the phase was not selected"]
    elif tests.status is TestsStatus.NONE:
        lines = ["tests: the repository has no test command"]
    else:
        lines = [f"tests: {line(tests.summary)}, on tree `{tests.tree[:12]}`{_link(links, 'tests', 'report')}"]
    if work.accepted:
        lines.append(f"red tests let through by a person who looked, {line(work.accepted)}")
    if review.status is ReviewStatus.SKIPPED:
        lines.append("review: not done, the phase was not selected")
    else:
        counts = f"{review.blockers} blockers, {review.tech_debt} tech debt, {review.skippable} skippable"
        lines.append(f"review: {review.status}, {counts}{_link(links, 'review', 'findings')}")
    if looks.findings is not None:
        lines.append(f"the engine's own look: {findings_line(looks.findings)}{_link(links, 'findings', 'all of it')}")
    risk = f", at most {dollars(spend.at_risk_usd)} more for replies cut off" if spend.at_risk_usd else ""
    lines.append(f"cost: {dollars(spend.usd)}{risk}")
    if "plan" in links:
        lines.append(f"plan: [as it was made]({links['plan']})")
    return lines


def _receipt(work: ShipInput, receipt: Receipt, links: Mapping[str, str]) -> list[str]:
    lines = [
        f"worker deaths: {receipt.worker_deaths}",
        f"turns redone: {receipt.turns_redone}",
        f"replies paid twice: {receipt.replies_paid_twice}",
    ]
    if receipt.replies_cut:
        lines.append(f"replies cut off: {receipt.replies_cut}, possibly billed")
    if work.tests is not None and work.tests.status is TestsStatus.GREEN:
        lines.append(f"tested green: tree `{work.tests.tree[:12]}`, which is commit `{work.head[:12]}`")
    if receipt.experiment:
        lines.append(f"judged by experiment: {line(receipt.experiment)}")
    if "receipt" in links:
        lines.append(f"[receipt.json]({links['receipt']})")
    return lines


def _issues(review: Review, shown: Addresses, *, blocking: bool) -> str:
    return "\n".join(
        f"- **{issue.severity.replace('_', ' ')}** {line(issue.title)}"
        + (f" ({file})" if (file := span(issue.file)) else "")
        + pictures_of(issue, shown)
        for issue in review.issues
        if (issue.severity is Severity.BLOCKER) == blocking
    )


def _link(links: Mapping[str, str], name: str, words: str) -> str:
    return f" ([{words}]({links[name]}))" if name in links else ""


def _fit(sections: Sequence[Section], room: int) -> list[Section]:
    """All of them in `room` characters: the longest are cut, to the same length."""
    left = room - sum(len(s.text) + len(s.heading) + 12 for s in sections if s.fixed)
    cuttable = sorted((s for s in sections if not s.fixed), key=lambda s: len(s.text))
    lengths: dict[str, int] = {}
    for place, section in enumerate(cuttable):
        share = left // (len(cuttable) - place) - len(section.heading) - 12
        lengths[section.key] = min(len(section.text), max(share, 0))
        left -= lengths[section.key] + len(section.heading) + 12
    return [s if s.fixed else replace(s, text=_cut(s.text, lengths[s.key])) for s in sections]


def _cut(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    kept = text[: max(length - 60, 0)]
    kept = kept[: kept.rfind("\n")] if kept.rfind("\n") > len(kept) // 2 else kept
    return f"{kept}\n\n_… cut here, {len(text) - len(kept)} more characters_"
