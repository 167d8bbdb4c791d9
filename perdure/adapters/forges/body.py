"""The title and text of a pull request: what was requested, done, tested, reviewed and paid, in Markdown that a person
can trust. Also the subject line of a commit, and the text of one pull request that several deliveries share, each
writing its part between two markers. Activities make the texts, the forges merge the shared ones. Nothing is sent here.

Text that a model or a stranger wrote is neutralised: it can neither mention people, nor close issues, nor hide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perdure.adapters.forges.artifacts import bullet_list, findings_line, findings_section, promises_section
from perdure.adapters.forges.base import Proposal
from perdure.adapters.forges.markdown import (
    Addresses,
    code_span,
    neutral_line,
    neutral_span,
    neutral_text,
    neutral_title,
    picture_addresses,
    picture_links,
    quote_block,
    render_gallery,
)
from perdure.adapters.forges.template import Section, clean_template, fill_template, render_sections
from perdure.adapters.git.remote import FIRST_COMMIT
from perdure.models.checks.report import Findings, Review, Screenshots, Severity, TestReport
from perdure.models.delivery.publishing import ShipInput
from perdure.models.delivery.result import Receipt, ReviewStatus, TestsStatus
from perdure.models.delivery.result_text import receipt_counts, review_line, spent_line, untested_text
from perdure.models.delivery.steps import Plan
from perdure.models.delivery.turn import Contract
from perdure.models.limits import FORGE_TEXT_CHARS
from perdure.text import is_web_address, shorten

BODY_CHARS = 60_000
"""The most characters of a pull request's text: fewer than FORGE_TEXT_CHARS, so that a person can still add to it."""


__all__ = [
    "SUBJECT_PREFIXES",
    "marker",
    "neutral_text",
    "pull_request_body",
    "pull_request_title",
    "quote_block",
    "subject_line",
]

MARKER_START = "<!-- perdure:delivery="
"""The beginning of the hidden marker in the text of every pull request that a delivery or a backlog has opened."""

_REQUEST_SHOWN = 2000
"""The most characters of the request that are shown; the whole of it stays in the delivery."""

SUBJECT_PREFIXES = {"bug": "fix", "feature": "feat", "chore": "chore", "docs": "docs"}


@dataclass(frozen=True)
class EngineObservations:
    """The engine's own observations.

    pictures_beside  the pictures lie beside the text, as in a local pull request's record
    report           of the newest tests
    """

    findings: Findings | None = None
    screenshots: Screenshots | None = None
    pictures_beside: bool = False
    report: TestReport | None = None


def marker(delivery: str) -> str:
    """Return the hidden last line of a delivery's pull request: a pull request that carries it is ours to edit."""
    return f"{MARKER_START}{delivery} -->"


def issue_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of the issues that the text of a pull request opened by Perdure is about, each once: those it
    closes and those it leaves open. Empty when the text has no marker of a delivery or backlog.

    Text of others in it cannot be mistaken for a reference (perdure.adapters.forges.markdown).
    """
    if MARKER_START not in text:
        return ()
    leaves_open = re.findall(r"Merging this leaves ((?:#\d+(?:, )?)+) open", text)
    numbers = re.findall(r"(?i)\bcloses #(\d+)", text) + [
        number for listed in leaves_open for number in re.findall(r"\d+", listed)
    ]
    return tuple(dict.fromkeys(int(number) for number in numbers if len(number) < 10))


def pull_request_title(work: ShipInput) -> str:
    """Return the title of a delivery's pull request, one line of at most 72 characters: `feat: accept compound
    durations`."""
    return subject_line(work.kind, work.title)


def subject_line(kind: str, text: str) -> str:
    """Return a conventional subject line of at most 72 characters, made of the kind of change and a text of a model,
    whose references are broken (see neutral_title).

    A conventional prefix that the text has already stays; else one is put before it by kind (`chore` for an unknown
    kind), and the first word begins with a small letter, but for such as `API`. Dots at the end are removed; an empty
    text becomes `changes`.
    """
    summary = neutral_title(" ".join(text.split())).strip().rstrip(".") or "changes"  # no Markdown: `<` stays
    if not re.match(r"(feat|fix|chore|docs|test|refactor|perf|build|ci|style|revert)(\([^)]*\))?!?: ", summary):
        first_word = summary.split(" ", 1)[0]
        initial = summary[:1].lower() if first_word[1:].islower() else summary[:1]  # "API" and "I/O" stay
        summary = f"{SUBJECT_PREFIXES.get(kind, 'chore')}: {initial}{summary[1:]}"
    return shorten(summary, 72)


def pull_request_body(
    work: ShipInput,
    contract: Contract,
    plan: Plan | None,
    review: Review | None,
    receipt: Receipt | None = None,
    template: str | None = None,
    looks: EngineObservations | None = None,
) -> str:
    """Return the whole text of a pull request, at most BODY_CHARS long; sections that are too long are cut and say so.

    A draft says so in the first line; the last line is the hidden marker, always.

    receipt   None: the text has no receipt
    template  the repository's own form (perdure.adapters.forges.template.read_template): its headings then hold our
              sections; it is left out where the text would be too long with it
    looks     the engine's own observations; None: it has looked neither at the change nor at the application
    """
    draft = f"> **Draft:** {neutral_line(work.draft_reason)}" if work.draft_reason else ""
    base_label = f"from {code_span(contract.base)} at `{contract.base_sha[:12]}`"
    if contract.base_sha == FIRST_COMMIT:
        base_label += ", an empty commit that Perdure began the repository with"
    ending = f"---\nDelivered by Perdure as {code_span(work.workflow_id)}, {base_label}.\n\n{marker(work.delivery)}\n"
    form = clean_template(template) if template else ""
    sections = _build_sections(work, contract, plan, review, receipt, looks or EngineObservations())
    section_chars = BODY_CHARS - len(draft) - len(ending) - len(form) - 500  # what holds the pieces together
    cut_sections = _fit_sections(sections, section_chars)
    layouts = [fill_template(form, cut_sections)] if form.strip() else []
    for text in (*layouts, render_sections(cut_sections)):
        full_text = "\n\n".join(part for part in (draft, text, ending) if part)
        if len(full_text) <= BODY_CHARS:  # a template can be nothing but headings
            break
    return full_text


def _build_sections(
    work: ShipInput,
    contract: Contract,
    plan: Plan | None,
    review: Review | None,
    receipt: Receipt | None,
    looks: EngineObservations,
) -> list[Section]:
    """Return the sections of a pull request's text in their order, without those that have no text."""
    links = {name.partition(".")[0]: url for name, url in work.artifacts.items() if is_web_address(url)}
    sections = [Section("request", "Request", _request_section(contract))]
    if contract.issue is not None:
        number = f"#{contract.issue.number}"
        closes = contract.config.ship.close_issue
        issue_line = f"Closes {number}" if closes else f"Merging this leaves {number} open."
        sections.append(Section("issue", "", issue_line, fixed=True))
    if plan is not None:
        sections += [
            Section("problem", "Problem", quote_block(plan.problem)),
            Section("solution", "Solution", quote_block(plan.solution)),
            Section("tasks", "Tasks", bullet_list(neutral_line(task.title) + task.title_suffix for task in plan.tasks)),
            Section("checks", "How to check", bullet_list(neutral_line(check) for check in plan.validation)),
        ]
    sections.append(Section("assumptions", "Assumptions", _assumptions_section(work.assumptions)))
    sections.append(Section("evidence", "Evidence", bullet_list(_evidence_lines(work, links, looks)), fixed=True))
    sections.append(Section("promises", "Changed promises", promises_section(looks.report, review)))
    addresses = picture_addresses(looks.screenshots, work.artifacts, same_directory=looks.pictures_beside)
    sections.append(Section("screenshots", "Screenshots", render_gallery(looks.screenshots, addresses)))
    if review is not None and work.draft_reason:
        sections.append(Section("blockers", "Blocking", _review_issues(review, addresses, blocking=True)))
    if review is not None:
        sections.append(Section("noted", "Noted, not blocking", _review_issues(review, addresses, blocking=False)))
    sections.append(Section("findings", "Found by the engine", findings_section(looks.findings)))
    if receipt is not None:
        sections.append(Section("receipt", "Receipt", bullet_list(_receipt_lines(work, receipt, links)), fixed=True))
    return [section for section in sections if section.text]


def _request_section(contract: Contract) -> str:
    """Return the submitter's request as a quotation, cut to _REQUEST_SHOWN characters, after `From #12` where there is
    an issue. The issue's own text is not repeated.

    Empty when there is an issue, no request was written besides, and another section closes the issue by its number.
    """
    request = contract.request.strip()
    if not request and contract.issue is not None and contract.config.ship.close_issue:
        return ""
    excerpt = shorten(request, _REQUEST_SHOWN)
    origin = f"From #{contract.issue.number}" if contract.issue is not None else ""
    return "\n\n".join(part for part in (origin, quote_block(excerpt)) if part)


def _assumptions_section(assumptions: Sequence[str]) -> str:
    """Return a list of what agents assumed where they would have asked a person; empty when they assumed nothing."""
    items = [
        neutral_line(assumption) for assumed in assumptions for assumption in assumed.splitlines() if assumption.strip()
    ]
    return f"Nobody was asked, so this was assumed:\n\n{bullet_list(items)}" if items else ""


def _evidence_lines(work: ShipInput, links: Mapping[str, str], looks: EngineObservations) -> list[str]:
    """Return the lines of the evidence: tests, red tests that a person let through, review, the engine's own look where
    there was one, cost, and the plan where it was published.

    `links`: the addresses of published artifacts by name without ending, such as `tests`; lines link to those that are
    there, and without one the plan has no line.
    """
    tests, review, spend = work.tests, work.review_result, work.spend
    if tests is None:
        lines = [f"tests: {untested_text(TestsStatus.SKIPPED)}, the phase was not selected"]
    elif reason := untested_text(tests.status):
        lines = [f"tests: {reason}"]
    else:
        lines = [f"tests: {neutral_line(tests.summary)}, on tree `{tests.tree[:12]}`{_link(links, 'tests', 'report')}"]
    if work.accepted:
        lines.append(f"red tests let through by a person who looked, {neutral_line(work.accepted)}")
    if review.status is ReviewStatus.SKIPPED:
        lines.append(f"review: {review_line(review)}, the phase was not selected")
    else:
        lines.append(f"review: {review.status}, {review_line(review)}{_link(links, 'review', 'findings')}")
    if looks.findings is not None:
        lines.append(f"the engine's own look: {findings_line(looks.findings)}{_link(links, 'findings', 'all of it')}")
    lines.append(f"cost: {spent_line(spend.usd, spend.at_risk_usd)}")
    if "plan" in links:
        lines.append(f"plan: [as it was made]({links['plan']})")
    return lines


def _receipt_lines(work: ShipInput, receipt: Receipt, links: Mapping[str, str]) -> list[str]:
    """Return the lines of the receipt: worker deaths, turns redone, replies paid twice; where there are any, replies
    cut off, the tree tested green, what the experiment showed, and a link to receipt.json."""
    lines = receipt_counts(receipt)
    if work.tests is not None and work.tests.status is TestsStatus.GREEN:
        lines.append(f"tested green: tree `{work.tests.tree[:12]}`, which is commit `{work.head[:12]}`")
    if receipt.experiment:
        lines.append(f"judged by experiment: {neutral_line(receipt.experiment)}")
    if "receipt" in links:
        lines.append(f"[receipt.json]({links['receipt']})")
    return lines


def _review_issues(review: Review, addresses: Addresses, *, blocking: bool) -> str:
    """Return the issues of a review as a list with links to their pictures: the blockers, or with `blocking` False all
    others."""
    return "\n".join(
        f"- **{issue.severity.replace('_', ' ')}** {neutral_line(issue.title)}"
        + (f" ({file})" if (file := neutral_span(issue.file)) else "")
        + picture_links(issue, addresses)
        for issue in review.issues
        if (issue.severity is Severity.BLOCKER) == blocking
    )


def _link(links: Mapping[str, str], name: str, label: str) -> str:
    """Return ` ([label](address))` for a published artifact; empty when it was not published."""
    return f" ([{label}]({links[name]}))" if name in links else ""


def _fit_sections(sections: Sequence[Section], max_chars: int) -> list[Section]:
    """Return the sections cut so that all of them fit in `max_chars` characters. The longest are cut, all to the same
    length; sections that are `fixed` are never cut, even where they alone are too long."""
    remaining = max_chars - sum(len(s.text) + len(s.heading) + 12 for s in sections if s.fixed)
    cuttable = sorted((s for s in sections if not s.fixed), key=lambda s: len(s.text))
    lengths: dict[str, int] = {}
    for index, section in enumerate(cuttable):
        share = remaining // (len(cuttable) - index) - len(section.heading) - 12
        lengths[section.key] = min(len(section.text), max(share, 0))
        remaining -= lengths[section.key] + len(section.heading) + 12
    return [s if s.fixed else replace(s, text=_cut_text(s.text, lengths[s.key])) for s in sections]


def _cut_text(text: str, length: int) -> str:
    """Return a text whole, or cut to `length` characters with a note of how much is missing, at the end of a line where
    one is near. Below 60 characters only the note remains."""
    if len(text) <= length:
        return text
    kept = text[: max(length - 60, 0)]
    kept = kept[: kept.rfind("\n")] if kept.rfind("\n") > len(kept) // 2 else kept
    return f"{kept}\n\n_… cut here, {len(text) - len(kept)} more characters_"


_PART_END = re.compile(rf"{re.escape(MARKER_START)}([^\n]*?) -->\n?")

_CUT_NOTE = "_… cut here: there is no room for more beside the others_"


def part_start(delivery: str) -> str:
    """Return the hidden first line of a delivery's part. What stands between the end of another part and this line is
    somebody else's."""
    return f"<!-- perdure:begins={delivery} -->"


def merge_part(proposal: Proposal, title: str, existing_body: str) -> Proposal:
    """Return the proposal with the text that a shared pull request is to have: `existing_body` with the delivery's part
    added, or put in place of its earlier one, and nothing else touched. Nothing is sent.

    `title` is the title that the pull request has; it stays unless the first part is this delivery's. The proposal is
    returned as it is when the existing text has no part of another delivery and no line where a part begins. A part
    that is too long is cut, but never its end (Proposal.body_end).
    """
    text = existing_body.replace("\r\n", "\n")
    owners = [match[1] for match in _PART_END.finditer(text)]
    if set(owners) <= {proposal.delivery} and part_start(proposal.delivery) not in text:
        return proposal
    start, end = _part_range(text, proposal.delivery)
    before, after = text[:start], text[end:]
    before += "\n" * (2 - _trailing_newlines(before)) if before else ""
    part = _fit_part(proposal, len(before) + len(after) + 1) + "\n"
    is_first = proposal.delivery in owners[:1]
    return replace(proposal, title=proposal.title if is_first else title, body=before + part + after)


def _part_range(text: str, delivery: str) -> tuple[int, int]:
    """Return the (start, end) of a delivery's part in the text; where it has none, the end of the last part for both,
    or 0 where there is no part."""
    previous_end = 0
    for match in _PART_END.finditer(text):
        if match[1] == delivery:
            start = text.find(part_start(delivery), previous_end, match.start())
            return (start if start >= 0 else previous_end), match.end()
        previous_end = match.end()
    return previous_end, previous_end


def _trailing_newlines(text: str) -> int:
    """Count the newlines at the end of a text, at most two."""
    return min(2, len(text) - len(text.rstrip("\n")))


def _fit_part(proposal: Proposal, other_chars: int) -> str:
    """Return the proposal's text cut to whole lines so that it fits beside `other_chars` characters of others, with a
    note where it was cut.

    Its end always stays: `body_end` as long as that fits into what a forge takes, else the marker alone.
    """
    text, mark = proposal.body.strip(), marker(proposal.delivery)
    if len(text) + other_chars <= BODY_CHARS:
        return text
    end = next(
        (end for end in (proposal.body_end.strip(), mark) if mark in end and len(end) + other_chars < FORGE_TEXT_CHARS),
        mark,
    )
    beginning = text.removesuffix(end)[: max(0, BODY_CHARS - other_chars - len(_CUT_NOTE) - len(end) - 4)]
    beginning = beginning[: beginning.rfind("\n") + 1].strip()
    return f"{beginning}\n\n{_CUT_NOTE}\n\n{end}" if beginning else end
